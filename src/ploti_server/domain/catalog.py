"""The catalog an operator applies: its YAML read into topics and datasets, refused whole where it is broken (D10.1).

What one catalog would change against the stored one is in `catalog_plan.py`.
"""

import codecs
import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import timedelta
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

import yaml

from ploti.contract.files import ORIGINAL, SOURCE_COPY_PREFIX
from ploti.contract.values import COLUMN_TYPES, ColumnType
from ploti_server.domain.datasets import (
    AGENTS,
    Attachment,
    Dataset,
    GeometryColumns,
    License,
    MatchingLimits,
    ReviewLimits,
    SourceSpec,
    Topic,
)
from ploti_server.domain.fields import (
    Allowed,
    Fields,
    lines_of,
    load_yaml,
    problem_of_text,
    shown,
    with_line,
    yaml_problem,
)
from ploti_server.domain.places import place_named

SOURCE_KINDS: Final = ("file", "arcgis", "socrata", "ckan", "ogcapi", "wfs")
_DATASET_ID: Final = re.compile(r"ds_[a-z0-9_]+")
_TOPIC_ID: Final = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_DURATION: Final = re.compile(r"([1-9][0-9]{0,4})([mhdw])")
_UNITS: Final = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_DURATION_MOST: Final = timedelta(days=366)
_ID_LONGEST: Final = 63
_RESERVED_TOPIC: Final = "none"
_REVIEW: Final = ReviewLimits()
_MATCHING: Final = MatchingLimits()


class CatalogBroken(Exception):
    """A catalog that is refused whole; `problems` has one line for each thing that is wrong, with its place."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


@dataclass(frozen=True)
class Catalog:
    """Topics and datasets in the file's order."""

    topics: tuple[Topic, ...]
    datasets: tuple[Dataset, ...]


def _one_of(allowed: tuple[str, ...]) -> Allowed:
    told = f"allowed are {', '.join(allowed)}" if allowed else "none is defined"
    return lambda value: None if value in allowed else f"'{value}' is unknown; {told}"


def _web_address(value: str) -> str | None:
    if _names_user(value):
        return "carries a user or password, which subscribers would read: leave it out"
    return None if _is_web_address(value) else f"'{value}' is not an http or https address"


def _attachment_name(value: str) -> str | None:
    if value == ORIGINAL or re.fullmatch(rf"{SOURCE_COPY_PREFIX}[A-Za-z0-9._-]{{1,100}}", value):
        return None
    return f"'{value}' has to be {ORIGINAL}, or {SOURCE_COPY_PREFIX} and an id of letters, digits, '.', '_' and '-'"


def _sha256(value: str) -> str | None:
    return None if re.fullmatch("[0-9a-f]{64}", value) else f"'{value}' is no sha256: it has 64 digits from 0 to f"


def _path_or_web_address(value: str) -> str | None:
    if _names_user(value):
        return _web_address(value)
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", value) and not _is_web_address(value):
        return f"'{value}' is neither an http(s) address nor a path beside the catalog file"
    return None


def _is_web_address(value: str) -> bool:
    try:
        parts = urlsplit(value)
    except ValueError:  # like http://[::1
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)


def _names_user(value: str) -> bool:
    """Tell whether an address has credentials in it; they come from the environment only (D14.4)."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*@", value) is not None


def _crs(knows_crs: Callable[[str], bool]) -> Allowed:
    def told(value: str) -> str | None:
        if not re.fullmatch(r"[A-Za-z]+:[A-Za-z0-9.]+", value):
            return f"'{value}' is not a coordinate system; write it like EPSG:4326"
        return None if knows_crs(value) else f"'{value}' is no known coordinate system with a way to lon/lat"

    return told


_ASCII: Final = bytes(range(32, 127))
_WIDE: Final = ("utf-16", "utf-32")
_NO_FILES: Final = ("iso2022", "hz", "unicode_escape", "raw_unicode_escape", "idna", "punycode")
"""Encodings in which a quote or comma may be part of another character, or that no file is written in."""


def _encoding(value: str) -> str | None:
    try:
        name = codecs.lookup(value).name
        fine = name.startswith(_WIDE) or (not name.startswith(_NO_FILES) and _ASCII.decode(name) == _ASCII.decode())
    except (LookupError, UnicodeError, ValueError):
        fine = False
    return (
        None
        if fine
        else f"'{value}' is no encoding of text files; use a name like utf-8, cp1252, iso-8859-2, shift_jis"
    )


def _timezone(value: str) -> str | None:
    try:
        ZoneInfo(value)
    except (ValueError, OSError, LookupError):
        return f"'{value}' is not a time zone; use a name like America/New_York"
    return None


def _dataset_id(value: str) -> str | None:
    fine = _DATASET_ID.fullmatch(value) and len(value) <= _ID_LONGEST
    return None if fine else f"'{value}' is no id; use ds_ and lower-case letters, digits, _ ({_ID_LONGEST} at most)"


def _topic_id(value: str) -> str | None:
    fine = _TOPIC_ID.fullmatch(value) and len(value) <= _ID_LONGEST and value != _RESERVED_TOPIC
    return None if fine else f"'{value}' is no topic id; use lower-case words with hyphens ({_ID_LONGEST} at most)"


def _filing_place(value: str) -> str | None:
    place = place_named(value)
    if place is not None and place.kind != "state_counties":
        return None
    return f"'{value}' is no place to file under; use a county like fl-county-orange, a state like fl, or us"


def _county(value: str) -> str | None:
    place = place_named(value)
    return None if place is not None and place.kind == "county" else f"'{value}' is no county like fl-county-orange"


def _stored_address(url: str | None, folder: Path) -> str:
    if url is None or _is_web_address(url):
        return url or ""
    return str(folder / url)


def read_duration(text: str) -> timedelta | None:
    """Read a duration like `30m`, `6h`, `1d` or `2w`; None where it is malformed or longer than a leap year."""
    found = _DURATION.fullmatch(text)
    length = timedelta(**{_UNITS[found[2]]: int(found[1])}) if found else None
    return length if length is not None and length <= _DURATION_MOST else None


def _duration(value: str) -> str | None:
    return None if read_duration(value) else f"'{value}' is no duration; write 6h, 1d or 2w (366 days at most)"


def _license(part: Fields | None) -> License | None:
    if part is None:
        return None
    found = License(part.text("id"), part.text("attribution"), part.text("url", allowed=_web_address))
    part.close()
    return found


def _geometry(part: Fields | None) -> GeometryColumns | None:
    if part is None:
        return None
    found = GeometryColumns(part.text("x"), part.text("y"), part.text("wkt"))
    part.close()
    if (found.x is None) != (found.y is None) or (found.x is None) == (found.wkt is None):
        part.problems.append(f"{part.path}: give either x and y, or wkt")
    return found


@dataclass(frozen=True)
class _Beside:
    """What a dataset's entry is read with: the catalog file's folder, the limits it gives none for, the known CRS."""

    folder: Path
    review: ReviewLimits
    matching: MatchingLimits
    knows_crs: Callable[[str], bool]


def _source(part: Fields, beside: _Beside) -> SourceSpec:
    kind = part.text("kind", required=True, allowed=_one_of(SOURCE_KINDS)) or "file"
    place = _path_or_web_address if kind == "file" else _web_address
    url = part.text("url", required=True, allowed=place)
    if isinstance(part.take("crs"), str):
        part.raw["crs"] = [part.raw["crs"]]
    found = SourceSpec(
        kind=kind,
        url=_stored_address(url, beside.folder),
        records=part.text("records"),
        geometry=_geometry(part.part("geometry")),
        crs=part.texts("crs", allowed=_crs(beside.knows_crs)),
        repair=part.flag("repair", True),
        encoding=(encoding := part.text("encoding", allowed=_encoding)) and codecs.lookup(encoding).name,
    )
    part.close()
    return found


_DECLARED: Final = tuple(kind for kind in COLUMN_TYPES if kind != "geometry")
"""Types that a column can be declared with; where shapes come from is told by the source's `geometry`."""


def _columns(part: Fields | None) -> dict[str, ColumnType]:
    if part is None or part.raw is None:
        return {}
    typed: dict[str, ColumnType] = {}
    for name in part.raw:
        if not isinstance(name, str):
            part.note(str(name), f"the name is {shown(name)}, not a text: put it in quotes")
            continue
        if wrong := problem_of_text(name):
            part.note(shown(name), f"the name {wrong}")
            continue
        given = part.text(name, required=True, allowed=_one_of(_DECLARED))
        typed.update((name, kind) for kind in _DECLARED if kind == given)
    return typed


_SHARES: Final = frozenset(
    {"max_row_drop", "max_turnover", "max_rejects", "max_null_rise", "max_geometry_loss", "min_confidence"}
)
_COUNT_MOST: Final = 1_000_000_000


def _numbers(part: Fields, defaults: ReviewLimits | MatchingLimits) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for limit in fields(defaults):
        default = getattr(defaults, limit.name)
        if isinstance(default, str):
            continue
        whole = not isinstance(default, float)
        least = 1 if default is None else 0
        found[limit.name] = part.number(limit.name, default, least, 1 if limit.name in _SHARES else _COUNT_MOST, whole)
    return found


def _review(part: Fields | None, defaults: ReviewLimits) -> ReviewLimits:
    if part is None:
        return defaults
    found = ReviewLimits(**_numbers(part, defaults))
    part.close()
    return found


def _matching(part: Fields | None, defaults: MatchingLimits) -> MatchingLimits:
    if part is None:
        return defaults
    agent = part.text("agent", allowed=_one_of(AGENTS)) or defaults.agent
    found = MatchingLimits(agent=agent, **_numbers(part, defaults))
    part.close()
    return found


def _check_every(part: Fields | None) -> timedelta:
    every = read_duration(part.text("every", allowed=_duration) or "") if part else None
    if part is not None:
        part.close()
    return every or timedelta(days=1)


def _attachments(part: Fields, folder: Path) -> tuple[Attachment, ...]:
    found: list[Attachment] = []
    for i, item in enumerate(part.items("attachments")):
        one = Fields(item, f"{part.path}.attachments[{i}]", part.problems)
        file = one.text("file", required=True, allowed=_attachment_name)
        url = one.text("url", required=True, allowed=_path_or_web_address)
        sha256 = one.text("sha256", allowed=_sha256)
        one.close()
        if file in [attachment.file for attachment in found]:
            one.note("file", f"'{file}' is named twice")
        found.append(Attachment(file or "", _stored_address(url, folder), sha256))
    return tuple(found)


def _dataset(part: Fields, topics: tuple[str, ...], beside: _Beside) -> Dataset:
    source = part.part("source")
    if source is None and part.raw is not None:
        part.note("source", "is missing")
    found = Dataset(
        id=part.text("id", required=True, allowed=_dataset_id) or "",
        title=part.text("title", required=True) or "",
        description=part.text("description"),
        place=part.text("place", allowed=_filing_place),
        covers=part.texts("covers", allowed=_county),
        topic=part.text("topic", allowed=_one_of(topics)),
        publisher=part.text("publisher"),
        license=_license(part.part("license")),
        data_atlas_id=part.text("data_atlas_id"),
        source=_source(source, beside) if source else SourceSpec("file", ""),
        key=part.texts("key"),
        columns=_columns(part.part("columns")),
        volatile=part.texts("volatile"),
        drop=part.texts("drop"),
        documents=part.texts("documents"),
        attachments=_attachments(part, beside.folder),
        timezone=part.text("timezone", allowed=_timezone) or "UTC",
        check_every=_check_every(part.part("check")),
        review=_review(part.part("review"), beside.review),
        matching=_matching(part.part("matching"), beside.matching),
        deliverable=part.flag("deliverable", True),
        retired=part.flag("retired", False),
    )
    part.close()
    _check_columns(part, found)
    return found


def _check_columns(part: Fields, dataset: Dataset) -> None:
    for name in dataset.key:
        if name in dataset.drop:
            part.note("key", f"'{name}' is dropped too: a key column has to be delivered")
        if name in dataset.volatile:
            part.note("key", f"'{name}' is volatile too: a key column has to be compared")


def _topics(part: Fields) -> tuple[Topic, ...]:
    found: list[Topic] = []
    for i, item in enumerate(part.items("topics")):
        one = Fields(item, f"topics[{i}]", part.problems)
        topic_id = one.text("id", required=True, allowed=_topic_id)
        name = one.text("name", required=True)
        one.close()
        if topic_id and topic_id in [topic.id for topic in found]:
            one.note("id", f"'{topic_id}' is named twice")
        found.append(Topic(topic_id or "", name or ""))
    return tuple(found)


def parse_catalog(
    text: str,
    file: Path,
    review: ReviewLimits = _REVIEW,
    matching: MatchingLimits = _MATCHING,
    knows_crs: Callable[[str], bool] = lambda _: True,
) -> Catalog:
    """Read a catalog's text; relative addresses lie beside `file`. Raises `CatalogBroken` with every problem.

    `review` and `matching` are the limits of datasets that give none of their own; `knows_crs` tells whether a
    coordinate system is one that states can be read in.
    """
    beside = _Beside(file.absolute().parent, review, matching, knows_crs)
    try:
        raw = load_yaml(text)
    except yaml.YAMLError as broken:
        raise CatalogBroken((f"the file is not YAML: {yaml_problem(broken)}",)) from None
    problems: list[str] = []
    part = Fields(raw, "", problems)
    topics = _topics(part)
    datasets: list[Dataset] = []
    for i, item in enumerate(part.items("datasets")):
        one = Fields(item, f"datasets[{i}]", problems)
        dataset = _dataset(one, tuple(topic.id for topic in topics), beside)
        if dataset.id and dataset.id in [earlier.id for earlier in datasets]:
            one.note("id", f"'{dataset.id}' is named twice")
        datasets.append(dataset)
    if part.raw is not None and "datasets" not in part.raw:
        part.note("datasets", "is missing")
    part.close()
    if problems:
        lines = lines_of(text)
        raise CatalogBroken(tuple(with_line(problem, lines) for problem in problems))
    return Catalog(topics, tuple(datasets))
