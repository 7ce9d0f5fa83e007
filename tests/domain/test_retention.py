"""What is past retention and which files may go, row by row (page 001 "Retention", D12)."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from ploti_server.domain.retention import RetentionLimits, newly_expired, offered, removable
from ploti_server.domain.versions import StoredFile, Version, VersionStatus

BUILT = datetime(2026, 1, 1, tzinfo=UTC)
LIMITS = RetentionLimits()
LIMIT = BUILT + timedelta(days=90)
MOMENT = timedelta(milliseconds=1)
BOTH = ("changes", "snapshot")
GRACE = timedelta(hours=25)
PATHS = (
    "snapshot/part-0000.parquet", "rejects/part-0000.parquet", "changes/part-0000.parquet",
    "backfill/part-0000.parquet", "attachments.json",
    "id-map/part-0000.parquet", "ledger/part-0000.parquet", "schema.json", "manifest.json",
)  # fmt: skip
FOR_EVER = ("id-map/part-0000.parquet", "ledger/part-0000.parquet", "schema.json", "manifest.json")


def version(number, schema="1.0", status="released", **fields):
    """Make a version of a dataset, built and sent on the first day unless told otherwise."""
    sent = BUILT if status in ("released", "released_again") else None
    values = {
        "attempt": 1,
        "schema_version": schema,
        "built_at": BUILT,
        "released_at": sent,
        "base": number - 1 or None,
    }
    files = tuple(
        StoredFile(path, "x", 10, "0" * 64) for path in PATHS if path[:6] not in ("ledger", "reject", "attach")
    )
    return Version("ds_a", number, status=VersionStatus(status), check_id=number, files=files, **values | fields)


def expired(versions, at):
    return {v.number: v.expired for v in newly_expired(versions, at, LIMITS)}


@pytest.mark.parametrize(
    ("at", "gone"),
    [(LIMIT - MOMENT, {}), (LIMIT, {1: BOTH}), (LIMIT + MOMENT, {1: BOTH})],
    ids=["before", "at the limit", "past it"],
)
def test_changes_and_snapshot_are_kept_for_90_days_from_when_the_version_was_built(at, gone):
    assert expired([version(1), version(2)], at) == gone


def kept(kind):
    """Tell by version for how long a kind of file of four versions, MAJOR 1, 1, 2 and 2, is kept."""
    versions = [version(1, "1.0"), version(2, "1.1"), version(3, "2.0"), version(4, "2.1")]
    return {
        moment: [one.number for one in versions if kind not in expired(versions, at).get(one.number, ())]
        for moment, at in (("before", LIMIT - MOMENT), ("after", LIMIT), ("long after", LIMIT + 50 * GRACE))
    }


def test_changes_files_are_kept_for_90_days_and_those_of_the_newest_version():
    assert kept("changes") == {"before": [1, 2, 3, 4], "after": [4], "long after": [4]}


def test_snapshots_are_kept_for_90_days_those_of_the_newest_version_and_of_the_last_of_each_major():
    assert kept("snapshot") == {"before": [1, 2, 3, 4], "after": [2, 4], "long after": [2, 4]}


@pytest.mark.parametrize(
    ("says", "versions", "gone"),
    [
        ("the newest version keeps all", [version(1)], {}),
        ("also where a discarded one came later", [version(1), version(2, status="discarded")], {2: BOTH}),
        (
            "the last version of each MAJOR keeps its snapshot",
            [version(1, "1.0"), version(2, "1.1"), version(3, "2.0"), version(4, "3.0"), version(5, "3.0")],
            {1: BOTH, 2: ("changes",), 3: ("changes",), 4: BOTH},
        ),
        (
            "a version released again is the last of nothing",
            [version(1, "1.0"), version(2, "1.0", "released_again"), version(3, "2.0")],
            {1: ("changes",), 2: BOTH},
        ),
        ("a superseded version", [version(1), version(2, status="superseded"), version(3)], {1: BOTH, 2: BOTH}),
        (
            "it counts from the build, however late the release",
            [version(1, released_at=LIMIT - MOMENT), version(2, built_at=LIMIT)],
            {1: BOTH},
        ),
        ("what is held or at work is left alone", [version(1, s, "held") for s in ("1.0", "2.0")], {}),
        ("building", [version(1), version(2, status="building"), version(3, status="waiting")], {}),
        ("nothing is told twice", [version(1, expired=BOTH), version(2)], {}),
        ("a last of its MAJOR no more", [version(1, expired=("changes",)), version(2)], {1: BOTH}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_past_retention(says, versions, gone):
    assert expired(versions, LIMIT) == gone


def kinds(version):
    return sorted({file.path.partition("/")[0] for file in version.files})


@pytest.mark.parametrize(
    ("marks", "is_current", "left"),
    [
        ((), False, ["backfill", "changes", "id-map", "manifest.json", "schema.json", "snapshot"]),
        (("changes",), False, ["id-map", "manifest.json", "schema.json", "snapshot"]),
        (BOTH, False, ["id-map", "manifest.json", "schema.json"]),
        (BOTH, True, ["backfill", "changes", "id-map", "manifest.json", "schema.json", "snapshot"]),
    ],
    ids=["kept", "last of its MAJOR", "past retention", "current again after the newer one was released again"],
)
def test_which_files_are_still_offered(marks, is_current, left):
    assert kinds(offered(version(1, expired=marks), is_current=is_current)) == left


def stored(number, attempt=1, paths=PATHS):
    return [f"ds_a/versions/{number}/{attempt}/{path}" for path in paths]


def left_over(versions, now, paths=None):
    """Sweep and give what stays of version 1, or of the paths given."""
    paths = stored(1) if paths is None else paths
    gone = set(removable(paths, versions, {}, now, LIMITS))
    return tuple(path.split("/", 4)[-1] for path in paths if path not in gone)


OLD = version(1, expired=BOTH, expired_at=LIMIT)
NEWER = [version(2), version(3)]


@pytest.mark.parametrize(
    ("since", "left"),
    [(GRACE - MOMENT, PATHS), (GRACE, FOR_EVER), (GRACE + MOMENT, FOR_EVER)],
    ids=["before", "at the limit", "past it"],
)
def test_files_go_an_hour_and_the_longest_download_after_the_last_link(since, left):
    assert left_over([OLD, *NEWER], LIMIT + since) == left


@pytest.mark.parametrize(
    ("says", "versions", "left"),
    [
        ("id maps, schemas, manifests and the ledger are kept", [OLD, *NEWER], FOR_EVER),
        ("not yet past retention", [version(1), *NEWER], PATHS),
        (
            "a last of its MAJOR",
            [replace(OLD, expired=("changes",)), *NEWER],
            tuple(path for path in PATHS if not path.startswith(("changes", "backfill"))),
        ),
        ("the version before current, while current may fall back to it", [OLD, version(2, base=None)], PATHS),
        ("what a held version was built on", [OLD, *NEWER, version(4, status="held", base=1)], PATHS),
        ("what current was built on", [OLD, version(2), version(3, base=1)], PATHS),
        (
            "the newest sent one, which the next is computed against after it was released again",
            [replace(OLD, number=5, status=VersionStatus.RELEASED_AGAIN), version(1)],
            PATHS,
        ),
        (
            "links were given until the newer version came",
            [OLD, version(2, released_at=LIMIT + GRACE), version(3, released_at=LIMIT + GRACE)],
            PATHS,
        ),
        ("a version that nobody saw", [replace(OLD, status="discarded", released_at=None), *NEWER], ()),
        ("a version that is held", [version(1, status="held")], PATHS),
        ("a version that is being built", [version(1, status="building")], PATHS),
        ("a number that was given up for a later one", NEWER, ()),
        ("a number that may be given next", [], PATHS),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_what_stays_in_the_store(says, versions, left):
    paths = [path for one in versions if one.number == 5 for path in stored(5)] or stored(1)
    assert left_over(versions, LIMIT + GRACE, paths) == left


@pytest.mark.parametrize(
    ("says", "fields", "attempt", "since", "stays"),
    [
        ("an abandoned attempt before a link's end", {"attempt": 2}, 1, GRACE - MOMENT, True),
        ("an abandoned attempt at it", {"attempt": 2}, 1, GRACE, False),
        ("lost files were made again later", {"attempt": 2, "rebuilt_at": BUILT + GRACE}, 1, GRACE, True),
        ("and long ago", {"attempt": 2, "rebuilt_at": BUILT + GRACE}, 1, 2 * GRACE, False),
        ("an attempt that may take the place of lost files", {"attempt": 1}, 2, 100 * GRACE, True),
        ("while it is being built", {"attempt": 2, "status": "building"}, 1, 100 * GRACE, True),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_abandoned_attempts(says, fields, attempt, since, stays):
    paths = stored(1, attempt)
    assert left_over([version(1, **fields)], BUILT + since, paths) == (PATHS if stays else ())


@pytest.mark.parametrize(
    "path",
    ["ds_a/states/00/raw", "ds_a/versions/x/1/a", "ds_a/versions/1/x/a", "a"],
)
def test_what_is_no_file_of_the_datasets_versions_stays(path):
    assert not list(removable([path], [OLD, *NEWER], {}, LIMIT + GRACE, LIMITS))


@pytest.mark.parametrize(
    ("says", "listed_by", "since", "stays"),
    [
        ("a version that lists it keeps its snapshot", (1, 3), 100 * GRACE, True),
        ("its only version is past retention, a link is not", (1,), GRACE - MOMENT, True),
        ("its only version and the last link are past", (1,), GRACE, False),
        ("none lists it, and links could be given until the version that stored it was built", (), GRACE, False),
        ("the lists are not known", None, 100 * GRACE, True),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_copy_stays_as_long_as_a_version_that_lists_it_keeps_its_snapshot(says, listed_by, since, stays):
    path = f"ds_a/attachments/{'a' * 64}/1-1"
    listing = None if listed_by is None else {path: listed_by}
    gone = list(removable([path], [OLD, *NEWER], listing, LIMIT + since, LIMITS))
    assert gone == ([] if stays else [path])


@pytest.mark.parametrize(
    ("expired", "listed_by", "since", "copy_stays", "list_stays"),
    [
        (("changes",), (1,), 100 * GRACE, True, True),
        (BOTH, (1,), GRACE - MOMENT, True, True),
        (BOTH, (1,), 100 * GRACE, False, False),
        (BOTH, (1, 3), 100 * GRACE, True, False),
    ],
    ids=["the last of its MAJOR", "a link has not ended", "past retention", "a later version lists it too"],
)
def test_attachments_are_kept_as_long_as_a_version_that_lists_them_keeps_its_snapshot(
    expired, listed_by, since, copy_stays, list_stays
):
    copy, listed = f"ds_a/attachments/{'a' * 64}/1-1", "ds_a/versions/1/1/attachments.json"
    versions = [replace(OLD, expired=expired), *NEWER]
    gone = set(removable([copy, *stored(1)], versions, {copy: listed_by}, LIMIT + since, LIMITS))
    assert (copy not in gone, listed not in gone) == (copy_stays, list_stays)
    assert (stored(1)[0] not in gone) is list_stays
