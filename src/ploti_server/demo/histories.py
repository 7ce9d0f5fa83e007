"""The demo's real histories: which states there are, in the order of their days, and what is told about some."""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from ploti_server.pipeline.check import GivenState
from ploti_server.pipeline.history import history_states

DATA: Final = Path(__file__).parent / "data"
CATALOG: Final = DATA / "catalog.yaml"
FOLDERS: Final = {
    "ds_fl_airports": DATA / "fl_airports",
    "ds_fl_counties": DATA / "fl_counties",
    "ds_fl_courts": DATA / "fl_courts",
    "ds_fl_places": DATA / "fl_places",
}
UNDATED_FROM: Final = datetime(2023, 7, 3, tzinfo=UTC)
"""The places name no day; all of their states are later than this one."""

NOTES: Final = {
    ("ds_fl_airports", "003"): "the source only changed how numbers are written: no version",
    ("ds_fl_airports", "006"): "a column arrives (MINOR), and 428 airports get finer coordinates",
    ("ds_fl_counties", "001"): "county 12029 comes four times: held for a person",
    ("ds_fl_counties", "002"): "ids turn from numbers to text (MAJOR): held for a person",
    ("ds_fl_courts", "004"): "197 courts at once, and a collective row split up",
    ("ds_fl_courts", "005"): "a key is corrected: the record keeps its id, matched by content",
    ("ds_fl_courts", "008"): "a column is renamed at the source: the old one is empty now, held for a person",
    ("ds_fl_places", "002"): "no key here: records are carried by their content",
}


@dataclass(frozen=True)
class DemoState:
    """One state of one dataset, and what to say about it."""

    dataset_id: str
    given: GivenState
    note: str | None


def demo_states() -> list[DemoState]:
    """List all states of the four histories, by the day they were read, then by dataset."""
    states = [
        DemoState(dataset_id, given, NOTES.get((dataset_id, given.file.name[:3])))
        for dataset_id, folder in FOLDERS.items()
        for given in history_states(str(folder), UNDATED_FROM if dataset_id == "ds_fl_places" else None, folder)
    ]
    return sorted(states, key=lambda state: (state.given.fetched_at or UNDATED_FROM, state.dataset_id))
