"""The manifest of a subscription, a test for each sentence of page 000 about it as it is now (D7.3, D8.4)."""

from dataclasses import replace

import pytest
from tests.api.conftest import error, stored, told
from tests.api.test_api_attachments import attached

from ploti_server.domain.checks import CheckStatus
from ploti_server.domain.schema import Column, Schema
from ploti_server.domain.versions import VersionStatus
from ploti_server.pipeline.workspaces import set_workspace

SUBSCRIPTIONS = "/v1/feeds/subscriptions"
VERSIONS = "/v1/feeds/datasets/ds_orange/versions"


def put_unnoticed(served, *changed):
    """Change datasets without bringing any subscription up to date."""
    with served.ports.store.write() as records:
        for one in changed:
            records.catalog.put_dataset(one)


def narrow_unnoticed(served, **fields):
    """Change what the workspace's coverage or plan opens without bringing any subscription up to date."""
    with served.ports.store.write() as records:
        records.workspaces.put(replace(records.workspaces.named("florida"), **fields))


NARROWED = {
    "coverage": ({"coverage": ("fl-county-seminole",)}, ["ds_orange", "ds_orange_zoning"], "left_coverage"),
    "plan": ({"topics": ("zoning",)}, ["ds_both", "ds_orange"], "plan_changed"),
}


class TestManifest:
    def manifest(self, served, subscription, **query):
        answer = served.get(f"{SUBSCRIPTIONS}/{subscription}/manifest", params=query)
        assert answer.status_code == 200, answer.text
        assert answer.headers["cache-control"] == "no-store"
        return answer.json()

    def test_manifest_lists_released_versions_with_links_and_says_why_others_are_missing(self, served):
        served.version("ds_orange", 3)
        served.version("ds_both", 1, status=VersionStatus.HELD, reasons=("data_check",))
        subscription = served.subscribe(places=["fl-county-orange"])
        manifest = self.manifest(served, subscription)
        assert [(d["datasetId"], d["version"], d["keyed"]) for d in manifest["datasets"]] == [("ds_orange", 3, True)]
        snapshot = manifest["datasets"][0]["files"]["snapshot"][0]
        assert len(served.client.get(snapshot["url"]).content) == snapshot["sizeBytes"]
        assert manifest["unavailable"] == [
            {"datasetId": "ds_both", "reason": "held"},
            {"datasetId": "ds_orange_zoning", "reason": "building"},
        ]
        assert (manifest["eventCursor"], manifest["nextCursor"]) == ("evt_000000000004", None)

    def test_events_after_the_cursor_start_where_the_snapshots_end(self, served):
        served.version("ds_orange", 1)
        subscription = served.subscribe(places=["fl-county-orange"])
        cursor = self.manifest(served, subscription)["eventCursor"]
        served.release("ds_orange", 2, previous_version=1)
        assert told(served.events(subscription, cursor=cursor)) == [("updated", "ds_orange")]

    def test_manifest_brings_membership_up_to_date_before_its_cursor(self, served):
        subscription = served.subscribe(places=["fl-county-orange"])
        put_unnoticed(
            served,
            replace(stored(served, "ds_orange"), retired=True),
            replace(stored(served, "ds_kings"), place="fl-county-orange"),
        )
        manifest = self.manifest(served, subscription)
        assert told(served.events(subscription))[3:] == [("removed", "ds_orange"), ("added", "ds_kings")]
        assert manifest["eventCursor"] == "evt_000000000005"
        listed = [d["datasetId"] for d in manifest["unavailable"]]
        assert listed == ["ds_both", "ds_kings", "ds_orange_zoning"]

    @pytest.mark.parametrize(("fields", "leaving", "reason"), NARROWED.values(), ids=NARROWED)
    def test_what_coverage_or_plan_no_longer_opens_leaves_before_its_cursor(self, served, fields, leaving, reason):
        subscription = served.subscribe(places=["fl-county-orange"])
        narrow_unnoticed(served, **fields)
        cursor = self.manifest(served, subscription)["eventCursor"]
        left = served.events(subscription)[3:]
        assert [(e["data"]["datasetId"], e["data"]["reason"]) for e in left] == [(one, reason) for one in leaving]
        assert cursor == left[-1]["id"]
        assert served.events(subscription, cursor=cursor) == []

    @pytest.mark.parametrize("way", ["unsubscribed", "coverage", "plan"])
    def test_a_dataset_is_listed_only_while_it_is_delivered_and_opened(self, served, way):
        served.version("ds_orange", 1)
        subscription = served.subscribe(places=["fl-county-orange", "fl-county-seminole"])
        assert [d["datasetId"] for d in self.manifest(served, subscription)["datasets"]] == ["ds_orange"]
        if way == "unsubscribed":
            served.patch(f"{SUBSCRIPTIONS}/{subscription}", {"places": ["fl-county-seminole"], "revision": 1})
        else:
            narrow_unnoticed(served, **NARROWED[way][0])
        after = self.manifest(served, subscription)
        assert after["datasets"] == []
        assert "ds_orange" not in [d["datasetId"] for d in after["unavailable"]]

    def test_each_dataset_comes_with_its_version_and_links_to_load_it(self, served):
        served.version("ds_orange", 1)
        newest = served.version("ds_orange", 2, previous_version=1)
        subscription = served.subscribe(places=["fl-county-orange"])
        (listed,) = self.manifest(served, subscription)["datasets"]
        assert (listed["version"], listed["schemaVersion"]) == (2, "1.0")
        for link, path in (
            (listed["files"]["snapshot"][0], "snapshot/part-0000.parquet"),
            (listed["files"]["schema"], "schema.json"),
        ):
            assert served.client.get(link["url"]).content == b"".join(
                served.ports.files.read(f"{newest.folder}/{path}")
            )
        assert listed["files"]["attachments"] == []

    def test_keyed_is_that_of_the_version_listed(self, served):
        plain = Schema((Column("id", "string", False, "id"),))
        served.version("ds_orange", 1, schema=plain)
        subscription = served.subscribe(places=["fl-county-orange"])
        assert self.manifest(served, subscription)["datasets"][0]["keyed"] is False
        served.version("ds_orange", 2, previous_version=1, status=VersionStatus.HELD, reasons=("schema_review",))
        assert self.manifest(served, subscription)["datasets"][0]["keyed"] is False
        served.version("ds_orange", 2, previous_version=1)
        assert self.manifest(served, subscription)["datasets"][0]["keyed"] is True

    @pytest.mark.parametrize("reason", ["building", "held", "failed", "awaiting_release"])
    def test_a_dataset_without_a_version_is_listed_with_its_status_as_the_reason(self, served, reason):
        subscription = served.subscribe(places=["fl"])
        if reason == "held":
            served.version("ds_florida", 1, status=VersionStatus.HELD, reasons=("data_check",))
        if reason == "failed":
            served.check("ds_florida", status=CheckStatus.FAILED)
        if reason == "awaiting_release":
            source = replace(stored(served, "ds_florida").source, url="/nowhere/licences.csv")
            put_unnoticed(served, replace(stored(served, "ds_florida"), source=source))
        found = self.manifest(served, subscription)
        assert (found["datasets"], found["unavailable"]) == ([], [{"datasetId": "ds_florida", "reason": reason}])
        assert served.get("/v1/feeds/datasets/ds_florida").json()["status"] == reason

    def test_repeated_manifest_appends_nothing(self, served):
        subscription = served.subscribe(places=["fl-county-orange"])
        assert self.manifest(served, subscription)["eventCursor"] == self.manifest(served, subscription)["eventCursor"]

    def test_manifest_needs_the_plan_and_is_busy_while_another_changes_the_datasets(self, served):
        subscription = served.subscribe(places=["fl", "us"])
        first = self.manifest(served, subscription, limit=1)
        served.plans.available = False
        for query in ({}, {"limit": 1, "cursor": first["nextCursor"]}, {"asOf": first["eventCursor"]}):
            answer = served.get(f"{SUBSCRIPTIONS}/{subscription}/manifest", params=query)
            assert error(answer)[:2] == (503, "plan_unavailable")
            assert "try again in a minute" in answer.json()["error"]["message"]
        served.plans.available = True
        with served.ports.store.write() as records:
            records.catalog.put_dataset(replace(records.catalog.dataset("ds_florida"), retired=True))
        with served.ports.store.busy(subscription):
            assert error(served.get(f"{SUBSCRIPTIONS}/{subscription}/manifest"))[:2] == (409, "busy")
        assert told(served.events(subscription)) == [("added", "ds_florida"), ("added", "ds_nation")]

    def test_pages_are_of_one_moment_whatever_happens_meanwhile(self, served):
        for dataset_id in ("ds_both", "ds_orange", "ds_orange_zoning", "ds_florida"):
            served.version(dataset_id, 1)
        subscription = served.subscribe(places=["fl-county-orange", "fl", "us"])
        first = self.manifest(served, subscription, limit=1)
        assert [d["datasetId"] for d in first["datasets"]] == ["ds_both"]
        served.release("ds_orange", 2, previous_version=1)
        served.release("ds_nation", 1)
        served.put_catalog(
            replace(stored(served, "ds_florida"), retired=True),
            replace(stored(served, "ds_kings"), place="fl-county-orange"),
        )
        datasets, unavailable, cursor = [], [], first["nextCursor"]
        while cursor:
            page = self.manifest(served, subscription, limit=1, cursor=cursor)
            assert page["eventCursor"] == first["eventCursor"]
            datasets += [(d["datasetId"], d["version"]) for d in page["datasets"]]
            unavailable += [d["datasetId"] for d in page["unavailable"]]
            cursor = page["nextCursor"]
        assert datasets == [("ds_orange", 1), ("ds_orange_zoning", 1)]
        assert unavailable == ["ds_nation"]

    def test_pages_together_are_the_whole(self, served):
        subscription = served.subscribe(places=["fl-county-orange", "fl", "us"])
        whole = self.manifest(served, subscription)["unavailable"]
        listed, cursor = [], None
        while len(listed) < 10:
            page = self.manifest(served, subscription, limit=2, **({"cursor": cursor} if cursor else {}))
            listed += page["unavailable"]
            cursor = page["nextCursor"]
            if cursor is None:
                break
        assert listed == whole

    def test_page_cursor_expires_after_an_hour_and_belongs_to_its_subscription(self, served):
        subscription, other = (served.subscribe(places=["fl-county-orange"]) for _ in range(2))
        cursor = self.manifest(served, subscription, limit=1)["nextCursor"]
        path = f"{SUBSCRIPTIONS}/{other}/manifest?limit=1&cursor={cursor}"
        assert error(served.get(path)) == (400, "invalid_input", "cursor")
        served.clock.advance(hours=1)
        path = f"{SUBSCRIPTIONS}/{subscription}/manifest?limit=1&cursor={cursor}"
        assert error(served.get(path)) == (400, "invalid_input", "cursor")


class TestFreshLinks:
    """The links to a version that is being loaded, given again."""

    def test_links_come_with_the_manifest_and_with_each_version_and_need_no_key(self, served):
        attached(served, 1)
        subscription = served.subscribe(places=["fl-county-orange"])
        manifest = served.get(f"{SUBSCRIPTIONS}/{subscription}/manifest").json()
        version = served.get(f"{VERSIONS}/1").json()
        for files in (manifest["datasets"][0]["files"], version["files"]):
            assert files["attachments"]
            for link in (*files["snapshot"], files["schema"], files["manifest"], *files["attachments"]):
                assert len(served.client.get(link["url"]).content) == link["sizeBytes"]
                another = link["url"][:-1] + ("1" if link["url"][-1] == "0" else "0")
                assert served.client.get(another).status_code == 403

    def test_fresh_ones_are_signed_at_any_time_while_a_subscription_delivers_the_dataset(self, served):
        served.version("ds_orange", 1)
        served.version("ds_orange", 2, previous_version=1)
        subscription = served.subscribe(places=["fl-county-orange"])
        old = served.get(f"{VERSIONS}/1").json()["files"]["snapshot"][0]["url"]
        for _ in range(3):
            served.clock.advance(days=20)
            fresh = served.get(f"{VERSIONS}/1").json()["files"]["snapshot"][0]["url"]
            assert [served.client.get(url).status_code for url in (old, fresh)] == [403, 200]
        set_workspace(served.ports, "florida", ["fl-county-seminole"])
        assert error(served.get(f"{VERSIONS}/1"))[:2] == (409, "outside_coverage")
        served.delete(f"{SUBSCRIPTIONS}/{subscription}")
