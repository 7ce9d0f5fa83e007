"""Schema versions and changes: one row per sentence of page 004's table and of D2.7, D2.8."""

import pytest

from ploti_server.domain.release import resync_reason
from ploti_server.domain.schema import Column, Schema, SchemaVersion, change_between, next_version
from ploti_server.domain.wire import wire_schema_change

ID = Column("id", "string", False, "ID")
NAME = Column("name", "string", False, "NAME")
SIZE = Column("size", "number", True, "SIZE")
SHAPE = Column("geometry", "geometry", True, "geometry", geometry_type="Point")
BASE = Schema((ID, NAME, SIZE, SHAPE), ("id",))
UNKEYED = Schema(BASE.columns)


def changed(column, **values):
    return Column(**({f: getattr(column, f) for f in column.__dataclass_fields__} | values))


def with_column(old, new):
    return Schema(tuple(new if column == old else column for column in BASE.columns), BASE.key_columns)


SAME = None
CASES = {
    "nothing changed": (BASE, BASE, SAME),
    "a column is added": (BASE, Schema((*BASE.columns, Column("new", "date", True, "NEW")), ("id",)), "additive"),
    "a column becomes nullable": (BASE, with_column(NAME, changed(NAME, nullable=True)), "additive"),
    "a column stops being nullable": (BASE, with_column(SIZE, changed(SIZE, nullable=False)), SAME),
    "a column is removed": (BASE, Schema((ID, NAME, SHAPE), ("id",)), "breaking"),
    "a column is renamed": (BASE, with_column(NAME, changed(NAME, name="title")), "breaking"),
    "a type changes": (BASE, with_column(SIZE, changed(SIZE, type="string")), "breaking"),
    "the kind of shapes changes": (BASE, with_column(SHAPE, changed(SHAPE, geometry_type="Geometry")), "breaking"),
    "the kind of shapes becomes known": (
        with_column(SHAPE, changed(SHAPE, geometry_type=None)),
        BASE,
        SAME,
    ),
    "the key changes": (BASE, Schema(BASE.columns, ("name",)), "breaking"),
    "the key is dropped": (BASE, UNKEYED, "breaking"),
    "a key is pinned for the first time": (UNKEYED, BASE, "additive"),
    "columns change places": (BASE, Schema((SHAPE, SIZE, NAME, ID), ("id",)), SAME),
    "the source's spelling moves": (BASE, with_column(NAME, changed(NAME, source_name="Name")), SAME),
    "a column becomes volatile": (BASE, with_column(NAME, changed(NAME, volatile=True)), SAME),
    "a member becomes optional": (BASE, with_column(NAME, changed(NAME, optional=True)), SAME),
    "added and removed": (BASE, Schema((ID, NAME, SHAPE, Column("x", "date", True, "x")), ("id",)), "breaking"),
}


@pytest.mark.parametrize(("previous", "new", "kind"), CASES.values(), ids=CASES)
def test_kind_of_change(previous, new, kind):
    change = change_between(previous, new, SchemaVersion(2, 1))
    assert (change and change.kind) == kind
    assert change is None or change.previous == SchemaVersion(2, 1)


BUMPS = {
    "a column is added": ("2.2", True),
    "a column becomes nullable": ("2.2", True),
    "a column is removed": ("3.0", False),
    "a column is renamed": ("3.0", False),
    "a type changes": ("3.0", False),
    "the key changes": ("3.0", False),
    "nothing changed": ("2.1", True),
}


@pytest.mark.parametrize(("case", "number", "is_safe"), [(case, *told) for case, told in BUMPS.items()], ids=BUMPS)
def test_schema_version_and_whether_the_change_is_safe_on_its_own(case, number, is_safe):
    previous, new, _ = CASES[case]
    change = change_between(previous, new, SchemaVersion(2, 1))
    assert str(next_version(SchemaVersion(2, 1), change)) == number
    assert (resync_reason(first=False, change=change) is None) is is_safe


def test_a_schema_version_is_major_dot_minor():
    assert str(SchemaVersion(2, 1)) == "2.1"
    assert SchemaVersion.parse("12.10") == SchemaVersion(12, 10)


def test_a_breaking_change_is_told_with_the_members_of_the_contracts_example():
    date = changed(SIZE, type="date")
    change = change_between(BASE, Schema((ID, date, SHAPE), ("id",)), SchemaVersion(2, 1))
    assert wire_schema_change(change) == {
        "kind": "breaking",
        "previousSchemaVersion": "2.1",
        "added": [],
        "removed": ["name"],
        "retyped": [{"name": "size", "from": "number", "to": "date"}],
        "nullabilityChanged": [],
        "keyColumnsChanged": False,
    }


@pytest.mark.parametrize(
    ("previous", "case", "expected"),
    [
        (None, "nothing changed", "1.0"),
        ("1.0", "nothing changed", "1.0"),
        ("1.9", "a key is pinned for the first time", "1.10"),
        ("2.1", "the key is dropped", "3.0"),
        ("2.1", "a column is removed", "3.0"),
        ("2.1", "a type changes", "3.0"),
    ],
)
def test_a_safe_change_counts_minor_up_and_one_that_needs_a_person_major(previous, case, expected):
    before, new, _ = CASES[case]
    change = change_between(before, new, SchemaVersion(1, 0))
    assert str(next_version(previous and SchemaVersion.parse(previous), change)) == expected


def test_a_change_names_what_changed():
    new = Schema(
        (
            ID,
            changed(NAME, nullable=True),
            changed(SIZE, type="string"),
            changed(SHAPE, geometry_type="MultiPolygon"),
            Column("new", "date", True, "NEW"),
        ),
        ("id", "name"),
    )
    change = change_between(BASE, new, SchemaVersion(1, 0))
    assert [column.name for column in change.added] == ["new"]
    assert change.removed == ()
    assert [(r.name, r.from_, r.to) for r in change.retyped] == [
        ("size", "number", "string"),
        ("geometry", "geometry(Point)", "geometry(MultiPolygon)"),
    ]
    assert [(n.name, n.from_, n.to) for n in change.nullability] == [("name", False, True)]
    assert change.key_changed
