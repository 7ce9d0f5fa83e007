"""docs/sync.md, "From zero to a table that follows the county": each way runs as it is written."""

import re
import shlex
from pathlib import Path

import pytest

from ploti.cli.command import run
from ploti.testing.feed import SUBSCRIPTION, Feed
from ploti.testing.stories import PERMITS, A, permits

PAGE = (Path(__file__).parents[2] / "docs" / "sync.md").read_text()
SECTION = re.search(r"## From zero to a table.*?(?=\n## )", PAGE, re.DOTALL)[0]
WAYS = re.findall(r"```bash\n(.*?)```\n\n```python\n(.*?)```", SECTION, re.DOTALL)


@pytest.fixture
def feed(monkeypatch, tmp_path):
    feed = Feed()
    feed.add(A, PERMITS, permits(*range(12)), title="Permits")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with feed.api.serve() as address:
        monkeypatch.setenv("PLOTI_API_URL", address)
        monkeypatch.setenv("PLOTI_API_KEY", feed.api.api_key)
        yield feed


@pytest.mark.parametrize(("shell", "look"), WAYS, ids=[re.search(r"--to \"?(\w+)", shell)[1] for shell, _ in WAYS])
def test_a_table_follows_the_county_from_an_empty_folder(feed, request, capsys, shell, look):
    if "psycopg" in look:
        url = request.getfixturevalue("postgres_database")
        shell = shell.replace("postgresql://me@db.example/county?", f"{url}&")
        look = look.replace("postgresql://me@db.example/county", url)
    commands = [shlex.split(line) for line in shell.replace("sub_orange", SUBSCRIPTION).splitlines()]
    assert [command[0] for command in commands] == ["pip", "export", "ploti", "ploti"]
    for count in (12, 13):
        for command in commands[2:]:
            assert run(command[1:]) == 0
        assert "equal" in capsys.readouterr().out
        exec(compile(look, "docs/sync.md", "exec"), {})
        assert capsys.readouterr().out == f"{count}\n"
        feed.update(A, put=permits(40))


def test_every_kind_of_target_has_its_way():
    assert len(WAYS) == 4
