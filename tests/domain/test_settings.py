"""Settings: where each comes from, and which are refused (D13.1)."""

from pathlib import Path

import pytest

from ploti_server.domain.datasets import MatchingLimits, ReviewLimits
from ploti_server.domain.settings import (
    Settings,
    SettingsBroken,
    given_settings,
    setting_names,
    setting_value,
)

HOME = Path("/srv/home")


def test_defaults_lie_in_the_home_folder():
    settings = Settings.of(HOME)
    assert settings.database_url == "sqlite:////srv/home/ploti.db"
    assert settings.files_url == "file:///srv/home/files"
    assert (settings.public_url, settings.host, settings.port) == (None, "127.0.0.1", 8731)
    assert (settings.review, settings.matching) == (ReviewLimits(), MatchingLimits())


def test_home_of_any_name_makes_an_address():
    settings = Settings.of(Path("/srv/a %41?ü"))
    assert settings.database_url == "sqlite:////srv/a%20%2541%3F%C3%BC/ploti.db"
    assert settings.files_url == "file:///srv/a%20%2541%3F%C3%BC/files"


def test_home_becomes_absolute():
    assert Settings.of(Path("ploti-home")).home == Path.cwd() / "ploti-home"


def test_environment_wins_over_the_file_and_the_file_over_the_default():
    environment = {"PLOTI_SERVER_PORT": "1"}
    stored = {"port": 2, "threads": 3}
    settings = Settings.of(HOME, environment, stored)
    assert (settings.port, settings.threads, settings.memory_mb) == (1, 3, 768)
    assert given_settings(environment, stored) == {"port": (1, "environment"), "threads": (3, "settings.toml")}


OPTIONAL_TEXTS = ("chat_url", "chat_model", "chat_key", "notify_command", "notify_url")


@pytest.mark.parametrize("name", setting_names())
def test_every_setting_can_be_given_in_the_environment_and_the_file(name):
    default = setting_value(Settings.of(HOME), name)
    special = {"memory_mb": 100, "webhooks_key": "k" * 32, "webhooks_allow_loopback": True, "matching_agent": "chat"}
    text = isinstance(default, str) or name in ("public_url", *OPTIONAL_TEXTS)
    new = special.get(name, "http://x" if text else 1)
    in_environment = Settings.of(HOME, {f"PLOTI_SERVER_{name.upper()}": "true" if new is True else str(new)})
    in_file = Settings.of(HOME, {}, {name: new})
    assert setting_value(in_environment, name) == setting_value(in_file, name) == new != default


@pytest.mark.parametrize(
    "stored",
    [
        {"review": {"max_row_drop": 0.5}, "matching": {"near_metres": 20}},
        {"review_max_row_drop": 0.5, "matching_near_metres": 20.0},
        {"review": {"max_row_drop": 0.5}, "matching_near_metres": 20},
    ],
)
def test_groups_are_tables_or_flat(stored):
    settings = Settings.of(HOME, {}, stored)
    assert settings.review == ReviewLimits(max_row_drop=0.5)
    assert settings.matching == MatchingLimits(near_metres=20.0)


@pytest.mark.parametrize("text", ["", None])
def test_empty_variable_is_none_and_home_and_other_programs_are_not_ours(text):
    environment = {"PLOTI_SERVER_HOME": "/elsewhere", "PLOTI_API_KEY": "x", "PATH": "/bin"}
    if text is not None:
        environment["PLOTI_SERVER_PUBLIC_URL"] = text
    assert Settings.of(HOME, environment) == Settings.of(HOME)


@pytest.mark.parametrize(
    ("environment", "stored", "message"),
    [
        ({"PLOTI_SERVER_PRT": "1"}, {}, "PLOTI_SERVER_PRT is not a setting; did you mean port?"),
        ({}, {"databse_url": "x"}, "settings.toml: 'databse_url' is not a setting; did you mean database_url?"),
        ({}, {"zzz": "x"}, "settings.toml: 'zzz' is not a setting; known are database_url, files_url, public_url"),
        ({}, {"home": "/x"}, "settings.toml: 'home' is not a setting"),
        ({}, {"review": {"max_rows": 1}}, "settings.toml: 'review_max_rows' is not a setting"),
        ({}, {"review": 1}, "settings.toml: 'review' is not a setting"),
        (
            {},
            {"review": {"max_rejects": 1}, "review_max_rejects": 1},
            "settings.toml: review_max_rejects is given twice",
        ),
        ({"PLOTI_SERVER_PORT": "http"}, {}, "PLOTI_SERVER_PORT has to be a whole number from 1 to 65535, not 'http'"),
        ({"PLOTI_SERVER_PORT": "0"}, {}, "PLOTI_SERVER_PORT has to be a whole number from 1 to 65535, not 0"),
        ({"PLOTI_SERVER_PORT": "65536"}, {}, "not 65536"),
        ({}, {"port": "8731"}, "settings.toml: port has to be a whole number from 1 to 65535, not '8731'"),
        ({}, {"port": True}, "not True"),
        ({}, {"port": 80.0}, "not 80.0"),
        ({}, {"threads": 0}, "settings.toml: threads has to be a whole number from 1 on, not 0"),
        ({}, {"memory_mb": 63}, "settings.toml: memory_mb has to be a whole number from 64 on"),
        ({}, {"review": {"max_rejects": 1.01}}, "review_max_rejects has to be a number from 0 to 1, not 1.01"),
        (
            {"PLOTI_SERVER_MATCHING_NEAR_METRES": "nan"},
            {},
            "MATCHING_NEAR_METRES has to be a number from 0 on, not nan",
        ),
        ({"PLOTI_SERVER_MATCHING_MIN_CONFIDENCE": "2"}, {}, "from 0 to 1"),
        ({}, {"host": " "}, "settings.toml: host has to be a text"),
        ({}, {"webhooks_key": "k" * 31}, "webhooks_key has to be a random text of 32 characters or more"),
        ({"PLOTI_SERVER_WEBHOOKS_ALLOW_LOOPBACK": "yes"}, {}, "ALLOW_LOOPBACK has to be true or false, not 'yes'"),
        ({}, {"matching_agent": "magic"}, "matching_agent has to be one of built-in, chat, staff, nobody"),
        ({}, {"webhooks_allow_loopback": 1}, "webhooks_allow_loopback has to be true or false, not 1"),
        ({}, {"host": 5}, "settings.toml: host has to be a text"),
        (
            {"PLOTI_SERVER_PUBLIC_URL": "feeds.example.org"},
            {},
            "PLOTI_SERVER_PUBLIC_URL has to be an address like https:",
        ),
        ({}, {"public_url": "ftp://example.org"}, "settings.toml: public_url has to be an address"),
        ({}, {"public_url": "https://example.org/?a=b"}, "settings.toml: public_url has to be an address"),
        ({}, {"public_url": "https://example.org/\n"}, "settings.toml: public_url has to be a text"),
    ],
)
def test_wrong_settings_are_refused_with_a_reason(environment, stored, message):
    with pytest.raises(SettingsBroken) as refused:
        Settings.of(HOME, environment, stored)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_public_address_has_no_slash_at_its_end():
    assert Settings.of(HOME, {"PLOTI_SERVER_PUBLIC_URL": "https://x.org/feeds/"}).public_url == "https://x.org/feeds"
