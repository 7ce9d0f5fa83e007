"""What all commands share: `--home`, `--json`, tables, and the refusal of a command."""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

from cyclopts import Parameter
from rich.console import Console
from rich.table import Table

HOME: Final = Path("ploti-home")
_WIDE: Final = 10_000


class CommandRefused(Exception):
    """A command that cannot be done; the message says what to do."""


@Parameter(name="*")
@dataclass(frozen=True)
class Common:
    """Options of every command that prints."""

    home: Annotated[Path, Parameter(env_var="PLOTI_SERVER_HOME", help="The server's home folder.")] = HOME
    as_json: Annotated[bool, Parameter(name="--json", negative="", help="Print JSON.")] = False


COMMON = Common()


def show(common: Common, data: Any, title: str = "") -> None:
    """Print an answer: JSON, or a list of rows as a table, or the fields of one thing as lines."""
    if common.as_json:
        print(json.dumps(data, ensure_ascii=False, indent=2))
    elif isinstance(data, list):
        _print_rows(data, title)
    else:
        for name, value in data.items():
            say(f"{name}: {as_text(value)}")


def say(line: str) -> None:
    """Print one line as it is."""
    Console(highlight=False, markup=False, soft_wrap=True).print(line)


def as_text(value: Any) -> str:
    """Write a value for a person."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ", ".join(str(item) for item in value) or "-"
    return str(value)


def _print_rows(rows: Sequence[dict[str, Any]], title: str) -> None:
    if not rows:
        say(f"no {title or 'rows'} yet")
        return
    table = Table(box=None, pad_edge=False)
    for name in rows[0]:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*(_plain(as_text(value)) for value in row.values()))
    Console(highlight=False, width=None if sys.stdout.isatty() else _WIDE).print(table)


def _plain(text: str) -> str:
    return text.replace("[", "\\[")
