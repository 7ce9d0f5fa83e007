"""Shapes that are the same keep their bytes; others are changes (D3.4)."""

import pytest
import shapely
from tests.pipeline.match_story import Story, check_chain

TYPES = {"k": "string", "a": "string", "geometry": "geometry"}
SQUARE = [(0, 0), (1, 0), (1, 1), (0, 1)]


def area(ring, *more):
    return shapely.to_wkb(shapely.multipolygons([shapely.polygons(r) for r in (ring, *more)]), byte_order=1)


def point(x, y):
    return shapely.to_wkb(shapely.points(x, y), byte_order=1)


ISLAND = [(5, 5), (6, 5), (6, 6), (5, 6)]
SAME = {
    "another start": area(SQUARE[1:] + SQUARE[:1]),
    "reversed": area(SQUARE[::-1]),
    "a point twice": area([*SQUARE, SQUARE[-1]]),
    "noise": area([(x + 4e-9, y - 4e-9) for x, y in SQUARE]),
}


@pytest.fixture
def story(tmp_path):
    return Story(tmp_path)


def rows(*shapes, key=True):
    return [{"k": str(i), "a": f"a{i}", "geometry": shape} for i, shape in enumerate(shapes)]


@pytest.mark.parametrize("key", [["k"], []], ids=["keyed", "unkeyed"])
@pytest.mark.parametrize("drawn", SAME.values(), ids=SAME)
def test_the_same_shape_is_no_change_and_keeps_its_bytes(story, key, drawn):
    """F035."""
    first = story.next(rows(area(SQUARE), area(ISLAND)), TYPES, key=key, kind="MultiPolygon")
    second = story.next(rows(drawn, area(ISLAND)), TYPES, key=key, kind="MultiPolygon")
    assert second.counts == (0, 0, 0)
    assert not second.matched.state_changed
    assert second.records() == first.records()
    assert second.matched.digest == first.matched.digest


@pytest.mark.parametrize("key", [["k"], []], ids=["keyed", "unkeyed"])
def test_parts_in_another_order_are_the_same(story, key):
    first = story.next(rows(area(SQUARE, ISLAND), None), TYPES, key=key, kind="MultiPolygon")
    second = story.next(rows(area(ISLAND, SQUARE), None), TYPES, key=key, kind="MultiPolygon")
    assert second.counts == (0, 0, 0)
    assert second.records() == first.records()


def test_noise_does_not_drift(story):
    """Compared with the released bytes each time, so that small steps never add up to a move unseen."""
    first = story.next(rows(point(0, 0), point(9, 9)), TYPES, key=["k"])
    seen = []
    for step in range(1, 5):
        version = story.next(rows(point(step * 4e-9, 0), point(9, 9)), TYPES, key=["k"])
        seen.append(version.counts)
    assert seen == [(0, 0, 0), (0, 0, 0), (0, 1, 0), (0, 0, 0)]
    assert first.records() != version.records()


def test_a_moved_shape_is_a_change_of_the_geometry(story):
    first = story.next(rows(point(0, 0), point(1, 1), None), TYPES, key=["k"])
    second = story.next(rows(point(0, 1e-7), None, point(2, 2)), TYPES, key=["k"])
    assert second.counts == (0, 3, 0)
    assert all(r["_ploti_changed_columns"] == ["geometry"] for r in second.changes)
    check_chain(first, second)


def test_a_row_changed_elsewhere_keeps_the_old_bytes_of_its_shape(story):
    first = story.next(rows(area(SQUARE), area(ISLAND)), TYPES, key=["k"], kind="MultiPolygon")
    moved = rows(SAME["reversed"], area(ISLAND))
    moved[0]["a"] = "new"
    second = story.next(moved, TYPES, key=["k"], kind="MultiPolygon")
    (changed,) = second.changes
    assert changed["_ploti_changed_columns"] == ["a"]
    assert changed["geometry"] == area(SQUARE)
    check_chain(first, second)


def test_unkeyed_shapes_pair_one_to_one_within_equal_values(story):
    def spots(*places):
        return [{"k": None, "a": "same", "geometry": point(x, y)} for x, y in places]

    first = story.next(spots((0, 0), (1, 1), (1, 1), (2, 2)), TYPES)
    second = story.next(spots((1 + 3e-9, 1), (1, 1 - 3e-9), (0, 3e-9), (3, 3)), TYPES)
    assert second.counts == (1, 0, 1)
    assert second.matched.by["content"] == 3
    check_chain(first, second)


def test_a_retyped_geometry_is_not_compared(story):
    story.next(rows(point(0, 0), point(1, 1)), TYPES, key=["k"], kind="Point")
    second = story.next(rows(area(SQUARE), area(ISLAND)), TYPES, key=["k"], kind="MultiPolygon")
    assert second.counts == (0, 0, 0)
    assert [r["geometry"] for r in sorted(second.snapshot, key=lambda r: r["k"])] == [area(SQUARE), area(ISLAND)]
    check_chain(None, second)


@pytest.mark.parametrize("x", [0.0, 0.9999999e-6, 1e-6, -180.0, 179.999999])
def test_noise_across_a_cell_border_still_pairs(story, x):
    story.next([{"k": None, "a": "s", "geometry": point(x, 5)}, {"k": "z"}], TYPES)
    second = story.next([{"k": None, "a": "s", "geometry": point(x - 9e-9, 5)}, {"k": "z"}], TYPES)
    assert second.counts == (0, 0, 0)
