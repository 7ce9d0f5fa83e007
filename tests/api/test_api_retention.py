"""Every answer before, at and after the limit of what is kept (page 001 "Retention", page 003, page 000, D12)."""

from dataclasses import replace
from datetime import timedelta

import pytest

from ploti_server.domain.versions import VersionStatus
from ploti_server.pipeline.prune import prune

DATASET = "/v1/feeds/datasets/ds_orange"
MOMENT = timedelta(milliseconds=1)
LIMIT = timedelta(days=90)
CHANGES, SNAPSHOT = "changes/part-0000.parquet", "snapshot/part-0000.parquet"


def code(answer):
    return answer.status_code, answer.json()["error"]["code"] if answer.status_code >= 400 else None


def answers(served, *numbers):
    return {number: served.get(f"{DATASET}/versions/{number}").status_code for number in numbers}


def links(served, number, *names):
    answer = served.post(f"{DATASET}/versions/{number}/links", {"files": list(names)}).json()
    return [file["file"] for file in answer["files"]], answer["missing"]


@pytest.fixture
def chain(served):
    """Versions 1 and 2 of MAJOR 1, 3 and 4 of MAJOR 2, 5 of MAJOR 3: all built and sent on one day."""
    served.subscription = served.subscribe(places=["fl-county-orange"])
    served.release("ds_orange", 1)
    served.release("ds_orange", 2, previous_version=1)
    served.release("ds_orange", 3, previous_version=2, schema_version="2.0", resync_reason="schema_changed")
    served.release("ds_orange", 4, previous_version=3, schema_version="3.0", resync_reason="schema_changed")
    served.release("ds_orange", 5, previous_version=4, schema_version="3.1")
    return served


def later(served, span=LIMIT):
    served.clock.advance(span)
    return prune(served.ports)


class TestVersions:
    def test_past_retention_answers_410_unless_newest_or_last_of_its_major_without_changes(self, chain):
        for span, gone in ((LIMIT - MOMENT, 200), (MOMENT, 410), (MOMENT, 410)):
            later(chain, span)
            assert answers(chain, 1, 2, 3, 4, 5) == {1: gone, 2: gone, 3: 200, 4: gone, 5: 200}
        answer = chain.get(f"{DATASET}/versions/1")
        assert code(answer) == (410, "expired")
        assert "load the dataset's current version" in answer.json()["error"]["message"]

    def test_what_is_left_of_it_is_listed_and_linked(self, chain):
        later(chain)
        assert links(chain, 2, CHANGES, SNAPSHOT) == ([SNAPSHOT], [CHANGES])
        files = chain.get(f"{DATASET}/versions/3").json()["files"]
        assert [len(files[kind]) for kind in ("snapshot", "changes")] == [1, 0]

        names = (CHANGES, SNAPSHOT, "manifest.json", "schema.json")
        assert links(chain, 4, *names) == (["manifest.json", "schema.json"], [CHANGES, SNAPSHOT])

        listed = chain.get(f"{DATASET}/versions").json()["versions"]
        assert [version["version"] for version in listed] == [1, 2, 3, 4, 5]
        assert chain.get(f"{DATASET}/schema?version=1").status_code == 200

    def test_files_count_from_when_the_version_was_built_and_events_from_when_they_were_sent(self, chain):
        built = chain.clock.now()
        chain.clock.advance(days=80)
        chain.release("ds_orange", 6, previous_version=5, schema_version="3.1", built_at=built)
        chain.release("ds_orange", 7, previous_version=6, schema_version="3.1")
        later(chain, timedelta(days=10))
        assert answers(chain, 6, 7) == {6: 410, 7: 200}
        assert [e["data"]["version"] for e in chain.events(chain.subscription, cursor="evt_000000000008")] == [6, 7]
        later(chain, timedelta(days=80) - MOMENT)
        assert len(chain.events(chain.subscription, cursor="evt_000000000008")) == 2
        later(chain, MOMENT)
        path = f"/v1/feeds/subscriptions/{chain.subscription}/events?cursor=evt_000000000008"
        assert code(chain.get(path)) == (410, "expired")

    def test_a_version_sent_long_after_its_build_loses_its_files_before_its_event(self, chain):
        built = chain.clock.now()
        chain.clock.advance(days=60)
        chain.release("ds_orange", 6, previous_version=5, schema_version="3.1", built_at=built)
        chain.release("ds_orange", 7, previous_version=6, schema_version="3.1")
        later(chain, timedelta(days=30))
        (event, _) = chain.events(chain.subscription, cursor="evt_000000000008")
        assert (event["type"], event["data"]["version"]) == ("feed.dataset.updated", 6)
        assert code(chain.get(event["data"]["links"]["version"])) == (410, "expired")

    def test_the_last_snapshot_of_a_major_can_still_be_had_to_catch_up_later(self, chain):
        later(chain, 3 * LIMIT)
        answer = chain.post(f"{DATASET}/versions/2/links", {"files": [SNAPSHOT]}).json()
        assert [chain.client.get(file["url"]).status_code for file in answer["files"]] == [200]

    def test_a_version_that_becomes_newest_again_is_offered_whole(self, chain):
        chain.version("ds_orange", 6, previous_version=5, schema_version="3.1")
        later(chain)
        assert answers(chain, 5, 6) == {5: 410, 6: 200}
        with chain.ports.store.write() as records:
            newest = records.versions.get("ds_orange", 6)
            records.versions.put(replace(newest, status=VersionStatus.RELEASED_AGAIN))
        later(chain, timedelta(days=30))
        assert answers(chain, 5, 6) == {5: 200, 6: 410}
        assert links(chain, 5, CHANGES, SNAPSHOT) == ([CHANGES, SNAPSHOT], [])


class TestLinks:
    def test_links_already_given_keep_working_for_their_hour(self, chain):
        chain.clock.advance(LIMIT - MOMENT)
        url = chain.get(f"{DATASET}/versions/1").json()["files"]["snapshot"][0]["url"]
        later(chain, MOMENT)
        assert answers(chain, 1) == {1: 410}
        for span, status in ((timedelta(hours=1) - 2 * MOMENT, 200), (MOMENT, 403)):
            later(chain, span)
            assert chain.client.get(url).status_code == status

    def test_files_go_an_hour_and_the_longest_download_later(self, chain):
        stored = "ds_orange/versions/1/1/snapshot/part-0000.parquet"
        later(chain)
        assert later(chain, timedelta(hours=25) - MOMENT).files == 0
        assert chain.ports.files.stat(stored)
        done = later(chain, MOMENT)
        assert (done.files, done.versions) == (2, ())
        assert chain.ports.files.stat(stored) is None
        assert chain.ports.files.stat("ds_orange/versions/1/1/manifest.json")
        assert later(chain, timedelta(0)).files == 0

    def test_a_moment_given_ahead_takes_no_link_its_time(self, chain):
        url = chain.get(f"{DATASET}/versions/1").json()["files"]["snapshot"][0]["url"]
        ahead = chain.clock.now() + timedelta(days=400)
        assert [one.version for one in prune(chain.ports, ahead).versions] == [1, 2, 4]
        assert prune(chain.ports, ahead + timedelta(days=400)).files == 0
        assert (answers(chain, 1), chain.client.get(url).status_code) == ({1: 410}, 200)


class TestEvents:
    def test_events_are_kept_for_90_days_from_when_they_were_sent(self, chain):
        for span, answered in ((LIMIT - MOMENT, (200, None)), (MOMENT, (410, "expired")), (MOMENT, (410, "expired"))):
            later(chain, span)
            answer = chain.get(f"/v1/feeds/subscriptions/{chain.subscription}/events?cursor=evt_000000000003")
            assert code(answer) == answered
        assert "manifest" in answer.json()["error"]["message"]
        assert code(chain.get(f"{answer.request.url.path}?cursor=evt_000000000007")) == (410, "expired")
        assert chain.events(chain.subscription, cursor="evt_000000000008") == []

    def test_a_log_keeps_what_is_younger_and_goes_on_without_a_gap(self, chain):
        chain.clock.advance(days=1)
        chain.release("ds_orange", 6, previous_version=5, schema_version="3.1")
        later(chain, LIMIT - timedelta(days=1))
        path = f"/v1/feeds/subscriptions/{chain.subscription}/events"
        first = chain.events(chain.subscription, cursor="evt_000000000008")[0]["id"]
        assert first == "evt_000000000009"
        assert code(chain.get(f"{path}?cursor=evt_000000000007")) == (410, "expired")
        assert code(chain.get(path)) == (410, "expired")
        chain.release("ds_orange", 7, previous_version=6, schema_version="3.1")
        assert [e["id"][-2:] for e in chain.events(chain.subscription, cursor="evt_000000000008")] == ["09", "10"]


class TestManifest:
    def test_without_as_of_it_is_never_410(self, chain):
        later(chain)
        later(chain, timedelta(days=1))
        found = chain.get(f"/v1/feeds/subscriptions/{chain.subscription}/manifest").json()
        assert [(one["datasetId"], one["version"]) for one in found["datasets"]] == [("ds_orange", 5)]
        url = found["datasets"][0]["files"]["snapshot"][0]["url"]
        assert chain.client.get(url).status_code == 200

    def test_as_of_is_410_once_any_event_up_to_it_was_pruned(self, chain):
        chain.clock.advance(days=1)
        chain.release("ds_orange", 6, previous_version=5, schema_version="3.1")
        for span, answered in ((LIMIT - MOMENT - timedelta(days=1), (200, None)), (MOMENT, (410, "expired"))):
            later(chain, span)
            answer = chain.get(f"/v1/feeds/subscriptions/{chain.subscription}/manifest?asOf=evt_000000000009")
            assert code(answer) == answered

    def test_as_of_is_410_where_a_listed_versions_snapshot_is_past_retention(self, chain):
        built = chain.clock.now()
        chain.clock.advance(days=80)
        late = chain.subscribe(places=["fl-county-orange"])
        chain.release("ds_orange", 6, previous_version=5, schema_version="3.1", built_at=built)
        chain.release("ds_orange", 7, previous_version=6, schema_version="3.1")
        path = f"/v1/feeds/subscriptions/{late}/manifest?asOf=evt_000000000004"
        assert code(chain.get(path)) == (200, None)
        later(chain, timedelta(days=10))
        assert code(chain.get(path)) == (410, "expired")
