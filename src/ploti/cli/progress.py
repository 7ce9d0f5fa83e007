"""What a person sees of long work on standard error: a bar on a terminal, lines elsewhere, nothing beside JSON."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Final

from ploti.cli.show import byte_size, printable
from ploti.sync.target import Progress

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import ProgressColumn, Task, TaskID


_BAR_WIDTH: Final = 70


class Lines(Progress):
    """Writes a line for each dataset's step to standard error."""

    def line(self, text: str) -> None:
        """Write a line that a person should see."""
        print(printable(text), file=sys.stderr, flush=True)

    def began(self, dataset_id: str, doing: str, total_bytes: int) -> None:
        """Write what is fetched, where that is known."""
        if total_bytes:
            self.line(f"{dataset_id}: {doing}, {byte_size(total_bytes)}")


class Bar(Progress):
    """Shows a bar for the dataset at hand on a terminal's standard error."""

    def __init__(self, bar: "RichProgress") -> None:
        self._bar = bar
        self._task: TaskID | None = None

    def line(self, text: str) -> None:
        """Write a line above the bar."""
        self._bar.console.print(printable(text), markup=False, highlight=False)

    def began(self, dataset_id: str, doing: str, total_bytes: int) -> None:
        """Start the bar of a dataset."""
        self._task = self._bar.add_task(f"{printable(dataset_id)} {doing}", total=total_bytes or None)

    def moved(self, count: int) -> None:
        """Move the bar by bytes that arrived."""
        if self._task is not None:
            self._bar.advance(self._task, count)

    def ended(self) -> None:
        """Take the bar away."""
        if self._task is not None:
            self._bar.remove_task(self._task)
            self._task = None


@contextmanager
def watching(quiet: bool) -> Iterator[Progress]:
    """Give a bar on a terminal that is wide enough, lines elsewhere, nothing beside JSON."""
    if quiet or not sys.stderr.isatty() or get_terminal_size().columns < _BAR_WIDTH:
        yield Progress() if quiet else Lines()
        return
    from rich.console import Console
    from rich.progress import Progress as RichProgress

    with RichProgress(*bar_columns(), console=Console(stderr=True), transient=True) as bar:
        yield Bar(bar)


def bar_columns() -> "tuple[ProgressColumn, ...]":
    """Make the columns of a bar; where the total is not known, only the bytes that arrived are told."""
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn
    from rich.text import Text

    class Sizes(DownloadColumn):
        def render(self, task: "Task") -> Text:
            return super().render(task) if task.total else Text(byte_size(int(task.completed)))

    class Remaining(TimeRemainingColumn):
        def render(self, task: "Task") -> Text:
            return super().render(task) if task.total else Text()

    return TextColumn("{task.description}"), BarColumn(), Sizes(), Remaining()
