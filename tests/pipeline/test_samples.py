"""Sample rows that staff see beside a hold's facts: those that it is about, without dropped columns (D6.2, D10.2)."""

import pytest
from tests.empty_store import put_empty_home

from ploti_server.app import build_ports
from ploti_server.domain.datasets import Dataset, GeometryColumns, SourceSpec, Topic
from ploti_server.domain.settings import Settings
from ploti_server.domain.versions import VersionStatus
from ploti_server.pipeline.check import GivenState, take_state
from ploti_server.pipeline.samples import sample_rows
from ploti_server.worker import new_owner, work_one

HEADER = "Secret,k,a,b,c,d,e,lon,lat\n"


def rows(*numbers, **cells):
    """Write rows of a CSV; `cells` replace those of a column for all of them."""
    named = [
        {"Secret": f"s{n}", "k": n, "a": n, "b": n, "c": n, "d": n, "e": f"e{n}", "lon": -81, "lat": 28}
        for n in numbers
    ]
    return "".join(",".join(str(value) for value in (row | cells).values()) + "\n" for row in named)


@pytest.fixture
def publisher(tmp_path):
    return Publisher(build_ports(Settings.of(home=put_empty_home(tmp_path / "home"))), tmp_path / "state.csv")


class Publisher:
    """Publishes states of one dataset, and gives the sample rows of the one that is held."""

    def __init__(self, ports, file):
        self.ports, self.file = ports, file
        source = SourceSpec("file", "x.csv", geometry=GeometryColumns(x="lon", y="lat"), crs=("EPSG:4326",))
        self.dataset = Dataset("ds_x", "X", source, place="fl", topic="t", key=("k",))
        self.define()

    def define(self, drop=()):
        with self.ports.store.write() as records:
            records.catalog.put_topics([Topic("t", "T")])
            records.catalog.put_dataset(Dataset(**{**vars(self.dataset), "drop": drop}))

    def check(self, text):
        self.file.write_text(HEADER + text)
        return work_one(self.ports, new_owner(), take_state(self.ports, "ds_x", GivenState(self.file)).id).outcome

    def samples(self):
        with self.ports.store.read() as records:
            (held,) = records.versions.in_status("ds_x", [VersionStatus.HELD])
        return sample_rows(self.ports, held, limit=100)


@pytest.mark.parametrize(
    ("state", "seen"),
    [
        ("", set(range(40))),
        (rows(*range(20)), set(range(20, 40))),
        (rows(*range(40), 7), {7}),
        (rows(*range(20)) + rows(*range(20, 40), e=""), set(range(20, 40))),
        (rows(*range(30)) + rows(*range(30, 40), lon=""), set(range(30, 40))),
    ],
    ids=["zero rows", "rows down", "a double key", "a column that became empty", "shapes that went"],
)
def test_sample_rows_are_those_that_the_hold_is_about(publisher, state, seen):
    assert publisher.check(rows(*range(40))) == "released"
    assert publisher.check(state) == "held"
    shown = publisher.samples()
    assert {row["k"] for row in shown} == {str(n) if isinstance(shown[0]["k"], str) else n for n in seen}


def test_the_column_that_a_hold_names_is_shown(publisher):
    publisher.check(rows(*range(40)))
    publisher.check(rows(*range(40), e=""))
    assert list(publisher.samples()[0])[:3] == ["_ploti_record_id", "k", "e"]


@pytest.mark.parametrize("state", ["", rows(*range(20)), rows(*range(40), 7)], ids=["zero rows", "rows down", "double"])
def test_a_dropped_column_lingers_in_no_sample_row(publisher, state):
    publisher.check(rows(*range(40)))
    publisher.define(drop=("secret",))
    assert publisher.check(state) == "held"
    assert publisher.samples()
    assert all("secret" not in row for row in publisher.samples())


def test_a_dropped_column_lingers_in_no_row_that_cannot_be_decoded(publisher):
    publisher.define(drop=("Secret",))
    publisher.check(rows(*range(40)))
    assert publisher.check(rows(*range(39)) + rows(39).replace("\n", ",beyond\n")) == "held"
    assert [(row["row"], row["value"]) for row in publisher.samples()] == [(40, None)]


def test_a_row_that_cannot_be_decoded_is_shown_as_it_stands(publisher):
    publisher.check(rows(*range(40)))
    publisher.check(rows(*range(39)) + rows(39).replace("\n", ",beyond\n"))
    assert [row["value"] for row in publisher.samples()] == ["s39,39,39,39,39,39,e39,-81,28,beyond"]
