"""Files of a version on disk and in memory: resumed, checked, links renewed, safe names, four libraries (D11.6)."""

import hashlib
from concurrent.futures import ThreadPoolExecutor
from datetime import date

import pytest

import ploti
from ploti._download import Fetch, GivenUp, safe_name
from ploti.testing.feed import Feed, record_id

D = "ds_orange_permits"
SNAPSHOT = "snapshot/part-0000.parquet"
CONTENT = bytes(range(256)) * 40
COLUMNS = {"number": "string", "units": "integer", "value": "number", "open": "boolean", "day": "date"}
COLUMNS |= {"geometry": "geometry"}
POINT = bytes.fromhex("0101000000000000000000F03F0000000000000040")
ROWS = {
    record_id(1): {
        "number": "0012", "units": 2**53 + 1, "value": 0.5, "open": True, "day": date(1600, 2, 29), "geometry": POINT,
    },
    record_id(2): dict.fromkeys(COLUMNS),
}  # fmt: skip


@pytest.fixture
def stored(fake):
    fake.publish(
        D, files={SNAPSHOT: CONTENT}, row_count=1, attachments={"document:ab12": b"%PDF"}, reason="schema_changed"
    )
    return fake


@pytest.fixture
def versions(stored):
    with ploti.Client(**stored.client_options, retries=ploti.Retries(first_wait=0)) as client:
        yield client.feeds.datasets.versions


def parts(fake):
    return [request for request in fake.requests if request.path.startswith("/files/")]


def test_a_file_is_had_by_path_under_the_name_given(versions, tmp_path):
    came = []
    path = versions.download(D, 3, SNAPSHOT, tmp_path / "permits.parquet", progress=came.append)
    assert path == tmp_path / "permits.parquet"
    assert (path.read_bytes(), sum(came)) == (CONTENT, len(CONTENT))
    assert list(tmp_path.iterdir()) == [path]


def test_in_a_folder_a_file_has_its_own_name(versions, tmp_path):
    assert versions.download(D, 3, "document:ab12", str(tmp_path)) == tmp_path / "ab12.pdf"


def test_what_is_there_is_not_fetched_again_and_another_file_is_kept(stored, versions, tmp_path):
    """F079."""
    (tmp_path / "ab12.pdf").write_bytes(b"mine")
    first = versions.download(D, 3, "document:ab12", tmp_path)
    stored.requests.clear()
    assert versions.download(D, 3, "document:ab12", tmp_path) == first
    assert parts(stored) == []
    assert first.read_bytes() == b"%PDF"
    assert first.name == f"ab12-{hashlib.sha256(b'%PDF').hexdigest()[:12]}.pdf"
    assert (tmp_path / "ab12.pdf").read_bytes() == b"mine"


def test_a_download_that_broke_goes_on_in_a_later_call(stored, versions, tmp_path):
    stored.cut_next_download(4000)
    stored.refuse_next_link(times=2)
    to = tmp_path / "part"
    with pytest.raises(ploti.LinkExpired):
        versions.download(D, 3, SNAPSHOT, to)
    assert not to.exists()
    assert versions.download(D, 3, SNAPSHOT, to).read_bytes() == CONTENT
    asked = parts(stored)[-1].headers
    assert asked["range"] == "bytes=4000-"
    assert asked["if-range"]


def test_who_wants_the_same_file_at_once_waits_for_the_one_who_fetches_it(stored, tmp_path):
    """Two jobs with one folder: before, one wrote into the file that the other had finished."""
    to = tmp_path / "part"
    stored.delay_next("/files/", 0.2, times=9)
    (tmp_path / "part.lock").touch()  # left by a process that was killed
    with stored.serve() as url, ploti.Client(stored.api_key, url) as client, ThreadPoolExecutor(6) as pool:
        download = client.feeds.datasets.versions.download
        begun = [pool.submit(lambda: download(D, 3, SNAPSHOT, to).read_bytes()) for _ in range(6)]
        assert [one.result() for one in begun] == [CONTENT] * 6
    assert len(parts(stored)) == 1
    assert list(tmp_path.iterdir()) == [to]


def test_a_link_that_expires_is_renewed_once(stored, versions, tmp_path):
    stored.refuse_next_link()
    versions.download(D, 3, SNAPSHOT, tmp_path)
    assert [request.method for request in stored.requests] == ["POST", "GET", "POST", "GET"]


def test_a_version_built_again_meanwhile_is_read_again(stored, versions, tmp_path):
    stored.cut_next_download(4000)

    def rebuild(count):
        stored.rebuild(D, 3, {SNAPSHOT: CONTENT + b"more"})

    with pytest.raises(ploti.ReadAgain, match="built again"):
        versions.download(D, 3, SNAPSHOT, tmp_path / "part", progress=rebuild)
    assert versions.download(D, 3, SNAPSHOT, tmp_path / "part").read_bytes() == CONTENT + b"more"


@pytest.mark.parametrize(
    ("spoil", "error"),
    [
        (lambda fake: fake.corrupt_next_download(times=9), ploti.BadAnswer),
        (lambda fake: fake.refuse_next_link(times=9), ploti.LinkExpired),
        (lambda fake: fake.fail_next("/links", 410, "expired"), ploti.Reload),
        (lambda fake: fake.fail_next("/links", 409, "not_subscribed"), ploti.NotDelivered),
    ],
)
def test_what_cannot_be_had_says_what_to_do_next(stored, versions, tmp_path, spoil, error):
    spoil(stored)
    with pytest.raises(error):
        versions.download(D, 3, SNAPSHOT, tmp_path)
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".parquet"] == []


def test_a_file_that_the_version_does_not_have_is_not_found(versions, tmp_path):
    with pytest.raises(ploti.NotFound, match="original"):
        versions.download(D, 3, "original", tmp_path)


def test_a_checksum_that_is_none_is_refused(tmp_path):
    with pytest.raises(GivenUp, match="refused"):
        Fetch(None, "x", 1, "../../etc/passwd", link=str, renew=str).into(tmp_path / "x")


@pytest.mark.parametrize(
    ("sent", "safe"),
    [
        ("Zoning Map.pdf", "Zoning Map.pdf"),
        ("../../.bashrc", "_.._.bashrc"),
        ("/etc/x", "_etc_x"),
        ("CON", "_CON"),
        ("com1.txt", "_com1.txt"),
        ("console.txt", "console.txt"),
        ("a\0b\x1b.pdf", "a_b_.pdf"),
        ("a\u202ecod.exe", "a_cod.exe"),
        ('a:b*c?"<>|.pdf', "a_b_c_____.pdf"),
        ("name. ", "name"),
        ("", "file"),
        ("..", "file"),
        ("x" * 300 + ".pdf", "x" * 146 + ".pdf"),
        ("é" * 300, "é" * 74),
        ("a.b" + "c" * 300, "a.b" + "c" * 146),
        ("Ordenanza n.º 12.pdf", "Ordenanza n.º 12.pdf"),
    ],
)
def test_a_name_that_a_server_sent_stays_in_its_folder(tmp_path, sent, safe):
    """F079."""
    assert safe_name(sent) == safe
    (tmp_path / safe).write_bytes(b"")
    assert [path.name for path in tmp_path.iterdir()] == [safe]


@pytest.fixture(scope="module")
def feed():
    feed = Feed()
    feed.add(D, COLUMNS, ROWS)
    feed.reload(D, ROWS, "previous_unavailable", parts=2)
    feed.update(D, drop=[record_id(2)])
    feed.api.add_dataset("ds_waiting")
    return feed


@pytest.fixture
def reading(feed):
    with ploti.Client(**feed.api.client_options, retries=ploti.Retries(first_wait=0)) as client:
        yield client.feeds.datasets.versions


ROWS_OF = {
    "arrow": lambda table: table.select(list(COLUMNS)).to_pylist(),
    "pandas": lambda frame: frame[list(COLUMNS)].astype(object).where(frame.notna(), None).to_dict("records"),
    "polars": lambda frame: frame.select(list(COLUMNS)).to_dicts(),
    "duckdb": lambda relation: [
        dict(zip(COLUMNS, row, strict=True))
        for row in relation.project(", ".join(f'"{name}"' for name in COLUMNS)).fetchall()
    ],
}


@pytest.mark.parametrize("as_", ROWS_OF)
def test_a_version_is_read_value_by_value(reading, as_):
    """Parts of one version are one table; a null beside a whole number keeps it whole."""
    table = reading.read(D, 2, as_=as_)
    found = sorted(ROWS_OF[as_](table), key=lambda row: row["number"] or "~")
    assert found == list(ROWS.values())


def test_the_current_version_and_its_changes(reading):
    assert reading.read(D).num_rows == 1
    assert reading.read(D, what="changes")["_ploti_op"].to_pylist() == ["delete"]


@pytest.mark.parametrize(
    ("call", "error", "told"),
    [
        ({"version": 1, "what": "changes"}, ploti.FixRequest, "no changes parts"),
        ({"as_": "excel"}, ploti.FixRequest, "arrow, pandas, polars, duckdb"),
        ({"dataset": "ds_waiting"}, ploti.Reload, "no released version yet"),
    ],
)
def test_what_cannot_be_read_is_told(reading, call, error, told):
    with pytest.raises(error, match=told):
        reading.read(**{"dataset": D, **call})


def test_without_the_library_the_extra_is_named(run_python):
    code = """
import sys
import ploti
for name in ("pyarrow", "pandas", "polars", "duckdb"):
    sys.modules[name] = None
for as_ in ("arrow", "pandas", "polars", "duckdb"):
    try:
        ploti.feeds.datasets.versions.read("ds_a", 1, as_=as_)
    except ploti.FixRequest as problem:
        print(problem.message)
"""
    assert run_python(code).splitlines() == [
        'Reading as arrow needs pyarrow: pip install "ploti[arrow]"',
        'Reading as pandas needs pandas and pyarrow: pip install "ploti[pandas]"',
        'Reading as polars needs polars: pip install "ploti[polars]"',
        'Reading as duckdb needs duckdb: pip install "ploti[sync]"',
    ]
