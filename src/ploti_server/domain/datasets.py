"""Datasets as the catalog defines them (D10.1), with the defaults of their rules."""

from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from typing import Final, Literal

from ploti.contract.values import ColumnType


@dataclass(frozen=True)
class License:
    """Terms that go wherever the data goes (D10.2)."""

    id: str | None = None
    attribution: str | None = None
    url: str | None = None


@dataclass(frozen=True)
class GeometryColumns:
    """Source columns that give the shape: x and y of a point, or one column of well-known text."""

    x: str | None = None
    y: str | None = None
    wkt: str | None = None


@dataclass(frozen=True)
class SourceSpec:
    """Where and how a source is read. `records` names the member that holds the records (D2.10), `encoding` how text is
    written, by Python's name; it is found out where it is not declared.
    """

    kind: str
    url: str
    records: str | None = None
    geometry: GeometryColumns | None = None
    crs: tuple[str, ...] = ()
    repair: bool = True
    encoding: str | None = None


@dataclass(frozen=True)
class ReviewLimits:
    """Thresholds of the hold rules (D6.1); a share is 0 to 1."""

    max_row_drop: float = 0.2
    min_rows_dropped: int = 10
    max_turnover: float = 0.5
    min_turnover: int = 20
    max_rejects: float = 0.02
    max_null_rise: float = 0.3
    max_geometry_loss: float = 0.1
    min_rows_for_shares: int = 20
    release_after_agreeing_checks: int | None = None


AGENTS: Final = ("built-in", "chat", "staff", "nobody")
"""Who can judge a dataset's records (D4.8)."""


@dataclass(frozen=True)
class MatchingLimits:
    """Limits of the matching agent (D4.6 to D4.9)."""

    agent: str = "built-in"
    max_judged: int = 200
    judged_from_first: int = 20_000
    none_judged_above: int = 250_000
    min_confidence: float = 0.85
    discriminating_at_most: int = 50
    near_metres: float = 50.0
    candidates_per_record: int = 20


@dataclass(frozen=True)
class Attachment:
    """A file to deliver with a dataset, by its name on the wire, and where it is read (D5.9).

    `sha256` is its checksum where that is known beforehand: a copy with another one is left out.
    """

    file: str
    url: str
    sha256: str | None = None


@dataclass(frozen=True)
class Dataset:
    """One dataset of the catalog. Column names here are the source's own spelling (D2.9)."""

    id: str
    title: str
    source: SourceSpec
    description: str | None = None
    place: str | None = None
    covers: tuple[str, ...] = ()
    topic: str | None = None
    publisher: str | None = None
    license: License | None = None
    data_atlas_id: str | None = None
    key: tuple[str, ...] = ()
    columns: dict[str, ColumnType] = field(default_factory=dict)
    volatile: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    documents: tuple[str, ...] = ()
    attachments: tuple[Attachment, ...] = ()
    timezone: str = "UTC"
    check_every: timedelta = timedelta(days=1)
    review: ReviewLimits = ReviewLimits()
    matching: MatchingLimits = MatchingLimits()
    deliverable: bool = True
    retired: bool = False

    @cached_property
    def places(self) -> frozenset[str]:
        """The places it applies to: where it is filed and every county it covers."""
        return frozenset((*self.covers, *([self.place] if self.place else [])))

    @property
    def filed_place(self) -> str | None:
        """The place that rows and `place.id` carry: filed county, else the first covered, else none (D10.1)."""
        return self.place or (self.covers[0] if self.covers else None)


@dataclass(frozen=True)
class Topic:
    """A subject that datasets are filed under."""

    id: str
    name: str


CheckOutcome = Literal["released", "held", "waiting", "unchanged", "failed"]
