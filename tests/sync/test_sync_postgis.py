"""The PostgreSQL target where PostGIS is there: shapes are geometry with an index and come back to the byte (D11.3)."""

import psycopg
import pytest
import shapely
from tests.sync.deliveries import D, Files, held
from tests.sync.test_sync_postgresql_stories import PostgresKit
from tests.sync.test_sync_spoilt_values import Postgres, check_found_and_mended

from ploti.contract.digest import Digest, canonical_row, record_hash
from ploti.sync.target import StepBlocked, StepRefused
from ploti.sync.targets import open_target
from ploti.testing.feed import Feed, record_id
from ploti.testing.stories import POINT, STORIES, ZONES, A, B, zones
from ploti.testing.targets import check_repaired, check_rows, check_story, sync_feed


class PostgisKit(PostgresKit):
    """Shapes are read with PostGIS's own function."""

    def rows(self, dataset_id):
        found = super().rows(dataset_id)
        with psycopg.connect(self.url) as db:
            shapes = f'SELECT _ploti_record_id, ST_AsBinary(geometry) FROM {self.schema}."{dataset_id}"'
            if any("geometry" in row for row in found.values()):
                for id_, shape in db.execute(shapes.encode()):
                    found[id_]["geometry"] = shape
        return found


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@pytest.fixture
def kit(postgis_database):
    return PostgisKit(postgis_database)


@pytest.fixture
def url(postgis_database):
    return postgis_database


@pytest.fixture
def files(tmp_path):
    return Files(tmp_path)


def query(url, *statements):
    with psycopg.connect(url, autocommit=True) as db:
        for statement in statements:
            found = db.execute(statement)
        return found.fetchall() if found.description else []


WITH_SHAPES = (
    "first_load",
    "changes",
    "extreme_values",
    "constants_of_every_type",
    "leaves_and_returns",
    "previous_unavailable",
)


@pytest.mark.parametrize("name", WITH_SHAPES)
def test_a_story_with_shapes_ends_at_its_tables(name, kit):
    check_story(STORIES[name], kit)


SHAPES = [
    shapely.Point(-81.5, 28.25),
    shapely.Point(-0.0, 1e-300),
    shapely.MultiPoint([(0.1 + 0.2, 1 / 3), (179.99999999999997, -89.99999999999999)]),
    shapely.MultiLineString([[(0, 0), (1, 1), (1, 1), (2, 0)], [(5, 5), (6, 6)]]),
    shapely.MultiPolygon(
        [
            (((0, 0), (9, 0), (9, 9), (0, 9), (0, 0)), [((1, 1), (1, 2), (2, 2), (2, 1), (1, 1))]),
            (((20, 20), (30, 20), (30, 30), (20, 20)), []),
        ]
    ),
    shapely.GeometryCollection([shapely.Point(1, 2), shapely.MultiLineString([[(0, 0), (1, 1)]])]),
    None,
]
COLUMNS = {"name": "string", "geometry": "geometry"}


def shaped(shapes, name="s"):
    wkb = [None if shape is None else shapely.to_wkb(shape, byte_order=1) for shape in shapes]
    return [(at, {"name": f"{name}{at}", "geometry": value}) for at, value in enumerate(wkb)]


def test_shapes_come_back_to_the_byte_and_the_digest_is_the_contracts(url, files):
    target, rows = open_target(url), shaped(SHAPES)
    target.load(files.snapshot(1, rows, COLUMNS), held(1), None)
    found = query(url, "SELECT _ploti_record_id, ST_AsBinary(geometry, 'NDR') FROM ds_a")
    assert dict(found) == {record_id(at): row["geometry"] for at, row in rows}
    assert query(url, "SELECT DISTINCT ST_SRID(geometry) FROM ds_a WHERE geometry IS NOT NULL") == [(4326,)]
    expected = Digest()
    for at, row in rows:
        expected.add(record_id(at), record_hash(record_id(at), canonical_row(row, COLUMNS)))
    assert target.digest(D, []) == expected


def test_real_shapes_of_zoning_come_back_to_the_byte(url, files, shared):
    collection = shapely.from_geojson((shared / "data/main/vt_rutland_zoning/010-2024-07-24.geojson").read_text())
    shapes = [shapely.MultiPolygon([s]) if s.geom_type == "Polygon" else s for s in collection.geoms]
    assert shapely.get_num_coordinates(shapes).sum() > 1_000
    target, rows = open_target(url), shaped(shapes)
    target.load(files.snapshot(1, rows, COLUMNS), held(1), None)
    found = query(url, "SELECT _ploti_record_id, ST_AsBinary(geometry, 'NDR') FROM ds_a")
    assert dict(found) == {record_id(at): row["geometry"] for at, row in rows}


def test_the_column_has_the_kind_and_an_index_that_is_used(url, files):
    delivery = files.snapshot(1, shaped([shapely.Point(at / 100, at / 100) for at in range(2_000)]), COLUMNS)
    delivery.schema["columns"][1]["geometryType"] = "Point"
    open_target(url).load(delivery, held(1), None)
    told = "SELECT type, srid FROM geometry_columns WHERE f_table_name = 'ds_a'"
    assert query(url, told) == [("POINT", 4326)]
    plan = query(
        url,
        "SET enable_seqscan = off",
        "EXPLAIN SELECT * FROM ds_a WHERE geometry && ST_MakeEnvelope(1, 1, 2, 2, 4326)",
    )
    assert "ds_a_geometry_idx" in str(plan)


def test_another_kind_of_shape_is_brought_by_a_reload(url, files):
    target = open_target(url)
    points, lines = shaped([shapely.Point(1, 2)]), shaped([shapely.MultiLineString([[(0, 0), (1, 1)]])])
    for version, (kind, rows) in enumerate((("Point", points), ("MultiLineString", lines)), 1):
        delivery = files.snapshot(version, rows, COLUMNS)
        delivery.schema["columns"][1]["geometryType"] = kind
        target.load(delivery, held(version), None)
    assert query(url, "SELECT ST_AsText(geometry) FROM ds_a") == [("MULTILINESTRING((0 0,1 1))",)]
    assert query(url, "SELECT count(*) FROM pg_indexes WHERE indexname = 'ds_a_geometry_idx'") == [(1,)]


def test_shapes_that_go_take_their_index_along_and_no_other(url, files):
    """Also where another table's index had the name that theirs was to have."""
    query(url, "CREATE TABLE theirs (x int)", "CREATE INDEX ds_a_geometry_idx ON theirs (x)")
    target = open_target(url)
    target.load(files.snapshot(1, shaped([shapely.Point(1, 2)]), COLUMNS), held(1), None)
    query(url, "CREATE INDEX mine ON ds_a USING gist (geometry)")
    second = files.snapshot(2, [(1, {"name": "a"})], {"name": "string"})
    with pytest.raises(
        StepBlocked, match=r"your index mine cannot follow the new columns of ds_a \(no column geometry\)"
    ):
        target.load(second, held(2), None)
    query(url, "DROP INDEX mine")
    target.load(second, held(2), None)
    assert query(url, "SELECT count(*) FROM pg_indexes WHERE indexdef LIKE '%gist%'") == [(0,)]


def test_a_shape_that_arrives_later_gets_its_index(url, files):
    target = open_target(url)
    target.load(files.snapshot(1, [(1, {"name": "a"})], {"name": "string"}), held(1), None)
    changes = files.changes(2, [(1, {"name": "a", "geometry": POINT})], rows=1, columns=COLUMNS)
    target.apply(changes, held(2))
    assert query(url, "SELECT ST_AsText(geometry) FROM ds_a") == [("POINT(1 2)",)]
    assert query(url, "SELECT count(*) FROM pg_indexes WHERE indexdef LIKE '%gist%'") == [(1,)]


def test_a_shape_that_postgis_cannot_read_is_refused_whole(url, files):
    with pytest.raises(StepRefused, match="PostgreSQL"):
        open_target(url).load(files.snapshot(1, [(1, {"name": "a", "geometry": b"\1\2"})], COLUMNS), held(1), None)
    assert query(url, "SELECT to_regclass('ds_a')") == [(None,)]


def test_a_table_made_before_postgis_came_keeps_its_shapes_as_bytes(kit, url):
    query(url, "DROP EXTENSION postgis")
    feed = Feed()
    feed.add(B, ZONES, zones(*range(5)))
    sync_feed(feed, kit)
    query(url, "CREATE EXTENSION postgis")
    feed.update(B, put=zones(7), drop=[record_id(0)])
    sync_feed(feed, kit)
    feed.reload(B, zones(1, 2, 9), "previous_unavailable")
    sync_feed(feed, kit)
    check_rows(feed, PostgresKit(url), B, 3)


def test_postgis_in_a_schema_of_its_own(kit, url):
    query(url, "DROP EXTENSION postgis", "CREATE SCHEMA gis", "CREATE EXTENSION postgis SCHEMA gis")
    feed = Feed()
    feed.add(B, ZONES, zones(*range(5)))
    sync_feed(feed, kit)
    feed.update(B, put=zones(7), constants={"geometry": POINT})
    sync_feed(feed, kit)
    found = query(url, f'SELECT count(*), min(gis.ST_AsText(geometry)) FROM feeds."{B}"')
    assert found == [(6, "POINT(1 2)")]
    assert kit.open(lambda _: None).digest(B, []).records == 6


def test_spoilt_shapes_are_put_right(kit, url):
    moved = "UPDATE feeds.{0} SET geometry = ST_Translate(geometry, 1e-12, 0)"
    feed = Feed()
    feed.add(B, ZONES, zones(*range(5)))
    sync_feed(feed, kit)
    before = kit.open(lambda _: None).digest(B, [])
    query(url, moved.format(B))
    assert len(before.differing(kit.open(lambda _: None).digest(B, []))) == 5
    done = check_repaired(PostgisKit(url, "other"), lambda name: query(url, f"UPDATE other.{name} SET units = 0"))
    assert done.moved.changed == 60
    assert done.after.dataset_id == A


SPOILT_SHAPES = ("POINT EMPTY", "POINT(NaN 1)", "POINT(1e300 1)", "CURVEPOLYGON(CIRCULARSTRING(0 0, 9 9, 0 0))")


class Kit(PostgisKit, Postgres):
    pass


def test_any_shape_that_a_user_can_write_is_found_and_mended(postgis_database):
    spoilt = [("geometry", f"'SRID=4326;{shape}'") for shape in SPOILT_SHAPES]
    check_found_and_mended(Kit(postgis_database), [*spoilt, ("geometry", "NULL", "full")], ZONES)
