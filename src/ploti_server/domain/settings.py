"""The server's settings: their names, defaults and rules (D13.1). Reading the file and the environment is the edge's."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import urlsplit

PREFIX: Final = "PLOTI_SERVER_"
FILE_NAME: Final = "settings.toml"
Origin = Literal["default", "settings.toml", "environment"]


class SettingsBroken(Exception):
    """A setting that is unknown or wrong; the message says which and what is allowed."""


@dataclass(frozen=True)
class Settings:
    """What a home folder's server runs with. `public_url` is the address that links in events carry (D7.7)."""

    home: Path
    database_url: str
    files_url: str
    public_url: str | None = None

    @classmethod
    def of(
        cls, home: Path, environment: Mapping[str, str] | None = None, stored: Mapping[str, Any] | None = None
    ) -> "Settings":
        """Settle every setting: the environment (`PLOTI_SERVER_<NAME>`) wins over the file, the file over the default.

        Raises `SettingsBroken`.
        """
        home = home.absolute()
        given = given_settings(environment or {}, stored or {})
        values = _defaults(home) | {name: value for name, (value, _) in given.items()}
        return cls(home=home, **values)


def setting_names() -> tuple[str, ...]:
    """List the settings that a file or the environment may give."""
    return tuple(field.name for field in fields(Settings) if field.name != "home")


def _defaults(home: Path) -> dict[str, Any]:
    return {"database_url": f"sqlite:///{home / 'ploti.db'}", "files_url": (home / "files").as_uri()}


def given_settings(environment: Mapping[str, str], stored: Mapping[str, Any]) -> dict[str, tuple[str, Origin]]:
    """Give the settings that differ from their defaults, with where each comes from; raises `SettingsBroken`."""
    names = setting_names()
    for name in stored:
        if name not in names:
            raise SettingsBroken(f"{FILE_NAME}: '{name}' is not a setting; known are {', '.join(names)}")
    found: dict[str, tuple[str, Origin]] = {}
    for name in names:
        value = environment.get(PREFIX + name.upper()) or None
        origin: Origin = "environment" if value is not None else "settings.toml"
        value = stored.get(name) if value is None else value
        if value is not None:
            found[name] = (_checked(name, value, origin), origin)
    return found


def _checked(name: str, value: Any, origin: Origin) -> str:
    shown = PREFIX + name.upper() if origin == "environment" else f"{FILE_NAME}: {name}"
    if not isinstance(value, str) or not value.strip():
        raise SettingsBroken(f"{shown} has to be a text")
    if name != "public_url":
        return value
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise SettingsBroken(f"{shown} has to be an address like https://feeds.example.org")
    return value.rstrip("/")
