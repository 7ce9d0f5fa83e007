"""Where the key and address come from, and what `import ploti` costs and shows."""

import json
import os
from contextlib import suppress

import pytest

import ploti
from ploti._client import DEFAULT_URL, login_path, settings, store_login, stored_login, user_folder

HERE = "http://127.0.0.1:9000"


@pytest.mark.parametrize(
    ("arguments", "environment", "stored", "expected"),
    [
        ((None, None), {}, None, (None, DEFAULT_URL)),
        (("k", "http://a"), {"PLOTI_API_KEY": "e", "PLOTI_API_URL": "http://e"}, None, ("k", "http://a")),
        ((None, None), {"PLOTI_API_KEY": "e", "PLOTI_API_URL": "http://e"}, ("http://s", "s"), ("e", "http://e")),
        ((None, None), {}, (HERE, "s"), ("s", HERE)),
        ((None, HERE + "/"), {}, (HERE, "s"), ("s", HERE + "/")),
        ((None, None), {"PLOTI_API_URL": "http://elsewhere"}, (HERE, "s"), (None, "http://elsewhere")),
        ((None, "http://elsewhere"), {}, (HERE, "s"), (None, "http://elsewhere")),
        ((None, None), {"PLOTI_API_KEY": "e"}, (HERE, "s"), ("e", HERE)),
    ],
)
def test_key_and_address_are_found_in_order(tmp_path, arguments, environment, stored, expected):
    """D11.10; a stored key goes to no address but its own (check 50)."""
    environment = {**environment, "XDG_CONFIG_HOME": str(tmp_path), "APPDATA": str(tmp_path)}
    if stored:
        store_login(login_path(environment), *stored)
    assert settings(*arguments, environment) == expected


def test_a_login_is_stored_for_its_owner_alone(tmp_path):
    path = tmp_path / "deep" / "login.json"
    store_login(path, HERE + "/", "first")
    store_login(path, HERE, "second")
    assert stored_login(path) == {"url": HERE, "key": "second"}
    assert [file.name for file in path.parent.iterdir()] == ["login.json"]
    if os.name == "posix":
        assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("content", ["", "{", "[]", '{"url": "http://a"}', json.dumps({"url": 1, "key": "k"})])
def test_a_broken_login_is_told(tmp_path, content):
    path = tmp_path / "login.json"
    path.write_text(content)
    with pytest.raises(ploti.FixRequest, match="ploti login"):
        stored_login(path)


def test_importing_ploti_loads_nothing_heavy(run_python):
    code = "import sys; before = set(sys.modules); import ploti; print(*sorted(set(sys.modules) - before))"
    assert run_python(code).split() == ["ploti"]


def test_the_module_level_resources_use_the_environment(fake, run_python):
    code = (
        "import ploti\n"
        "print(ploti.topics.list()['topics'][0]['id'])\n"
        "print(ploti.feeds.datasets.versions.get('ds_orange_permits', 2)['files']['changes'][0]['path'])\n"
        "print(ploti.places.list()['places'][0]['id'], ploti.feeds is ploti.feeds)\n"
    )
    with fake.serve() as url:
        shown = run_python(code, PLOTI_API_KEY=fake.api_key, PLOTI_API_URL=url)
    assert shown.split() == ["development-activity", "changes/part-0000.parquet", "fl-county-orange", "True"]


def test_every_public_name_is_there(run_python):
    code = "import ploti; print([n for n in ploti.__all__ if getattr(ploti, n) is None], dir(ploti) == ploti.__all__)"
    assert run_python(code, PLOTI_API_URL="http://127.0.0.1:9").strip() == "[] True"


def test_a_name_that_is_not_public_is_an_attribute_error():
    with pytest.raises(AttributeError, match="webhook_things"):
        ploti.webhook_things  # noqa: B018


def test_a_login_that_cannot_be_read_is_told(tmp_path):
    (tmp_path / "login.json").mkdir()
    with pytest.raises(ploti.FixRequest, match=r"login\.json cannot be read"):
        stored_login(tmp_path / "login.json")


def test_calls_go_through_the_proxy_that_is_named(fake):
    """The fake is the proxy here: it is asked for an address that nobody has."""
    with fake.serve() as proxy, ploti.Client(fake.api_key, "http://api.example", proxy=proxy) as client:
        assert client.topics.list()["topics"]
    assert fake.requests[-1].headers["host"] == "api.example"


@pytest.mark.parametrize("proxy", ["nonsense", "ftp://x", ""])
def test_a_proxy_that_is_none_is_told(proxy):
    with pytest.raises(ploti.FixRequest, match="proxy"):
        ploti.Client("ploti_key", "http://api.example", proxy=proxy)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_each_process_after_a_fork_gets_its_own_answers(fake):
    """As in the workers of a web server that was loaded before they began."""
    asked = ["ds_orange_permits", "ds_orange_zoning"]

    def right(client, dataset):
        return all(client.feeds.datasets.get(dataset)["id"] == dataset for _ in range(30))

    with fake.serve() as url, ploti.Client(fake.api_key, url, timeout=5) as client:
        client.topics.list()
        workers = []
        for dataset in asked * 2:
            workers.append(os.fork())
            if not workers[-1]:
                code = 1
                with suppress(Exception):
                    code = 0 if right(client, dataset) else 2
                os._exit(code)
        assert right(client, asked[0])
        assert [os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1]) for worker in workers] == [0] * 4


def test_a_user_without_a_home_is_told_what_to_set():
    """As in a container whose user nobody knows."""

    def nowhere():
        raise RuntimeError("Could not determine home directory.")

    with pytest.raises(ploti.FixRequest, match="set XDG_CONFIG_HOME"):
        user_folder("XDG_CONFIG_HOME", ".config", {}, nowhere)
    assert str(user_folder("XDG_CONFIG_HOME", ".config", {"XDG_CONFIG_HOME": "/x"}, nowhere)) == "/x/ploti"
