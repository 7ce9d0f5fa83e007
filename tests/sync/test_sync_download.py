"""Downloads resume, are checked, renew links and never mix two builds (D11.6, F043)."""

import pytest

from ploti import Client, Reload, Retries
from ploti._download import Fetch
from ploti._http import Download
from ploti.errors import NoAnswer, RetryLater
from ploti.sync.download import Downloads, files_by_name
from ploti.sync.target import Progress, StepRefused
from ploti.testing import FakeApi

PART = bytes(range(256)) * 40
OTHER = bytes(reversed(range(256))) * 40
D = "ds_a"


@pytest.fixture
def api():
    api = FakeApi()
    api.add_dataset(D)
    api.subscribe(places=["fl-county-orange"])
    api.publish(D, files={"snapshot/part-0000.parquet": PART, "snapshot/part-0001.parquet": OTHER}, row_count=2)
    return api


class Waits(list):
    def __call__(self, seconds):
        self.append(seconds)


@pytest.fixture
def downloads(api, tmp_path):
    client = Client(**api.client_options, retries=Retries(attempts=1))
    return Downloads(client, tmp_path / "parts", sleep=Waits())


def fetch(downloads, version=1, files=None):
    listed = files or downloads.client.feeds.datasets.versions.get(D, version)["files"]
    return downloads.delivery(D, version, listed, "snapshot")


def link_calls(api):
    return [request for request in api.requests if request.path.endswith("/links")]


def part_requests(api):
    return [request for request in api.requests if "part-" in request.path]


def check_whole(delivery):
    assert [path.read_bytes() for path in delivery.snapshot] == [PART, OTHER]


def test_parts_come_whole_and_go_when_they_are_dropped(downloads):
    delivery = fetch(downloads)
    check_whole(delivery)
    downloads.drop(delivery)
    assert not any(path.exists() for path in delivery.paths)
    downloads.drop_all()
    assert not downloads.folder.exists()


def test_a_cut_download_goes_on_from_where_it_broke(api, downloads):
    api.cut_next_download(4000, pattern="part-0000")
    check_whole(fetch(downloads))
    asked = [request.headers.get("range") for request in part_requests(api)]
    assert asked == [None, "bytes=4000-", None]
    assert "if-range" in part_requests(api)[1].headers


def test_a_killed_download_goes_on_in_the_next_run(api, downloads):
    api.cut_next_download(4000, pattern="part-0000")
    api.fail_next("^/files/.*part-0000", 500, times=5)
    with pytest.raises(StepRefused, match="part-0000"):
        fetch(downloads)
    api.requests.clear()
    check_whole(fetch(Downloads(downloads.client, downloads.folder)))
    assert part_requests(api)[0].headers["range"] == "bytes=4000-"


def test_what_is_there_already_is_not_fetched_again(api, downloads):
    fetch(downloads)
    api.requests.clear()
    check_whole(fetch(downloads))
    assert part_requests(api) == []


@pytest.mark.parametrize("spoil", [lambda part: bytes(len(part)), lambda part: b"\x01" + part[1:], lambda part: b""])
def test_what_an_earlier_run_left_is_checked_again(api, downloads, spoil):
    left = fetch(downloads).snapshot[0]
    left.write_bytes(spoil(PART))
    api.requests.clear()
    check_whole(fetch(downloads))
    assert len(part_requests(api)) == 1


def test_wrong_bytes_are_fetched_once_more(api, downloads):
    api.corrupt_next_download(pattern="part-0000")
    check_whole(fetch(downloads))
    assert len(part_requests(api)) == 3


def test_bytes_that_stay_wrong_are_refused_and_not_kept(api, downloads):
    api.corrupt_next_download(pattern="part-0000", times=99)
    with pytest.raises(StepRefused, match="does not have the checksum"):
        fetch(downloads)
    assert not [path for path in downloads.folder.iterdir() if path.read_bytes() not in {PART, OTHER} and path.suffix]


def test_expired_links_are_renewed_with_one_call_for_all_that_is_missing(api, downloads):
    files = downloads.client.feeds.datasets.versions.get(D, 1)["files"]
    api.expire_links()
    check_whole(fetch(downloads, files=files))
    assert len(link_calls(api)) == 1


def test_each_expiry_costs_one_call_at_most(api, downloads):
    files = downloads.client.feeds.datasets.versions.get(D, 1)["files"]
    api.refuse_next_link()
    api.cut_next_download(4000, pattern="part-0000")
    fetch(downloads, files=files)
    assert len(link_calls(api)) == 1


def test_links_that_never_work_end_in_a_refusal(api, downloads):
    files = downloads.client.feeds.datasets.versions.get(D, 1)["files"]
    api.refuse_next_link(times=99)
    with pytest.raises(StepRefused, match="fresh one"):
        fetch(downloads, files=files)
    assert len(link_calls(api)) == 1


def test_two_builds_are_never_mixed(api, downloads):
    files = downloads.client.feeds.datasets.versions.get(D, 1)["files"]
    api.cut_next_download(4000, pattern="part-0000")
    api.rebuild(D, 1, {"snapshot/part-0001.parquet": PART + b"more"})
    with pytest.raises(StepRefused, match="built again"):
        fetch(downloads, files=files)
    delivery = fetch(downloads)
    assert [path.read_bytes() for path in delivery.snapshot] == [PART, PART + b"more"]


def announced(files, **facts):
    return {**files, "snapshot": [{**files["snapshot"][0], **facts}]}


LIES = [
    ("a huge size", {"sizeBytes": 10**12}, "1000000000000 bytes"),
    ("a negative size", {"sizeBytes": -1}, "-1 bytes"),
    ("a checksum of another build", {"sha256": "0" * 64}, "built again"),
    ("a smaller size than the file has", {"sizeBytes": 10}, "another size"),
]


@pytest.mark.parametrize(("facts", "why"), [row[1:] for row in LIES], ids=[row[0] for row in LIES])
def test_a_lying_server_is_refused(downloads, facts, why):
    files = downloads.client.feeds.datasets.versions.get(D, 1)["files"]
    with pytest.raises(StepRefused, match=why):
        fetch(downloads, files=announced(files, **facts))


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"[]", "lacks one of"),
        (b"{", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b'{"datasetId": "ds_a"}', "lacks one of"),
    ],
)
def test_documents_that_make_no_sense_are_refused(api, downloads, content, why):
    api.publish(D, files={"snapshot/part-0000.parquet": PART, "manifest.json": content}, reason="schema_changed")
    with pytest.raises(StepRefused, match=why):
        fetch(downloads, 2)


def test_the_documents_of_another_version_are_refused(api, downloads):
    first = downloads.client.feeds.datasets.versions.get(D, 1)["files"]
    with pytest.raises(StepRefused, match="another version"):
        fetch(downloads, 2, first)


def test_a_server_in_trouble_is_waited_for_longer_each_time(api, downloads):
    api.fail_next("^/files/.*part-0000", 503, times=3)
    check_whole(fetch(downloads))
    assert downloads.sleep == [1.0, 2.0, 4.0]


def test_an_api_out_of_reach_is_not_one_datasets_trouble(api, downloads):
    files = downloads.client.feeds.datasets.versions.get(D, 1)["files"]
    api.expire_links()
    api.drop_next("/links")
    with pytest.raises(NoAnswer):
        fetch(downloads, files=files)


class Counting(Progress):
    def __init__(self):
        self.total, self.done = 0, 0

    def began(self, dataset_id, doing, total_bytes):
        self.total = total_bytes

    def moved(self, count):
        self.done += count


def test_progress_tells_what_there_is_and_what_came(downloads, tmp_path):
    watch = Counting()
    fetch(Downloads(downloads.client, tmp_path / "other", watch))
    assert watch.total == len(PART) + len(OTHER)
    assert watch.done >= watch.total


def test_a_snapshot_is_had_by_name_where_the_version_is_past_retention(downloads):
    delivery = fetch(downloads, files=files_by_name(downloads, D, 1))
    check_whole(delivery)


def test_a_snapshot_that_is_gone_is_a_reload(api, downloads):
    api.keep(D, 1, "pruned")
    with pytest.raises(Reload):
        files_by_name(downloads, D, 1)


def test_a_checksum_that_is_a_path_is_refused(downloads):
    files = downloads.client.feeds.datasets.versions.get(D, 1)["files"]
    with pytest.raises(StepRefused, match="refused"):
        fetch(downloads, files={**files, "schema": {**files["schema"], "sha256": "../../etc/passwd"}})


class Slow:
    """A clock that moves on by half a minute at each look."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        self.now += 30.0
        return self.now


def test_a_part_that_only_drips_is_given_up(downloads, tmp_path):
    slow = Fetch(downloads.client.http, "part", 1000, "0" * 64, link=str, renew=str, clock=Slow())
    with (tmp_path / "part").open("wb") as out, pytest.raises(RetryLater, match="too slowly"):
        slow.pour(out, Download(0, None, None, iter([b"x"] * 100)))


def test_connections_that_break_after_each_byte_end(api, downloads):
    api.cut_next_download(1, pattern="part-0000", times=99)
    with pytest.raises(StepRefused, match="part-0000"):
        fetch(downloads)
    assert len(part_requests(api)) == 6
