"""The server's settings: their names, defaults and rules (D13.1). Reading the file and the environment is the edge's.

`review` and `matching` are the defaults of every dataset; the catalog overrides them. A group's settings carry its
name: `review_max_row_drop` in the environment or flat in the file, or `max_row_drop` under `[review]` in the file.
"""

import math
import re
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, Literal, get_args, get_type_hints
from urllib.parse import quote, urlsplit

from ploti_server.domain.chat import Chat
from ploti_server.domain.datasets import AGENTS, MatchingLimits, ReviewLimits
from ploti_server.domain.notices import Notify
from ploti_server.domain.retention import RetentionLimits

PREFIX: Final = "PLOTI_SERVER_"
FILE_NAME: Final = "settings.toml"
Origin = Literal["default", "settings.toml", "environment"]

_KEY_LEAST: Final = 32
_ADDRESSES: Final = ("public_url", "chat_url", "notify_url")
_SWITCH: Final = {"true": True, "false": False}
_SHARES: Final = re.compile(r"review_max_\w+|matching_min_confidence")


class SettingsBroken(Exception):
    """A setting that is unknown or wrong; the message says which and what is allowed."""


def _whole(default: int | None, least: int = 1, most: int | None = None) -> Any:
    return field(default=default, metadata={"least": least, "most": most})


@dataclass(frozen=True)
class Settings:
    """What a home folder's server runs with. `public_url` is the address that links in events carry (D7.7).

    `memory_mb` is what one piece of whole-table work may use before it spills to disk; `threads` None: all cores.
    `webhooks_key` is what webhooks' secrets are derived from, None: a file in the home folder; machines that share a
    database share it. `webhooks_allow_loopback` lets webhooks call this machine, for development only (D9.1).
    """

    home: Path
    database_url: str
    files_url: str
    public_url: str | None = None
    host: str = "127.0.0.1"
    port: int = _whole(8731, most=65_535)
    memory_mb: int = _whole(768, least=64)
    threads: int | None = _whole(None)
    requests_per_minute: int = _whole(120)
    strict_requests_per_minute: int = _whole(20)
    webhooks_key: str | None = None
    webhooks_allow_loopback: bool = False
    review: ReviewLimits = ReviewLimits()
    matching: MatchingLimits = MatchingLimits()
    retention: RetentionLimits = RetentionLimits()
    chat: Chat = Chat()
    notify: Notify = Notify()

    @classmethod
    def of(
        cls, home: Path, environment: Mapping[str, str] | None = None, stored: Mapping[str, Any] | None = None
    ) -> "Settings":
        """Settle every setting: the environment (`PLOTI_SERVER_<NAME>`) wins over the file, the file over the default.

        Raises `SettingsBroken`.
        """
        home = home.absolute()
        defaults = cls(home, f"sqlite:///{quote(str(home / 'ploti.db'))}", (home / "files").as_uri())
        given = given_settings(environment or {}, stored or {})
        values = {name: value for name, (value, _) in given.items() if name in _PLAIN}
        for group in _GROUPS:
            part = {
                name.removeprefix(group + "_"): value for name, (value, _) in given.items() if _GROUP_OF[name] == group
            }
            values[group] = replace(getattr(defaults, group), **part)
        return replace(defaults, **values)

    @property
    def links_address(self) -> str:
        """Give the address in links that no call asked for, as webhooks have them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return self.public_url or f"http://{host}:{self.port}"


@dataclass(frozen=True)
class _Rule:
    """What a setting takes: the type of its value, and the least and most of a number."""

    kind: type
    least: float | None = None
    most: float | None = None


def setting_names() -> tuple[str, ...]:
    """List the settings that a file or the environment may give."""
    return tuple(_RULES)


def setting_value(settings: Settings, name: str) -> Any:
    """Give a setting's value by the name that a file or the environment gives it."""
    group = _GROUP_OF[name]
    return getattr(getattr(settings, group), name.removeprefix(group + "_")) if group else getattr(settings, name)


def given_settings(environment: Mapping[str, str], stored: Mapping[str, Any]) -> dict[str, tuple[Any, Origin]]:
    """Give the settings that differ from their defaults, with where each comes from; raises `SettingsBroken`."""
    flat = _flat(stored)
    in_environment = {
        name.removeprefix(PREFIX).lower(): text
        for name, text in environment.items()
        if name.startswith(PREFIX) and name != PREFIX + "HOME" and text
    }
    _require_known(flat, lambda name: f"{FILE_NAME}: '{name}'")
    _require_known(in_environment, _variable)
    found: dict[str, tuple[Any, Origin]] = {}
    for name, rule in _RULES.items():
        if name in in_environment:
            found[name] = (_read(name, rule, in_environment[name], _variable(name)), "environment")
        elif name in flat:
            found[name] = (_checked(name, rule, flat[name], f"{FILE_NAME}: {name}"), "settings.toml")
    return found


def _variable(name: str) -> str:
    return PREFIX + name.upper()


def _flat(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Put the members of a group's table beside the others, under their full names."""
    flat: dict[str, Any] = {}
    for name, value in stored.items():
        members = {f"{name}_{member}": v for member, v in value.items()} if _is_group(name, value) else {name: value}
        for twice in members.keys() & flat.keys():
            raise SettingsBroken(f"{FILE_NAME}: {twice} is given twice")
        flat |= members
    return flat


def _is_group(name: str, value: Any) -> bool:
    return name in _GROUPS and isinstance(value, Mapping)


def _require_known(names: Iterable[str], shown: Callable[[str], str]) -> None:
    for name in names:
        if name not in _RULES:
            near = get_close_matches(name, _RULES, 1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(_RULES)}"
            raise SettingsBroken(f"{shown(name)} is not a setting; {hint}")


def _read(name: str, rule: _Rule, text: str, shown: str) -> Any:
    """Read the text of an environment variable."""
    if rule.kind is str:
        return _checked(name, rule, text, shown)
    readers: dict[type, Callable[[str], Any]] = {int: int, float: float, bool: _SWITCH.__getitem__}
    try:
        value = readers[rule.kind](text.strip())
    except (ValueError, KeyError):
        value = text
    return _checked(name, rule, value, shown)


def _checked(name: str, rule: _Rule, value: Any, shown: str) -> Any:
    if rule.kind is str:
        return _text(name, value, shown)
    if rule.kind is bool:
        if not isinstance(value, bool):
            raise SettingsBroken(f"{shown} has to be true or false, not {value!r}")
        return value
    kinds = (int, float) if rule.kind is float else (int,)
    if isinstance(value, bool) or not isinstance(value, kinds) or not _within(rule, value):
        raise SettingsBroken(f"{shown} has to be {_wanted(rule)}, not {value!r}")
    return rule.kind(value)


def _within(rule: _Rule, value: float) -> bool:
    above = rule.least is None or value >= rule.least
    return math.isfinite(value) and above and (rule.most is None or value <= rule.most)


def _wanted(rule: _Rule) -> str:
    kind = "a whole number" if rule.kind is int else "a number"
    return f"{kind} from {rule.least:g} on" if rule.most is None else f"{kind} from {rule.least:g} to {rule.most:g}"


def _text(name: str, value: Any, shown: str) -> str:
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise SettingsBroken(f"{shown} has to be a text")
    if name == "webhooks_key" and len(value) < _KEY_LEAST:
        raise SettingsBroken(f"{shown} has to be a random text of {_KEY_LEAST} characters or more")
    if name == "matching_agent" and value not in AGENTS:
        raise SettingsBroken(f"{shown} has to be one of {', '.join(AGENTS)}")
    return _address(value, shown) if name in _ADDRESSES else value


def _address(value: str, shown: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise SettingsBroken(f"{shown} has to be an address like https://feeds.example.org")
    return value.rstrip("/")


def _rule(name: str, kind: Any, metadata: Mapping[str, Any]) -> _Rule:
    plain = next(part for part in (get_args(kind) or (kind,)) if part is not types.NoneType)
    if plain in (str, bool):
        return _Rule(plain)
    return _Rule(plain, metadata.get("least", 0), metadata.get("most", 1 if _SHARES.fullmatch(name) else None))


def _rules_of(kind: type, prefix: str = "") -> dict[str, _Rule]:
    hints = get_type_hints(kind)
    found: dict[str, _Rule] = {}
    for part in fields(kind):
        name = prefix + part.name
        if is_dataclass(hints[part.name]):
            found |= _rules_of(hints[part.name], name + "_")
        elif part.name != "home":
            found[name] = _rule(name, hints[part.name], part.metadata)
    return found


_GROUPS: Final = ("review", "matching", "retention", "chat", "notify")
_RULES: Final = _rules_of(Settings)
_GROUP_OF: Final = {name: next((g for g in _GROUPS if name.startswith(g + "_")), None) for name in _RULES}
_PLAIN: Final = frozenset(name for name, group in _GROUP_OF.items() if group is None)
