"""What the command prints: the API's answer as JSON, or tables for people that fit the terminal."""

import csv
import json
import sys
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Final, TypeVar, cast

from cyclopts import Parameter

from ploti.contract.events import EventType
from ploti.look.cells import disarmed

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

AsJson = Annotated[
    bool, Parameter(name="--json", negative="", show_default=False, help="Print the API's answer as JSON.")
]
Raw = Annotated[
    bool,
    Parameter(
        name="--raw",
        negative="",
        show_default=False,
        help="Leave text in CSV as it is where a spreadsheet would run it as a formula.",
    ),
]
Names = Annotated[list[str] | None, Parameter(negative="")]
Answer = TypeVar("Answer")

EVENT_PREFIX: Final = "feed.dataset."
_PIPE_WIDTH = 1000
_READABLE_WIDTH = 12
_WORD_WIDTH = 40
"""The longest word that a column is kept whole for, like a dataset id."""
_BIDIRECTIONAL = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def present(answer: Answer, as_json: bool, for_people: Callable[[Answer], None]) -> None:
    """Print an answer exactly as the API gave it, or in the form for people."""
    if as_json:
        print(json.dumps(answer, indent=2))
    else:
        for_people(answer)


def show_error(line: str, error: Mapping[str, str | None], as_json: bool) -> None:
    """Print what went wrong: one line to standard error, or an error object like the API's where answers go."""
    told = json.dumps({"error": {name: value for name, value in error.items() if value is not None}})
    with suppress(OSError):  # where it cannot be printed, the exit code tells it alone
        if not as_json or not _printed(told):
            show_note(line)


def _printed(line: str) -> bool:
    try:
        print(line, flush=True)
    except OSError:
        return False
    return True


def show_note(line: str) -> None:
    """Print a line beside the answer, to standard error."""
    print(printable(line), file=sys.stderr, flush=True)


def show_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows under their column names, or where the terminal is too narrow for that each row as lines of facts.

    The first column is never broken over lines, nor one of short words, like ids that are to be copied.
    """
    from rich.table import Table
    from rich.text import Text

    cells = [[cell(value) for value in row] for row in rows]
    if not cells:
        print("Nothing to show.")
        return
    console = _console()
    whole = [number == 0 or _is_of_words(column) for number, column in enumerate(zip(*cells, strict=True))]
    if _least_width(columns, cells, whole) > console.width:
        for number, row in enumerate(cells):
            if number:
                print()
            show_facts(dict(zip(columns, row, strict=True)))
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column, is_whole in zip(columns, whole, strict=True):
        table.add_column(column, overflow="fold", no_wrap=is_whole)
    for row in cells:
        table.add_row(*(Text(text) for text in row))
    _print(table, console)


def _is_of_words(texts: Sequence[str]) -> bool:
    return all(" " not in text and len(text) <= _WORD_WIDTH for text in texts)


def _least_width(columns: Sequence[str], cells: Sequence[Sequence[str]], whole: Sequence[bool]) -> int:
    """Tell the width below which a table would break its values into crumbs."""
    from rich.cells import cell_len

    widest = [max(map(cell_len, texts)) for texts in zip(columns, *cells, strict=True)]
    least = (width if is_whole else min(width, _READABLE_WIDTH) for width, is_whole in zip(widest, whole, strict=True))
    return sum(least) + 2 * (len(widest) - 1)


def show_csv(columns: Sequence[str], rows: Iterable[Sequence[object]], raw: bool) -> None:
    """Print rows as CSV; without `raw`, text that a spreadsheet would run gets an apostrophe ahead (F080)."""
    lines = csv.writer(sys.stdout, lineterminator="\n")
    lines.writerow(columns)
    for row in rows:
        lines.writerow(_csv_value(value, raw) for value in row)


def _csv_value(value: object, raw: bool) -> object:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        value = " ".join(value)
    text = json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else value
    return text if raw or not isinstance(text, str) else disarmed(text)


def show_facts(facts: Mapping[str, object]) -> None:
    """Print one thing's facts, a line each under its name as a table's column has it."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts.items():
        table.add_row(name.upper(), Text(cell(value)))
    _print(table, _console())


def cell(value: object) -> str:
    """Write a value for people: a dash for none, thousands set apart, lists with commas, no control characters."""
    match value:
        case None | "" | []:
            return "-"
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case list():
            return ", ".join(cell(item) for item in value)
        case {"added": added, "changed": changed, "removed": removed}:
            return f"+{added:,} ~{changed:,} -{removed:,}"
        case Moment():
            return local_time(value) or "-"
        case _:
            return printable(str(value))


def printable(text: str) -> str:
    """Write a text in one line, without what would steer a terminal: control and bidirectional characters."""
    return "".join(_shown(char) for char in text)


def _shown(char: str) -> str:
    if char in "\n\r\t":
        return " "
    steers = char in _BIDIRECTIONAL or unicodedata.category(char) in {"Cc", "Cs", "Zl", "Zp"}
    return "\N{REPLACEMENT CHARACTER}" if steers else char


def number(version: int | None) -> str | None:
    """Write the number of a version, which is no count."""
    return None if version is None else str(version)


class Moment(str):
    """A time as the wire has it; people see it in their own zone."""

    __slots__ = ()


def moment(wire: str | None) -> Moment | None:
    """Take a time of the wire as one."""
    return None if wire is None else Moment(wire)


def wire_time(moment: datetime) -> str:
    """Write a time as the API does."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def local_time(wire: str | None) -> str | None:
    """Write a moment of the wire in the user's time zone, to the minute."""
    return None if wire is None else datetime.fromisoformat(wire).astimezone().strftime("%Y-%m-%d %H:%M")


def counted(count: int, what: str) -> str:
    """Write how many there are of something, like `1 row` and `1,204 rows`."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def byte_size(count: int) -> str:
    """Write a number of bytes, like `1.8 MB`."""
    size, unit = float(count), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if size < 1000:
            break
        size, unit = size / 1000, larger
    return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"


def split_names(texts: Iterable[str] | None) -> list[str]:
    """Read ids given with commas between, or in several options."""
    return [name for text in texts or () for name in text.split(",") if name]


def event_types(texts: Iterable[str] | None) -> list[EventType] | None:
    """Read event types with or without their prefix; None for every type."""
    named = [name if "." in name else f"{EVENT_PREFIX}{name}" for name in split_names(texts)]
    return cast(list[EventType], named) or None


def _console() -> "Console":
    """Give a console as wide as the terminal; wide enough for any line where the output goes elsewhere."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else _PIPE_WIDTH
    return Console(width=width, highlight=False, markup=False, emoji=False)


def _print(shown: "RenderableType", console: "Console") -> None:
    """Print without the padding at the ends of lines."""
    with console.capture() as captured:
        console.print(shown)
    print("\n".join(line.rstrip() for line in captured.get().splitlines()))
