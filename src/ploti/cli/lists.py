"""Lists of the API in one way: a table for people, the API's JSON or CSV for programs, and how to go on (F080)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final

from cyclopts import Parameter

from ploti.cli.show import AsJson, Raw, present, printable, show_csv, show_note, show_table

PageSize = Annotated[int | None, Parameter(help="How many a page.")]
Cursor = Annotated[str | None, Parameter(help="Where to go on, as the page before said.")]
Columns = Mapping[str, Callable[[Any], object]]
"""By column name what a row shows of an item."""


@Parameter(name="*")
@dataclass(frozen=True)
class Output:
    """How a list is printed."""

    json: AsJson = False
    csv: Annotated[bool, Parameter(negative="", show_default=False, help="Print CSV.")] = False
    raw: Raw = False

    @property
    def for_people(self) -> bool:
        """Whether a person reads it."""
        return not (self.json or self.csv)


TABLE: Final = Output()


def show_list(answer: Any, items: str, columns: Columns, out: Output, more: str = "More: add --cursor {}") -> None:
    """Print the items of an answer, and where to go on if there is more; beside CSV that goes to standard error."""
    if out.json:
        present(answer, True, lambda _: None)
        return
    rows = [[of(item) for of in columns.values()] for item in answer[items]]
    cursor = answer.get("nextCursor")
    going_on = None if cursor is None else more.format(printable(cursor))
    if out.csv:
        show_csv([name.lower().replace(" ", "_") for name in columns], rows, out.raw)
        if going_on:
            show_note(going_on)
        return
    show_table(list(columns), rows)
    if going_on:
        print(f"\n{going_on}")
