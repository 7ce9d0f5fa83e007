"""Opens a source's states: kinds of source, and formats told by content (D14)."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from ploti_server.domain.datasets import Dataset
from ploti_server.domain.states import StateUnreadable
from ploti_server.rows.raw import RawState
from ploti_server.sources.content import format_of, open_content
from ploti_server.sources.delimited import open_delimited
from ploti_server.sources.json_records import open_json

Opener = Callable[[Path, str | None, Dataset], RawState]


def open_file(path: Path, file_name: str | None, dataset: Dataset) -> RawState:
    """Open a file state: CSV, TSV, JSON, newline JSON or GeoJSON, also in gzip."""
    content = open_content(path, dataset.source.encoding)
    if format_of(content) == "json":
        return open_json(content, dataset, file_name)
    return open_delimited(content, dataset)


SOURCES: Final[dict[str, Opener]] = {"file": open_file}
"""Each kind of source and what opens its states; a new one is a file here and a line there."""


def open_state(path: Path, file_name: str | None, dataset: Dataset) -> RawState:
    """Open a dataset's raw state, which stays where it is and can be read as often as needed.

    `file_name` is the name that it came with. Raises `StateUnreadable` where it cannot be read whole (D14.2).
    """
    opener = SOURCES.get(dataset.source.kind)
    if opener is None:
        known = " or ".join(sorted(SOURCES))
        raise StateUnreadable(
            f"sources of kind {dataset.source.kind!r} are not read yet: declare `kind: {known}` in the catalog and give"
            " the records as a file"
        )
    return opener(path, file_name, dataset)
