"""Every hard case of following a feed, each as a story told on a `Feed`.

A story publishes and yields, each time, what a target must hold once it was synced: by dataset, version and state. The
rows that belong to a version are in `Feed.snapshots`.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date, datetime
from typing import Final

from ploti.contract.events import ResyncReason
from ploti.contract.values import ColumnType
from ploti.sync.plan import State
from ploti.testing.feed import SUBSCRIPTION, Feed, Row, Rows, record_id

Expected = Mapping[str, tuple[int | None, State]]
Story = Callable[[Feed], Iterator[Expected]]

A: Final = "ds_orange_permits"
B: Final = "ds_orange_zoning"
PERMITS: Final[dict[str, ColumnType]] = {"number": "string", "value": "number", "units": "integer"}
ZONES: Final[dict[str, ColumnType]] = {"zone": "string", "geometry": "geometry"}
POINT: Final = bytes.fromhex("0101000000000000000000F03F0000000000000040")


def permit(number: int, value: float = 10.5) -> Row:
    """Give a permit's row."""
    return {"number": f"P-{number:04d}", "value": value, "units": number}


def permits(*numbers: int) -> dict[str, Row]:
    """Give permits by record id."""
    return {record_id(number): permit(number) for number in numbers}


def zones(*numbers: int) -> dict[str, Row]:
    """Give zones with shapes by record id."""
    return {record_id(number): {"zone": f"R-{number}", "geometry": POINT} for number in numbers}


def _both(feed: Feed) -> None:
    feed.add(A, PERMITS, permits(*range(20)), title="Permits")
    feed.add(B, ZONES, zones(*range(5)), title="Zoning")


def first_load(feed: Feed) -> Iterator[Expected]:
    """Two datasets are loaded from the manifest; a snapshot may have several parts, or no rows."""
    _both(feed)
    feed.reload(A, permits(*range(20)), "previous_unavailable", parts=3)
    feed.add("ds_empty", PERMITS, {})
    yield {A: (2, "ok"), B: (1, "ok"), "ds_empty": (1, "ok")}


def changes(feed: Feed) -> Iterator[Expected]:
    """Added, changed and removed records, in one version and then in three at once."""
    _both(feed)
    yield {A: (1, "ok"), B: (1, "ok")}
    feed.update(A, put={**permits(30), record_id(1): permit(1, -0.5)}, drop=[record_id(2)])
    yield {A: (2, "ok"), B: (1, "ok")}
    feed.update(A, put=permits(31), drop=[record_id(30)])
    feed.update(B, put=zones(9))
    feed.update(A, put=permits(30))
    feed.update(A, drop=[record_id(31)])
    yield {A: (5, "ok"), B: (2, "ok")}


def many_changes(feed: Feed) -> Iterator[Expected]:
    """A chain that brings more changes than there are rows ends at the same table."""
    _both(feed)
    yield {A: (1, "ok"), B: (1, "ok")}
    for value in range(4):
        feed.update(A, put={record_id(number): permit(number, value) for number in range(15)})
    yield {A: (5, "ok"), B: (1, "ok")}


def empty_and_back(feed: Feed) -> Iterator[Expected]:
    """A version of deletes only leaves an empty table; rows come back (F048)."""
    _both(feed)
    yield {A: (1, "ok"), B: (1, "ok")}
    feed.update(A, drop=[record_id(number) for number in range(20)])
    yield {A: (2, "ok"), B: (1, "ok")}
    feed.update(A, put=permits(1, 2))
    feed.update(B)
    yield {A: (3, "ok"), B: (2, "ok")}


def new_column(feed: Feed) -> Iterator[Expected]:
    """A MINOR change brings its column with the changes, backfill and a moved constant (D5.8)."""
    _both(feed)
    yield {A: (1, "ok"), B: (1, "ok")}
    wider: dict[str, ColumnType] = {**PERMITS, "owner": "string", "read_on": "date"}
    owners: Rows = {record_id(1): {**permit(1, 2.5), "owner": "Ann", "read_on": date(2026, 1, 1)}}
    day = {"read_on": date(2026, 1, 1)}
    feed.update(A, put=owners, columns=wider, fill=lambda id_: {"owner": id_[-3:], **day}, constants=day)
    yield {A: (2, "ok"), B: (1, "ok")}
    feed.update(A, constants={"read_on": date(2026, 1, 2)})
    yield {A: (3, "ok"), B: (1, "ok")}


def _reason(reason: ResyncReason) -> Story:
    def told(feed: Feed) -> Iterator[Expected]:
        _both(feed)
        yield {A: (1, "ok"), B: (1, "ok")}
        feed.reload(A, permits(*range(5, 30)), reason)
        yield {A: (2, "ok"), B: (1, "ok")}
        feed.update(A, put=permits(40))
        yield {A: (3, "ok"), B: (1, "ok")}

    told.__doc__ = f"A reload with the reason {reason}, then changes again."
    return told


def ids_replaced(feed: Feed) -> Iterator[Expected]:
    """Every record gets another id; the table has the new ones only."""
    _both(feed)
    yield {A: (1, "ok"), B: (1, "ok")}
    moved = {record_id(number): record_id(number + 100) for number in range(20)}
    rows = {moved[id_]: row for id_, row in feed.current(A).rows.items()}
    feed.reload(A, rows, "record_ids_changed", id_map=moved)
    yield {A: (2, "ok"), B: (1, "ok")}


def major_paused(feed: Feed) -> Iterator[Expected]:
    """A MAJOR change keeps its dataset at the last version before it; the other goes on (D11.4)."""
    _both(feed)
    yield {A: (1, "ok"), B: (1, "ok")}
    feed.update(A, put=permits(21))
    narrower: dict[str, ColumnType] = {"number": "string", "value": "string"}
    rows: Rows = {record_id(1): {"number": "P-1", "value": "ten"}}
    feed.reload(A, rows, "schema_changed", columns=narrower)
    feed.update(B, put=zones(7))
    yield {A: (2, "paused"), B: (2, "ok")}
    feed.update(A, put={record_id(2): {"number": "P-2", "value": "two"}})
    feed.update(B, drop=[record_id(7)])
    yield {A: (2, "paused"), B: (3, "ok")}


def skipped_numbers(feed: Feed) -> Iterator[Expected]:
    """Numbers skip; the chain of previous versions does not."""
    _both(feed)
    yield {A: (1, "ok"), B: (1, "ok")}
    feed.update(A, put=permits(21), version=4)
    feed.update(A, put=permits(22), version=9)
    yield {A: (9, "ok"), B: (1, "ok")}


def released_again(feed: Feed) -> Iterator[Expected]:
    """A held version is released again under another number, as a reload."""
    _both(feed)
    feed.update(A, put=permits(21))
    yield {A: (2, "ok"), B: (1, "ok")}
    feed.api.keep(A, 2, "released_again")
    yield {A: (2, "ok"), B: (1, "ok")}
    feed.reload(A, permits(*range(22)), "previous_unavailable", version=3, previous=2)
    yield {A: (3, "ok"), B: (1, "ok")}


def another_previous(feed: Feed) -> Iterator[Expected]:
    """An update on top of a version that never came is a reload from the current version."""
    _both(feed)
    yield {A: (1, "ok"), B: (1, "ok")}
    feed.update(A, put=permits(21))
    feed.api.state.subscriptions[SUBSCRIPTION].events.pop()
    feed.update(A, put=permits(22))
    yield {A: (3, "ok"), B: (1, "ok")}


def leaves_and_returns(feed: Feed) -> Iterator[Expected]:
    """Rows of a dataset that left stay; when it joins again they are replaced."""
    _both(feed)
    yield {A: (1, "ok"), B: (1, "ok")}
    feed.api.change_dataset(A, covered=False)
    feed.update(B, put=zones(8))
    yield {A: (1, "left"), B: (2, "ok")}
    feed.reload(A, permits(1, 2, 3), "previous_unavailable")
    yield {A: (1, "left"), B: (2, "ok")}
    feed.api.change_dataset(A, covered=True)
    yield {A: (2, "ok"), B: (2, "ok")}
    feed.update(A, put=permits(4))
    yield {A: (3, "ok"), B: (2, "ok")}


def leaves_while_away(feed: Feed) -> Iterator[Expected]:
    """A dataset that left and joined again between two syncs ends at its newest version."""
    _both(feed)
    yield {A: (1, "ok"), B: (1, "ok")}
    feed.update(A, put=permits(21))
    feed.api.change_dataset(A, deliverable=False)
    feed.api.change_dataset(A, deliverable=True)
    feed.update(A, put=permits(22))
    feed.update(B, put=zones(8))
    feed.api.change_dataset(B, deliverable=False)
    yield {A: (3, "ok"), B: (1, "left")}


def refused_before_leaving(feed: Feed) -> Iterator[Expected]:
    """A version that is refused says that the dataset is leaving; its `removed` comes later."""
    _both(feed)
    yield {A: (1, "ok"), B: (1, "ok")}
    feed.update(A, put=permits(21))
    feed.update(B, put=zones(8))
    feed.api.fail_next(f"datasets/{A}", 409, "not_subscribed", times=9)
    yield {A: (1, "leaving"), B: (2, "ok")}
    feed.api.change_dataset(A, covered=False)
    yield {A: (1, "left"), B: (2, "ok")}


def past_retention(feed: Feed) -> Iterator[Expected]:
    """A version that answers 410 is passed over for the current one."""
    _both(feed)
    yield {A: (1, "ok"), B: (1, "ok")}
    feed.update(A, put=permits(21))
    feed.update(A, put=permits(22))
    feed.api.keep(A, 2, "pruned")
    yield {A: (3, "ok"), B: (1, "ok")}


def rebuilding(feed: Feed) -> Iterator[Expected]:
    """A current version whose files are being rebuilt leaves its dataset behind until they are back (D11.4)."""
    _both(feed)
    yield {A: (1, "ok"), B: (1, "ok")}
    feed.update(A, put=permits(21))
    feed.update(B, put=zones(8))
    feed.api.keep(A, 2, "rebuilding")
    yield {A: (1, "behind"), B: (2, "ok")}
    yield {A: (1, "behind"), B: (2, "ok")}
    feed.api.rebuild(A, 2)
    yield {A: (2, "ok"), B: (2, "ok")}


def rebuilding_at_first(feed: Feed) -> Iterator[Expected]:
    """The same at the first load."""
    _both(feed)
    feed.api.keep(A, 1, "rebuilding")
    yield {A: (None, "behind"), B: (1, "ok")}
    feed.api.rebuild(A, 1)
    yield {A: (1, "ok"), B: (1, "ok")}


def expired_cursor(feed: Feed) -> Iterator[Expected]:
    """A cursor past retention starts again from the manifest, loading what differs and leaving what left."""
    _both(feed)
    feed.add("ds_gone", PERMITS, permits(1))
    yield {A: (1, "ok"), B: (1, "ok"), "ds_gone": (1, "ok")}
    feed.update(A, put=permits(21))
    feed.api.change_dataset("ds_gone", covered=False)
    feed.update(A, put=permits(22))
    log = feed.api.state.subscriptions[SUBSCRIPTION]
    feed.api.prune_events(SUBSCRIPTION, log.newest)
    yield {A: (3, "ok"), B: (1, "ok"), "ds_gone": (1, "left")}
    feed.update(B, put=zones(8))
    yield {A: (3, "ok"), B: (2, "ok"), "ds_gone": (1, "left")}


def file_in_trouble(feed: Feed) -> Iterator[Expected]:
    """A file that cannot be had leaves its dataset behind, the other goes on, and the next run makes it good (F053)."""
    _both(feed)
    yield {A: (1, "ok"), B: (1, "ok")}
    feed.update(A, put=permits(21))
    feed.update(B, put=zones(8))
    feed.api.fail_next(f"^/files/{A}/2/.*changes", 500, times=6)
    yield {A: (1, "behind"), B: (2, "ok")}
    yield {A: (2, "ok"), B: (2, "ok")}


def links_expire(feed: Feed) -> Iterator[Expected]:
    """Links that expire in the middle are asked for anew and the download goes on (F043)."""
    feed.add(A, PERMITS, permits(*range(300)))
    feed.reload(A, permits(*range(300)), "previous_unavailable", parts=3)
    feed.api.cut_next_download(700, pattern="part-0001")
    feed.api.refuse_next_link()
    yield {A: (2, "ok")}


def torn_downloads(feed: Feed) -> Iterator[Expected]:
    """Connections that break, and bytes that are wrong once, cost a repeat and nothing else."""
    feed.add(A, PERMITS, permits(*range(50)))
    feed.api.cut_next_download(300, pattern="snapshot", times=3)
    feed.api.drop_next("^/files/.*snapshot")
    feed.api.corrupt_next_download(pattern="snapshot")
    yield {A: (1, "ok")}


def waits_for_first(feed: Feed) -> Iterator[Expected]:
    """A dataset without a version is followed until its first one comes."""
    feed.add(A, PERMITS)
    yield {A: (None, "waiting")}
    feed.reload(A, permits(1, 2), "first_version", columns=PERMITS)
    yield {A: (1, "ok")}


def held_and_stale(feed: Feed) -> Iterator[Expected]:
    """`delayed` and `stale` move no rows."""
    _both(feed)
    yield {A: (1, "ok"), B: (1, "ok")}
    feed.api.hold(A)
    stale = {"datasetId": B, "reason": "check_overdue", "lastCheckedAt": None}
    feed.api.append_event(SUBSCRIPTION, "feed.dataset.stale", stale)
    yield {A: (1, "ok"), B: (1, "ok")}


def service_in_trouble(feed: Feed) -> Iterator[Expected]:
    """Refusals that pass, on each kind of call, and more events than a page holds."""
    _both(feed)
    feed.api.fail_next("/manifest", 503, "plan_unavailable")
    feed.api.fail_next("/files/", 503)
    yield {A: (1, "ok"), B: (1, "ok")}
    feed.update(A, put=permits(21))
    stale = {"datasetId": B, "reason": "check_overdue", "lastCheckedAt": None}
    for _ in range(600):
        feed.api.append_event(SUBSCRIPTION, "feed.dataset.stale", stale)
    feed.update(B, put=zones(8))
    feed.api.fail_next("/events", 429, "rate_limited", headers={"retry-after": "0"})
    feed.api.drop_next(f"datasets/{A}/versions/2$")
    feed.api.fail_next(f"datasets/{B}/versions/2$", 500, body=b"<html>")
    yield {A: (2, "ok"), B: (2, "ok")}


HOSTILE_NAMES: Final = ("group", 'a"b', "x; drop table t;--", "%s", ":p", "a\nb", "select", "naïve", "$1", "'")


def hostile_names(feed: Feed) -> Iterator[Expected]:
    """Column names that would break SQL built carelessly (F070)."""
    columns: dict[str, ColumnType] = dict.fromkeys(HOSTILE_NAMES, "string")
    rows: Rows = {record_id(at): {name: f"{name} {at}" for name in columns} for at in range(3)}
    feed.add(A, columns, rows)
    yield {A: (1, "ok")}
    wider: dict[str, ColumnType] = {**columns, 'or "1"=1': "integer"}
    feed.update(
        A,
        put={record_id(7): {**dict.fromkeys(columns, "'; --"), 'or "1"=1': 7}},
        columns=wider,
        fill=lambda _: {'or "1"=1': 1},
        constants={"%s": "all"},
    )
    yield {A: (2, "ok")}


EXTREMES: Final[Mapping[str, tuple[ColumnType, tuple[object, ...]]]] = {
    "text": ("string", ("", "é", "e\u0301", "\U0001f926\U0001f3fc", "a\x1fb", "'\"\\", "line\nbreak")),
    "whole": ("integer", (-(2**63), 2**63 - 1, 0, 2**53 + 1)),
    "real": ("number", (0.1 + 0.2, 1e22, 1e-7, -0.0, 5e-324, math.pi, 1.7976931348623157e308)),
    "yes": ("boolean", (True, False)),
    "day": ("date", (date(1, 1, 1), date(9999, 12, 31), date(1600, 2, 29))),
    "moment": (
        "timestamp",
        (datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)),
    ),
    "nested": ("json", ('{"a":[1,2],"b":null}', "[]")),
    "geometry": ("geometry", (POINT,)),
}


def extreme_values(feed: Feed) -> Iterator[Expected]:
    """Values at the ends of every type arrive as they are, null among them (D2.11, F042)."""
    columns: dict[str, ColumnType] = {name: type_ for name, (type_, _) in EXTREMES.items()}
    count = 2 + max(len(values) for _, values in EXTREMES.values())
    rows: dict[str, Row] = {}
    for at in range(count):
        rows[record_id(at)] = {
            name: values[at] if at < len(values) else None  # type: ignore[misc]  # values of the column's type
            for name, (_, values) in EXTREMES.items()
        }
    feed.add(A, columns, {record_id(0): rows[record_id(0)]})
    yield {A: (1, "ok")}
    feed.update(A, put=rows)
    yield {A: (2, "ok")}


def constants_of_every_type(feed: Feed) -> Iterator[Expected]:
    """A single value that moves in every row arrives without a row of changes, whatever its type (D5.8)."""
    columns: dict[str, ColumnType] = {name: type_ for name, (type_, _) in EXTREMES.items()}
    feed.add(A, columns, {record_id(at): dict.fromkeys(columns) for at in range(3)})
    yield {A: (1, "ok")}
    for at in (0, 1):
        values = {name: values[at % len(values)] for name, (_, values) in EXTREMES.items()}
        feed.update(A, constants=values)  # type: ignore[arg-type]  # values of the column's type
    yield {A: (3, "ok")}
    feed.update(A, constants=dict.fromkeys(columns))
    yield {A: (4, "ok")}


STORIES: Final[Mapping[str, Story]] = {
    **{
        story.__name__: story
        for story in (
            first_load,
            changes,
            many_changes,
            empty_and_back,
            new_column,
            ids_replaced,
            major_paused,
            skipped_numbers,
            released_again,
            another_previous,
            leaves_and_returns,
            leaves_while_away,
            refused_before_leaving,
            past_retention,
            rebuilding,
            rebuilding_at_first,
            expired_cursor,
            file_in_trouble,
            links_expire,
            torn_downloads,
            waits_for_first,
            held_and_stale,
            service_in_trouble,
            hostile_names,
            extreme_values,
            constants_of_every_type,
        )
    },
    "previous_unavailable": _reason("previous_unavailable"),
    "schema_changed": _reason("schema_changed"),
    "key_columns_changed": _reason("key_columns_changed"),
}
