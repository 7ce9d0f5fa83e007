"""The manifest as of an event, and versions whose files are gone (page 000 "The manifest", D7.4, page 001)."""

from dataclasses import replace

import pytest
from tests.api.conftest import error

from ploti_server.adapters import store_tables as tables
from ploti_server.domain.versions import VersionStatus
from ploti_server.pipeline.workspaces import set_workspace

SUBSCRIPTIONS = "/v1/feeds/subscriptions"


def cursor(number):
    return f"evt_{number:012d}"


def manifest(served, subscription, **query):
    answer = served.get(f"{SUBSCRIPTIONS}/{subscription}/manifest", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def refused(served, subscription, as_of):
    return error(served.get(f"{SUBSCRIPTIONS}/{subscription}/manifest", params={"asOf": as_of}))


def listed(found):
    return [(d["datasetId"], d["version"]) for d in found["datasets"]]


def lose(served, version, *kinds):
    """Lose a version's files from the file store."""
    for kind in kinds:
        for file in version.files_of(kind):
            served.ports.files.remove(f"{version.folder}/{file.path}")


def release_again(served, dataset_id, number):
    with served.ports.store.write() as records:
        version = records.versions.get(dataset_id, number)
        records.versions.put(replace(version, status=VersionStatus.RELEASED_AGAIN))


@pytest.fixture
def log(served_on_each):
    """Orange County's three datasets. Events: 1-3 added, 4 resync v1, 5 updated v2, 6 resync v1 of another, 7 v3."""
    served = served_on_each
    subscription = served.subscribe(places=["fl-county-orange"])
    served.release("ds_orange", 1)
    served.release("ds_orange", 2, previous_version=1)
    served.release("ds_both", 1)
    served.release("ds_orange", 3, previous_version=2)
    return served, subscription


class TestAsOf:
    @pytest.mark.parametrize(
        ("number", "versions"),
        [
            (0, []),
            (3, []),
            (4, [("ds_orange", 1)]),
            (5, [("ds_orange", 2)]),
            (6, [("ds_both", 1), ("ds_orange", 2)]),
            (7, [("ds_both", 1), ("ds_orange", 3)]),
        ],
    )
    def test_datasets_and_versions_are_rebuilt_as_of_that_event(self, log, number, versions):
        served, subscription = log
        found = manifest(served, subscription, asOf=cursor(number))
        assert (found["eventCursor"], listed(found)) == (cursor(number), versions)
        names = [d["datasetId"] for d in (*found["datasets"], *found["unavailable"])]
        assert sorted(names) == (["ds_both", "ds_orange", "ds_orange_zoning"] if number >= 3 else [])

    def test_links_are_fresh(self, log):
        served, subscription = log
        first = manifest(served, subscription, asOf=cursor(5))
        served.clock.advance(minutes=59)
        again = manifest(served, subscription, asOf=cursor(5))
        served.clock.advance(minutes=2)
        urls = [one["datasets"][0]["files"]["snapshot"][0]["url"] for one in (first, again)]
        assert [served.client.get(url).status_code for url in urls] == [403, 200]

    def test_nothing_is_brought_up_to_date(self, log):
        served, subscription = log
        with served.ports.store.write() as records:
            records.catalog.put_dataset(replace(records.catalog.dataset("ds_kings"), place="fl-county-orange"))
        manifest(served, subscription, asOf=cursor(7))
        assert len(served.events(subscription)) == 7

    def test_no_links_to_a_dataset_removed_since(self, log):
        served, subscription = log
        served.put_catalog(replace(_stored(served, "ds_orange"), retired=True))
        assert listed(manifest(served, subscription, asOf=cursor(7))) == [("ds_both", 1)]

    def test_no_links_to_a_dataset_that_coverage_or_plan_no_longer_opens(self, log):
        served, subscription = log
        with served.ports.store.write() as records:
            workspace = records.workspaces.named("florida")
            records.workspaces.put(replace(workspace, topics=("zoning",)))
        found = manifest(served, subscription, asOf=cursor(7))
        assert [d["datasetId"] for d in (*found["datasets"], *found["unavailable"])] == ["ds_orange_zoning"]

    def test_dataset_that_left_and_came_back_is_listed_as_it_was(self, log):
        served, subscription = log
        set_workspace(served.ports, "florida", ["fl-county-lake"])
        set_workspace(served.ports, "florida", ["fl-county-orange"])
        assert listed(manifest(served, subscription, asOf=cursor(5))) == [("ds_orange", 2)]
        gone = manifest(served, subscription, asOf=cursor(10))
        assert (gone["datasets"], gone["unavailable"]) == ([], [])

    def test_pages_share_the_event(self, log):
        served, subscription = log
        first = manifest(served, subscription, asOf=cursor(6), limit=2)
        assert listed(first) == [("ds_both", 1), ("ds_orange", 2)]
        rest = manifest(served, subscription, asOf=cursor(6), limit=2, cursor=first["nextCursor"])
        assert [d["datasetId"] for d in rest["unavailable"]] == ["ds_orange_zoning"]
        assert (rest["nextCursor"], rest["eventCursor"]) == (None, cursor(6))
        path = f"{SUBSCRIPTIONS}/{subscription}/manifest"
        other = served.get(path, params={"asOf": cursor(5), "cursor": first["nextCursor"]})
        assert error(other) == (400, "invalid_input", "cursor")

    def test_as_of_needs_the_plan(self, log):
        served, subscription = log
        served.plans.available = False
        assert refused(served, subscription, cursor(7))[:2] == (503, "plan_unavailable")


class TestAsOfRefused:
    @pytest.mark.parametrize("as_of", [cursor(8), "evt_8", "", "8", cursor(8).upper()])
    def test_past_the_newest_event_or_malformed_is_invalid_input(self, log, as_of):
        served, subscription = log
        assert refused(served, subscription, as_of) == (400, "invalid_input", "asOf")

    def test_version_it_reached_that_was_released_again_is_expired(self, log):
        served, subscription = log
        release_again(served, "ds_orange", 2)
        assert refused(served, subscription, cursor(5)) == (410, "expired", "asOf")
        assert listed(manifest(served, subscription, asOf=cursor(4))) == [("ds_orange", 1)]
        assert listed(manifest(served, subscription, asOf=cursor(7))) == [("ds_both", 1), ("ds_orange", 3)]

    def test_listed_versions_snapshot_past_retention_is_expired(self, log):
        served, subscription = log
        with served.ports.store.read() as records:
            version = records.versions.get("ds_orange", 2)
        lose(served, version, "snapshot")
        assert refused(served, subscription, cursor(5)) == (410, "expired", "asOf")
        assert listed(manifest(served, subscription, asOf=cursor(7))) == [("ds_both", 1), ("ds_orange", 3)]

    @pytest.mark.parametrize("why", ["an event pruned", "a version released again", "a snapshot past retention"])
    def test_410_is_for_what_the_log_or_the_files_cannot_give_any_more(self, log, why):
        served, subscription = log
        assert manifest(served, subscription, asOf=cursor(5))["eventCursor"] == cursor(5)
        with served.ports.store.read() as records:
            version = records.versions.get("ds_orange", 2)
        if why == "an event pruned":
            with served.ports.store.write() as records:
                records.events.drop_through(subscription, 1)
        elif why == "a version released again":
            release_again(served, "ds_orange", 2)
        else:
            lose(served, version, "snapshot")
        assert refused(served, subscription, cursor(5)) == (410, "expired", "asOf")

    def test_snapshot_that_the_row_no_longer_lists_is_expired(self, log):
        served, subscription = log
        with served.ports.store.write() as records:
            version = records.versions.get("ds_orange", 2)
            kept = tuple(f for f in version.files if not f.path.startswith("snapshot/"))
            records.versions.put(replace(version, files=kept))
        assert refused(served, subscription, cursor(5)) == (410, "expired", "asOf")

    def test_current_version_whose_files_are_gone_is_rebuilding_also_as_of_an_event(self, log):
        served, subscription = log
        with served.ports.store.read() as records:
            version = records.versions.get("ds_orange", 3)
        lose(served, version, "snapshot")
        found = manifest(served, subscription, asOf=cursor(7))
        assert {"datasetId": "ds_orange", "version": 3, "reason": "rebuilding"} in found["unavailable"]


def test_once_the_first_event_was_pruned_every_as_of_is_expired_and_the_manifest_itself_is_not(served_on_sqlite):
    served = served_on_sqlite
    subscription = served.subscribe(places=["fl-county-orange"])
    for through in (1, 2, 3):
        with served.ports.store.write() as records:
            records.events._in.change(tables.events.delete().where(tables.events.c.number <= through))
        for number in (0, 1, 3):
            assert refused(served, subscription, cursor(number)) == (410, "expired", "asOf")
        assert refused(served, subscription, cursor(4)) == (400, "invalid_input", "asOf")
        assert manifest(served, subscription)["eventCursor"] == cursor(3)


class TestRebuilding:
    @pytest.fixture
    def rebuilt(self, log):
        """A manifest that was asked for while the files of a current version were being rebuilt."""
        served, subscription = log
        with served.ports.store.read() as records:
            current = records.versions.get("ds_orange", 3)
        lose(served, current, "snapshot")
        return served, subscription, current, manifest(served, subscription)

    def test_files_being_rebuilt_are_listed_with_their_version(self, rebuilt):
        *_, found = rebuilt
        assert listed(found) == [("ds_both", 1)]
        assert found["unavailable"][0] == {"datasetId": "ds_orange", "version": 3, "reason": "rebuilding"}

    def test_once_they_are_back_a_manifest_has_them_to_load(self, rebuilt):
        served, subscription, current, _ = rebuilt
        (file,) = current.files_of("snapshot")
        served.ports.files.put_bytes(f"{current.folder}/{file.path}", b"x" * file.size_bytes)
        found = manifest(served, subscription)
        assert listed(found) == [("ds_both", 1), ("ds_orange", 3)]
        assert "rebuilding" not in [one["reason"] for one in found["unavailable"]]

    def test_events_after_the_cursor_still_apply_to_what_is_being_rebuilt(self, rebuilt):
        served, subscription, _, found = rebuilt
        served.release("ds_orange", 4, previous_version=3)
        after = served.events(subscription, cursor=found["eventCursor"])
        assert [(event["data"]["version"], event["data"]["previousVersion"]) for event in after] == [(4, 3)]
        assert served.get(after[0]["data"]["links"]["version"]).status_code == 200

    def test_version_whose_files_are_being_rebuilt_says_so(self, log):
        served, _ = log
        with served.ports.store.read() as records:
            current = records.versions.get("ds_orange", 3)
        lose(served, current, "changes")
        answer = served.get("/v1/feeds/datasets/ds_orange/versions/3")
        assert error(answer)[:2] == (410, "expired")
        assert "being rebuilt" in answer.json()["error"]["message"]


class TestPastRetention:
    @pytest.mark.parametrize(
        ("number", "kinds"),
        [(1, ["snapshot"]), (2, ["snapshot"]), (2, ["changes"]), (2, ["snapshot", "changes"]), (2, ["schema"])],
    )
    def test_version_past_retention_is_expired(self, log, number, kinds):
        served, _ = log
        with served.ports.store.read() as records:
            version = records.versions.get("ds_orange", number)
        lose(served, version, *kinds)
        answer = served.get(f"/v1/feeds/datasets/ds_orange/versions/{number}")
        assert error(answer)[:2] == (410, "expired")
        assert "current version" in answer.json()["error"]["message"]
        schema = served.get(f"/v1/feeds/datasets/ds_orange/schema?version={number}")
        assert schema.status_code == 200

    def test_links_list_what_is_gone_under_missing(self, log):
        served, _ = log
        with served.ports.store.read() as records:
            version = records.versions.get("ds_orange", 2)
        lose(served, version, "changes")
        names = ["changes/part-0000.parquet", "snapshot/part-0000.parquet", "nothing"]
        answer = served.post("/v1/feeds/datasets/ds_orange/versions/2/links", {"files": names}).json()
        assert [file["file"] for file in answer["files"]] == ["snapshot/part-0000.parquet"]
        assert answer["missing"] == ["changes/part-0000.parquet", "nothing"]


def _stored(served, dataset_id):
    with served.ports.store.read() as records:
        return records.catalog.dataset(dataset_id)
