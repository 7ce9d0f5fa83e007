"""Awkward states through a whole check: what is released, what waits, what is refused and why (D5.7, D6.1).

The files are those of `shared/data/awkward`; its README tells each one's trap.
"""

import pytest
from tests.empty_store import put_empty_home

from ploti_server import worker
from ploti_server.app import build_ports
from ploti_server.domain.catalog import parse_catalog
from ploti_server.domain.settings import Settings
from ploti_server.pipeline.catalog import apply_catalog
from ploti_server.pipeline.check import GivenState, take_state

DATASET = "ds_awkward"
CATALOG = f"datasets: [{{id: {DATASET}, title: Awkward, source: {{kind: file, url: state}}}}]"


@pytest.fixture
def checked(home):
    """Check a file as the dataset's next state; gives the finished check."""
    ports = build_ports(Settings.of(put_empty_home(home), {}, {}))
    apply_catalog(ports, parse_catalog(CATALOG, home / "catalog.yaml"))

    def check(file):
        return worker.work_through(ports, "test", take_state(ports, DATASET, GivenState(file)).id)

    yield check
    ports.store.close()


@pytest.fixture
def written(tmp_path):
    def write(content):
        file = tmp_path / "state"
        file.write_bytes(content)
        return file

    return write


def told(check):
    """Give the outcome with what explains it: the rows, the rules that hold, or the reason."""
    match check.outcome:
        case "released":
            return check.outcome, check.facts["rows"]
        case "held":
            return check.outcome, [hold["rule"] for hold in check.facts["holds"]]
    return check.outcome, check.reason


@pytest.mark.parametrize(
    ("name", "outcome"),
    [
        ("csvkit/bad.csv", ("held", ["rejects"])),
        ("csvkit/realdata/census_2000/VROUTFSJ.TXt", ("held", ["rejects"])),
        ("csvkit/null_byte.csv", ("released", 1)),
        ("csvkit/mac_newlines.csv", ("released", 2)),
        ("csvkit/test_header_newline.csv", ("released", 1)),
        ("csvkit/realdata/FY09_EDU_Recipients_by_State.csv", ("released", 53)),
        ("frictionless/blank-headers.csv", ("released", 2)),
        ("frictionless/table-with-accents.csv", ("released", 638)),
        ("frictionless/without-rows.csv", ("released", 0)),
        ("geopandas/null_geom.geojson", ("released", 2)),
        ("mapshaper/geojson/NZ.geojson", ("released", 1)),
        ("mapshaper/features/gzip/utf8_bom.csv.gz", ("released", 1)),
    ],
)
def test_an_awkward_file_is_read_right_or_held(shared, checked, name, outcome):
    assert told(checked(shared / "data" / "awkward" / name)) == outcome


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("csvkit/realdata/Datagov_FY10_EDU_recp_by_State.csv", "title"),
        ("csvkit/test.xlsx", "XLSX"),
        ("csvkit/testdbf.dbf", "not text"),
        ("fiona/gre.cpg", "one line"),
        ("fiona/gre.shp", "shapefile"),
        ("fiona/multicurve.gml", "XML"),
        ("frictionless/skip-rows-before-headers.csv", "none of 3 rows"),
        ("gdal/unbalanced_double_quotes.csv", "quote"),
        ("mapshaper/text/empty.csv", "no bytes"),
        ("vt_zoning_atlas/broken_two_bytes_South_Burlington_Overlays.geojson", "white space"),
    ],
)
def test_an_awkward_file_is_refused_with_a_reason(shared, checked, name, reason):
    outcome, why = told(checked(shared / "data" / "awkward" / name))
    assert outcome == "failed"
    assert reason in why


@pytest.mark.parametrize(
    ("odd", "outcome"),
    [
        (["1,2,3"] * 2, ("released", 98)),
        (["1,2,3"] * 3, ("held", ["rejects"])),
        (["1"] * 2, ("released", 100)),
        (["1"] * 3, ("held", ["rejects"])),
        (["1", "1", "1,2,3"], ("held", ["rejects"])),
    ],
)
def test_rows_that_are_too_long_or_too_short_count_as_rejects(checked, written, odd, outcome):
    rows = ["1,2"] * (100 - len(odd)) + odd
    assert told(checked(written("\n".join(["a,b", *rows]).encode()))) == outcome
