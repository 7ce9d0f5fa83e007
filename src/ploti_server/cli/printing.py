"""What all commands share: `--home`, `--json`, tables, and the refusal of a command."""

import json
import os
import re
import sys
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final

from cyclopts import Parameter, validators
from rich.console import Console
from rich.table import Table
from rich.text import Text

HOME: Final = Path("ploti-home")
NOTHING: Final = "-"
_WIDE: Final = 10_000
_READABLE: Final = 17
_MOMENT: Final = re.compile(r"\b(\d{4}-\d{2}-\d{2})T(\d{2}:\d{2}):\d{2}\.\d{3}Z\b")
_STEERING: Final = ("Cc", "Cs", "Zl", "Zp")
_BIDIRECTIONAL: Final = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


class CommandRefused(Exception):
    """A command that cannot be done; the message says what to do."""


class WrongUsage(CommandRefused):
    """Arguments that do not go together or cannot be read; the message says which do (D13.6)."""


@Parameter(name="*")
@dataclass(frozen=True)
class Common:
    """Options of every command that prints."""

    home: Annotated[Path, Parameter(env_var="PLOTI_SERVER_HOME", help="The server's home folder.")] = HOME
    as_json: Annotated[bool, Parameter(name="--json", negative="", help="Print JSON.")] = False


COMMON = Common()

VersionNumber = Annotated[int, Parameter(validator=validators.Number(gte=1, lte=2**63 - 1))]
"""A number that a version can have."""

Limit = Annotated[int, Parameter(validator=validators.Number(gte=1))]


def read_moment(at: str | None) -> datetime | None:
    """Read the time that `--at` gives, in UTC where it has no zone; raises `WrongUsage`."""
    if at is None:
        return None
    try:
        read = datetime.fromisoformat(at)
        return (read if read.tzinfo else read.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise WrongUsage(f"--at: '{at}' is not a time like 2026-10-18T06:00:00Z or 2026-10-18") from error


def stop_printing() -> None:
    """Send nothing more to an output that nobody reads; what a command does goes on to its end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


class _Output(Console):
    """The output of this process, which its reader may close as `head` does."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        stop_printing()


def show(common: Common, data: Any, title: str = "", *, whole: bool = False) -> None:
    """Print an answer: JSON, or a list of rows as a table, or the fields of one thing as lines.

    `whole` rows hold a dataset's own values: moments are not shortened, and empty cells are never left out.
    """
    if common.as_json:
        print_json(data, indent=2)
    elif isinstance(data, list):
        _print_rows(data, title, whole=whole)
    else:
        for name, value in data.items():
            say(f"{name}: {_to_the_minute(as_text(value))}")


def print_json(data: Any, indent: int | None = None) -> None:
    """Print JSON."""
    try:
        print(json.dumps(data, ensure_ascii=False, indent=indent), flush=True)
    except BrokenPipeError:
        stop_printing()


def counted(count: int, what: str) -> str:
    """Write how many there are of something, like `1 row` and `2 rows`."""
    return f"{count} {what}{'' if count == 1 else 's'}"


def say(line: str) -> None:
    """Print one line as it is."""
    _Output(highlight=False, markup=False, soft_wrap=True).print(line)


def as_text(value: Any) -> str:
    """Write a value for a person, in one line and without what would steer a terminal."""
    if value is None:
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ", ".join(as_text(item) for item in value) or NOTHING
    return "".join(_shown(character) for character in str(value))


def _shown(character: str) -> str:
    if character in "\n\r\t":
        return " "
    steers = character in _BIDIRECTIONAL or unicodedata.category(character) in _STEERING
    return "\N{REPLACEMENT CHARACTER}" if steers else character


def _print_rows(rows: Sequence[dict[str, Any]], title: str, *, whole: bool) -> None:
    """Print a table, or where the terminal is too narrow for that each row as lines of facts."""
    if not rows:
        say(f"no {title or 'rows'}")
        return
    cells = [{name: as_text(value) for name, value in row.items()} for row in rows]
    if not whole:
        cells = [{name: _to_the_minute(text) for name, text in row.items()} for row in cells]
    console = _Output(highlight=False, markup=False, width=None if sys.stdout.isatty() else _WIDE)
    if _least_width(cells) > console.width:
        for row in cells:
            say("\n".join(f"{name}: {text}" for name, text in row.items() if whole or text != NOTHING) + "\n")
        return
    table = Table(box=None, pad_edge=False)
    for number, name in enumerate(cells[0]):
        table.add_column(name, overflow="fold", no_wrap=number == 0)
    for row in cells:
        table.add_row(*(Text(text) for text in row.values()))
    console.print(table)


def _least_width(cells: Sequence[dict[str, str]]) -> int:
    """Tell the width below which a table would break its values into crumbs."""
    widest = [max(len(name), *(len(row[name]) for row in cells)) for name in cells[0]]
    return widest[0] + sum(2 + min(width, _READABLE) for width in widest[1:])


def _to_the_minute(text: str) -> str:
    """Shorten the moments in a text for a person's eye; they stay UTC."""
    return _MOMENT.sub(r"\1 \2Z", text)
