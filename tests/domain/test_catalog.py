"""The catalog's reading, refusals and plan (D10.1, D10.2, D2.9)."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from ploti_server.domain.catalog import Catalog, CatalogBroken, parse_catalog, read_duration
from ploti_server.domain.catalog_plan import effect_of, kept_topics, plan_catalog
from ploti_server.domain.datasets import (
    Attachment,
    Dataset,
    GeometryColumns,
    MatchingLimits,
    ReviewLimits,
    SourceSpec,
    Topic,
)
from ploti_server.domain.schema import Column, Schema

HERE = Path("/srv/catalogs/catalog.yaml")
TOPICS = "topics: [{id: permits, name: Permits}]\n"


def one(**fields):
    """Write a catalog of one dataset, as YAML flow, with fields replaced, added, or left out where None."""
    base = {"id": "ds_x", "title": "X", "source": "{kind: file, url: x.csv}"}
    given = {name: value for name, value in (base | fields).items() if value is not None}
    return TOPICS + "datasets: [{" + ", ".join(f"{name}: {value}" for name, value in given.items()) + "}]"


def problems(text):
    with pytest.raises(CatalogBroken) as broken:
        parse_catalog(text, HERE)
    return list(broken.value.problems)


BROKEN = """topics:
  - {id: permits, name: Permits}
datasets:
  - id: ds_x
    title: X
    topic: water
    source: {kind: file}
    columns:
      A: varchar
  - id: ds_y
    colour: red
    source:
      kind: file
      url: y.csv
"""


def test_every_problem_names_its_field_and_line():
    assert [(problem.partition(":")[0], problem.rpartition(" (line ")[2]) for problem in problems(BROKEN)] == [
        ("datasets[0].topic", "6)"),
        ("datasets[0].source.url", "7)"),
        ("datasets[0].columns.A", "9)"),
        ("datasets[1].title", "10)"),
        ("datasets[1].colour", "11)"),
    ]


@pytest.mark.parametrize("address", ["https://ann:s3cret@x.example.org/a.csv", "https://s3cret@x.example.org/a.csv"])
def test_credentials_in_an_address_are_refused_and_not_repeated(address):
    found = problems(one(source=f"{{kind: file, url: '{address}'}}", license=f"{{url: '{address}'}}"))
    assert [problem.partition(":")[0] for problem in found] == ["datasets[0].license.url", "datasets[0].source.url"]
    assert not any("s3cret" in problem for problem in found)


def test_anchors_that_hold_themselves_come_to_an_end():
    assert "datasets[0].source: is missing (line 2)" in problems(
        "datasets:\n  - &me {id: ds_x, title: X, key: [*me]}\n"
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("topics: [\n", "while parsing a flow node, expected the node content, but found '<stream end>' (line 2)"),
        ("topics: []\ndatasets: []\ntopics: []\n", "'topics' is given twice (line 3)"),
        ("a: b\n\tc: d\n", "found character '\\t' that cannot start any token (line 2)"),
    ],
)
def test_a_text_that_is_no_yaml_names_the_line(text, problem):
    (found,) = problems(text)
    assert found.startswith("the file is not YAML: ")
    assert found.endswith(problem)


@pytest.mark.parametrize(
    ("file", "count"), [("design/catalog.example.yaml", 3), ("demo/catalog.yaml", 4), ("data/main/catalog.yaml", 6)]
)
def test_every_catalog_at_hand_is_read(shared, file, count):
    path = shared / file
    assert len(parse_catalog(path.read_text(encoding="utf-8"), path).datasets) == count


def test_example_says_what_it_means(shared):
    path = shared / "design" / "catalog.example.yaml"
    permits, zoning, licenses = parse_catalog(path.read_text(encoding="utf-8"), path).datasets
    assert permits.source.url.startswith("https://gis.example.org/")
    assert (permits.key, permits.columns, permits.timezone) == (
        ("permit_number",),
        {"permit_number": "string"},
        "America/New_York",
    )
    assert (permits.review, permits.matching, permits.check_every) == (ReviewLimits(), MatchingLimits(), timedelta(1))
    assert zoning.source.url == str(path.parent / "zoning.geojson")
    assert zoning.source.crs == ("EPSG:2236",)
    assert zoning.attachments == (Attachment("source:zoning-ordinance", str(path.parent / "zoning-ordinance.pdf")),)
    assert licenses.source.crs == ("EPSG:2278", "EPSG:4326")
    assert (licenses.source.geometry.x, licenses.source.geometry.y) == ("longitude", "latitude")
    assert (licenses.volatile, licenses.drop, licenses.documents) == (
        ("row_number",),
        ("internal_note",),
        ("license_pdf",),
    )


def test_source_is_beside_the_file_or_an_address():
    (read,) = parse_catalog(one(), HERE).datasets
    assert read.source.url == "/srv/catalogs/x.csv"
    (read,) = parse_catalog(one(source='{kind: file, url: "https://x.example/a b.csv"}'), HERE).datasets
    assert read.source.url == "https://x.example/a b.csv"


def test_limits_left_out_are_those_given_for_all():
    review, matching = ReviewLimits(max_row_drop=0.9), MatchingLimits(max_judged=5)
    (read,) = parse_catalog(one(review="{min_rows_dropped: 1}"), HERE, review, matching).datasets
    assert (read.review, read.matching) == (replace(review, min_rows_dropped=1), matching)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"id": None}, "datasets[0].id: is missing"),
        ({"id": "orange"}, "datasets[0].id: 'orange' is no id; use ds_ and lower-case letters, digits, _"),
        ({"id": "ds_Orange"}, "datasets[0].id: 'ds_Orange' is no id"),
        ({"id": '"ds_ö"'}, "datasets[0].id: 'ds_ö' is no id"),
        ({"id": "ds_" + "x" * 61}, "datasets[0].id:"),
        ({"title": None}, "datasets[0].title: is missing"),
        ({"title": "12"}, "datasets[0].title: is 12, not a text: put it in quotes"),
        ({"title": '" "'}, "datasets[0].title: is empty"),
        ({"title": '"\\uD800"'}, "datasets[0].title: has half of a character"),
        ({"columns": '{"\\uD800": string}'}, "datasets[0].columns.'\\ud800': the name has half of a character"),
        ({"titel": "X"}, "datasets[0].titel: is not known here; allowed are attachments, check, columns, covers"),
        ({"place": "fl-county-nowhere"}, "datasets[0].place: 'fl-county-nowhere' is no place to file under"),
        ({"place": "fl-counties"}, "datasets[0].place: 'fl-counties' is no place to file under"),
        ({"covers": "[fl]"}, "datasets[0].covers[0]: 'fl' is no county"),
        ({"covers": "[fl-county-orange, fl-county-orange]"}, "datasets[0].covers: names 'fl-county-orange' twice"),
        ({"topic": "zoning"}, "datasets[0].topic: 'zoning' is unknown; allowed are permits"),
        ({"source": None}, "datasets[0].source: is missing"),
        ({"source": "x.csv"}, "datasets[0].source: give fields with values, not 'x.csv'"),
        ({"source": "{kind: fil, url: x}"}, "datasets[0].source.kind: 'fil' is unknown; allowed are file, arcgis"),
        ({"source": "{kind: file}"}, "datasets[0].source.url: is missing"),
        ({"source": "{kind: file, url: 'ftp://x/y'}"}, "datasets[0].source.url: 'ftp://x/y' is neither an http(s)"),
        ({"source": "{kind: file, url: 'file:///etc/passwd'}"}, "datasets[0].source.url: 'file:///etc/passwd' is"),
        ({"source": "{kind: file, url: 'http://'}"}, "datasets[0].source.url: 'http://' is neither"),
        ({"source": "{kind: arcgis, url: x}"}, "datasets[0].source.url: 'x' is not an http or https address"),
        ({"source": "{kind: file, url: x, crs: 4326}"}, "datasets[0].source.crs: is 4326, not a list"),
        (
            {"source": "{kind: file, url: x, encoding: klingon}"},
            "datasets[0].source.encoding: 'klingon' is no encoding",
        ),
        ({"source": "{kind: file, url: x, encoding: rot13}"}, "datasets[0].source.encoding: 'rot13' is no encoding"),
        ({"source": "{kind: file, url: x, encoding: utf-7}"}, "datasets[0].source.encoding: 'utf-7' is no encoding"),
        ({"source": "{kind: file, url: x, encoding: cp037}"}, "datasets[0].source.encoding: 'cp037' is no encoding"),
        ({"source": "{kind: file, url: x, crs: WGS84}"}, "datasets[0].source.crs[0]: 'WGS84' is not a coordinate"),
        ({"columns": "{shape: geometry}"}, "datasets[0].columns.shape: 'geometry' is unknown"),
        ({"source": "{kind: file, url: x, geometry: {x: lon}}"}, "datasets[0].source.geometry: give either x and y"),
        (
            {"source": "{kind: file, url: x, geometry: {x: a, y: b, wkt: c}}"},
            "datasets[0].source.geometry: give either",
        ),
        ({"source": "{kind: file, url: x, repair: maybe}"}, "datasets[0].source.repair: is 'maybe'; allowed are true"),
        ({"source": "{kind: file, url: x, user: me}"}, "datasets[0].source.user: is not known here"),
        ({"drop": "[on]"}, "datasets[0].drop[0]: is true, not a text: put it in quotes"),
        ({"drop": "a"}, "datasets[0].drop: is 'a', not a list"),
        ({"key": "[a, a]"}, "datasets[0].key: names 'a' twice"),
        ({"key": "[a]", "drop": "[a]"}, "datasets[0].key: 'a' is dropped too"),
        ({"key": "[a]", "volatile": "[a]"}, "datasets[0].key: 'a' is volatile too"),
        ({"columns": "{a: text}"}, "datasets[0].columns.a: 'text' is unknown; allowed are string, integer"),
        ({"columns": "{1: string}"}, "datasets[0].columns.1: the name is 1, not a text"),
        ({"timezone": "Mars/Olympus"}, "datasets[0].timezone: 'Mars/Olympus' is not a time zone"),
        ({"timezone": "../../etc/passwd"}, "datasets[0].timezone:"),
        ({"check": "{every: daily}"}, "datasets[0].check.every: 'daily' is no duration; write 6h, 1d or 2w"),
        ({"check": "{every: 0d}"}, "datasets[0].check.every: '0d' is no duration"),
        ({"check": "{each: 1d}"}, "datasets[0].check.each: is not known here; allowed are every"),
        ({"review": "{max_row_drop: 20}"}, "datasets[0].review.max_row_drop: is 20; allowed is a number from 0 to 1"),
        ({"review": "{max_row_drop: .nan}"}, "datasets[0].review.max_row_drop: is nan"),
        ({"review": "{min_rows_dropped: 1.5}"}, "datasets[0].review.min_rows_dropped: is 1.5; allowed is a whole"),
        ({"review": "{min_rows_dropped: true}"}, "datasets[0].review.min_rows_dropped: is true"),
        ({"review": "{release_after_agreeing_checks: 0}"}, "datasets[0].review.release_after_agreeing_checks: is 0"),
        (
            {"matching": "{agent: magic}"},
            "datasets[0].matching.agent: 'magic' is unknown; allowed are built-in, chat, staff, nobody",
        ),
        ({"source": "{kind: file, url: 'http://[::1'}"}, "datasets[0].source.url: 'http://[::1' is neither"),
        ({"license": "{url: nope}"}, "datasets[0].license.url: 'nope' is not an http or https address"),
        ({"attachments": "[{file: original}]"}, "datasets[0].attachments[0].url: is missing"),
        (
            {"attachments": "[{file: original, url: x}, {file: original, url: y}]"},
            "datasets[0].attachments[1].file: 'original' is named",
        ),
        *(
            ({"attachments": f"[{{file: '{name}', url: x}}]"}, f"datasets[0].attachments[0].file: '{name}' has to be")
            for name in ("a", "source:", "source:a/b", "document:a", "source:a b")
        ),
        ({"attachments": "[{file: original, url: x, sha256: ABC}]"}, "datasets[0].attachments[0].sha256: 'ABC' is no"),
        ({"retired": "yes please"}, "datasets[0].retired: is 'yes please'; allowed are true and false"),
    ],
)
def test_broken_dataset_is_refused_with_its_place_in_the_file(fields, problem):
    assert any(found.startswith(problem) for found in problems(one(**fields))), problems(one(**fields))


@pytest.mark.parametrize("city", ["fl-city-orlando", "fl-county-orange-orlando", "fl-region-gulf-coast", "orlando"])
def test_a_city_or_region_is_no_place_so_that_its_datasets_are_filed_under_their_county(city):
    assert problems(one(place=city))[0].startswith(f"datasets[0].place: '{city}' is no place to file under")
    assert parse_catalog(one(place="fl-county-orange"), HERE).datasets[0].place == "fl-county-orange"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "the file: give fields with values, not None"),
        ("[]", "the file: give fields with values"),
        ("topics: []", "datasets: is missing"),
        ("datasets: {}", "datasets: is {}, not a list"),
        ("datasets: []\ndatsets: []", "datsets: is not known here; allowed are datasets, topics"),
        ("datasets: [5]", "datasets[0]: give fields with values, not 5"),
        ("datasets: [\n", "the file is not YAML:"),
        ("[" * 5000, "the file is not YAML: it nests too deeply"),
        ('{"a": ' * 5000 + "1" + "}" * 5000, "the file is not YAML: it nests too deeply"),
        ("datasets: !!python/object/apply:os.system [echo]", "the file is not YAML:"),
        ("datasets: []\ndatasets: []", "the file is not YAML:"),
        ("topics: [{id: A, name: A}]\ndatasets: []", "topics[0].id: 'A' is no topic id"),
        ("topics: [{id: none, name: A}]\ndatasets: []", "topics[0].id: 'none' is no topic id"),
        ("topics: [{id: a}]\ndatasets: []", "topics[0].name: is missing"),
        ("topics: [{id: a, name: A}, {id: a, name: B}]\ndatasets: []", "topics[1].id: 'a' is named twice"),
    ],
)
def test_broken_file_is_refused(text, problem):
    assert problems(text)[0].startswith(problem)


def test_every_problem_is_told_at_once():
    entry = "{id: ds_x, title: X, source: {kind: file, url: x}}"
    found = problems(f"topics: [{{id: A, name: B}}]\ndatasets: [{entry}, {entry}, {{id: x}}]")
    assert [line.partition(":")[0] for line in found] == [
        "topics[0].id",
        "datasets[1].id",
        "datasets[2].source",
        "datasets[2].id",
        "datasets[2].title",
    ]


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("30m", timedelta(minutes=30)),
        ("6h", timedelta(hours=6)),
        ("1d", timedelta(days=1)),
        ("2w", timedelta(weeks=2)),
        ("367d", None),
        ("99999w", None),
        ("1", None),
        ("d", None),
        ("1.5h", None),
        ("٣d", None),
    ],
)
def test_duration_is_a_count_and_a_unit_up_to_a_leap_year(text, length):
    assert read_duration(text) == length


def dataset(dataset_id, **fields):
    return Dataset(**{"id": dataset_id, "title": "T", "source": SourceSpec("file", "x")} | fields)


UNKEYED = Schema((Column("a", "string", False, "A"), Column("b", "string", True, "B")))
SHAPED = SourceSpec("file", "x", geometry=GeometryColumns(x="X", y="Y"))


class TestPlan:
    BEFORE = (dataset("ds_a"), dataset("ds_b"), dataset("ds_c"), dataset("ds_d", retired=True), dataset("ds_left"))
    AFTER = (
        dataset("ds_a"),
        replace(dataset("ds_b"), title="New"),
        dataset("ds_c", retired=True),
        dataset("ds_d"),
        dataset("ds_e"),
    )

    def test_plan_tells_what_is_added_changed_retired_and_unchanged(self):
        plan = plan_catalog(Catalog((), self.AFTER), (), self.BEFORE, {})
        assert plan.added == ("ds_e",)
        assert [(a.dataset_id, a.fields, a.effect) for a in plan.changed] == [("ds_b", ("title",), None)]
        assert (plan.retired, plan.returned, plan.unchanged) == (("ds_c",), ("ds_d",), ("ds_a",))
        assert not plan.is_empty

    def test_dataset_that_the_file_leaves_out_stays(self):
        assert plan_catalog(Catalog((), self.AFTER), (), self.BEFORE, {}).not_named == ("ds_left",)
        assert plan_catalog(Catalog((), ()), (), self.BEFORE, {}).is_empty

    def test_applying_the_same_again_changes_nothing(self):
        topics = (Topic("a", "A"), Topic("b", "B"))
        assert plan_catalog(Catalog(topics, self.AFTER), topics, self.AFTER, {}).is_empty

    def test_topic_left_out_stays_while_a_dataset_left_alone_is_filed_under_it(self):
        topics = (Topic("a", "A"), Topic("b", "B"), Topic("c", "C"))
        stored = (dataset("ds_a", topic="a"), dataset("ds_b", topic="b"))
        catalog = Catalog((Topic("n", "N"), Topic("c", "See")), (dataset("ds_a", topic="n"),))
        plan = plan_catalog(catalog, topics, stored, {})
        assert (plan.topics_added, plan.topics_changed, plan.topics_removed) == (("n",), ("c",), ("a",))
        assert [topic.id for topic in kept_topics(catalog, topics, stored)] == ["n", "c", "b"]

    @pytest.mark.parametrize(
        ("before", "after", "effect"),
        [
            ({}, {"volatile": ("B",)}, None),
            ({}, {"drop": ("B",)}, "MAJOR"),
            ({}, {"drop": ("b",)}, "MAJOR"),
            ({}, {"drop": ("not there",)}, None),
            ({"drop": ("c",)}, {}, "MINOR"),
            ({"drop": ("c",)}, {"drop": ("c", "B")}, "MAJOR"),
            ({}, {"columns": {"B": "string"}}, None),
            ({}, {"columns": {"B": "integer"}}, "MAJOR"),
            ({"columns": {"B": "string"}}, {}, None),
            ({}, {"columns": {"not there": "integer"}}, None),
            ({}, {"source": SHAPED}, "MINOR"),
        ],
    )
    def test_changed_types_and_drops_tell_their_effect_at_the_next_check(self, before, after, effect):
        assert effect_of(dataset("ds_a", **before), dataset("ds_a", **after), UNKEYED) == effect

    @pytest.mark.parametrize(
        ("schema", "before", "after", "effect"),
        [
            ("UNKEYED", (), ("A",), "MINOR"),
            ("KEYED", ("A",), (), "MAJOR"),
            ("KEYED", ("A",), ("B",), "MAJOR"),
            ("KEYED", ("A",), ("a",), None),
            ("KEYED", ("A",), ("A", "c"), "MAJOR"),
            ("UNKEYED", ("gone",), ("A",), "MINOR"),
            ("UNKEYED", ("gone",), (), None),
        ],
    )
    def test_changed_key_tells_its_effect_at_the_next_check(self, schema, before, after, effect):
        schema = {"UNKEYED": UNKEYED, "KEYED": replace(UNKEYED, key_columns=("a",))}[schema]
        assert effect_of(dataset("ds_a", key=before), dataset("ds_a", key=after), schema) == effect

    def test_shapes_that_are_placed_no_longer_are_a_removed_column(self):
        shaped = Schema((*UNKEYED.columns, Column("geometry", "geometry", True, "geometry", geometry_type="Point")))
        assert effect_of(dataset("ds_a", source=SHAPED), dataset("ds_a"), shaped) == "MAJOR"

    def test_nothing_can_break_before_the_first_release(self):
        assert effect_of(dataset("ds_a"), dataset("ds_a", drop=("B",), key=("A",)), None) is None
