"""A create is made once for each Idempotency-Key (page 000, D8.2, F059)."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from tests.api.conftest import error

SUBSCRIPTIONS = "/v1/feeds/subscriptions"
BODY = {"name": "Mine", "places": ["fl"]}


def create(served, key, body=BODY, who="admin"):
    return served.post(SUBSCRIPTIONS, body, who, headers={"Idempotency-Key": key})


def count(served):
    return len(served.get(SUBSCRIPTIONS).json()["subscriptions"])


class TestReplay:
    def test_retry_with_the_same_key_returns_the_first_answer_with_a_header(self, served_on_each):
        first = create(served_on_each, "a-key")
        served_on_each.clock.advance(hours=23, minutes=59)
        again = create(served_on_each, "a-key")
        assert (first.status_code, again.status_code) == (201, 201)
        assert again.json() == first.json()
        assert again.headers["idempotent-replayed"] == "true"
        assert "idempotent-replayed" not in first.headers
        assert count(served_on_each) == 1

    def test_first_answer_carries_the_etag(self, served):
        assert create(served, "a-key").headers["etag"] == '"1"'

    def test_a_replay_has_no_etag_but_the_revision_in_its_body(self, served):
        first = create(served, "a-key").json()
        served.patch(f"{SUBSCRIPTIONS}/{first['id']}", {"name": "Renamed", "revision": 1})
        again = create(served, "a-key")
        assert "etag" not in again.headers
        assert again.json()["revision"] == 1

    def test_first_answer_stays_though_the_subscription_moved_on(self, served):
        first = create(served, "a-key").json()
        served.patch(f"{SUBSCRIPTIONS}/{first['id']}", {"name": "Renamed", "revision": 1})
        assert create(served, "a-key").json() == first
        served.delete(f"{SUBSCRIPTIONS}/{first['id']}")
        assert create(served, "a-key").json() == first
        assert count(served) == 0

    @pytest.mark.parametrize(
        ("hours", "replayed"), [({"hours": 23, "minutes": 59, "seconds": 59}, True), ({"days": 1}, False)]
    )
    def test_key_is_kept_a_day(self, served_on_each, hours, replayed):
        first = create(served_on_each, "a-key")
        served_on_each.clock.advance(**hours)
        again = create(served_on_each, "a-key")
        assert (again.json()["id"] == first.json()["id"]) is replayed
        assert ("idempotent-replayed" in again.headers) is replayed

    def test_key_older_than_a_day_may_come_with_another_body(self, served):
        create(served, "a-key")
        served.clock.advance(days=1)
        assert create(served, "a-key", {"places": ["us"]}).status_code == 201
        assert create(served, "a-key", {"places": ["us"]}).headers["idempotent-replayed"] == "true"

    def test_key_belongs_to_its_workspace_and_any_admin_of_it_may_repeat(self, served):
        first = create(served, "a-key", {"places": ["us"]})
        other = create(served, "a-key", {"places": ["us"]}, "other")
        assert other.status_code == 201
        assert other.json()["id"] != first.json()["id"]

    def test_replay_needs_neither_plan_nor_room_nor_coverage(self, served):
        first = create(served, "a-key").json()
        served.plans.available = False
        assert create(served, "a-key").json() == first

    def test_without_a_key_every_request_creates(self, served):
        served.post(SUBSCRIPTIONS, BODY)
        served.post(SUBSCRIPTIONS, BODY)
        assert count(served) == 2


class TestConflict:
    @pytest.mark.parametrize(
        "body",
        [
            {"name": "Mine", "places": ["us"]},
            {"name": "Mine"},
            {"name": "Mine", "places": ["fl"], "topics": []},
            {"nonsense": 1},
            [],
        ],
    )
    def test_key_sent_before_with_a_different_body_is_a_conflict(self, served, body):
        create(served, "a-key")
        assert error(create(served, "a-key", body)) == (409, "idempotency_conflict", "Idempotency-Key")
        assert count(served) == 1

    def test_same_json_written_otherwise_is_the_same_body(self, served):
        first = create(served, "a-key").json()
        written = b'{"places": [ "fl"],\n "name": "M\\u0069ne"}'
        headers = served.headers() | {"Idempotency-Key": "a-key"}
        assert served.client.post(SUBSCRIPTIONS, content=written, headers=headers).json() == first

    @pytest.mark.parametrize("key", ["", "x" * 256, "tab\tinside", "é".encode()])
    def test_key_that_cannot_be_one_is_refused(self, served, key):
        answer = create(served, key)
        assert error(answer) == (400, "invalid_input", "Idempotency-Key")

    def test_two_keys_in_one_request_are_refused(self, served):
        headers = [
            ("Authorization", f"Bearer {served.keys['admin']}"),
            ("Idempotency-Key", "a"),
            ("Idempotency-Key", "b"),
        ]
        answer = served.client.post(SUBSCRIPTIONS, json=BODY, headers=headers)
        assert error(answer) == (400, "invalid_input", "Idempotency-Key")

    def test_longest_key_is_taken(self, served):
        assert create(served, "x" * 255).status_code == 201


class TestFreed:
    @pytest.mark.parametrize(
        ("body", "code"), [({}, "invalid_input"), ({"places": ["ny"]}, "outside_coverage"), ([], "invalid_input")]
    )
    def test_refusal_frees_the_key(self, served_on_each, body, code):
        assert error(create(served_on_each, "a-key", body))[1] == code
        assert create(served_on_each, "a-key").status_code == 201

    def test_plan_that_cannot_be_read_frees_the_key(self, served):
        served.plans.available = False
        assert error(create(served, "a-key"))[1] == "plan_unavailable"
        served.plans.available = True
        assert create(served, "a-key").status_code == 201

    def test_breaking_down_before_the_commit_frees_the_key_and_leaves_nothing(self, served_on_each):
        served_on_each.at("subscription.before_commit", lambda: 1 / 0)
        assert error(create(served_on_each, "a-key"))[:2] == (500, "internal_error")
        served_on_each.at("subscription.before_commit", lambda: None)
        assert count(served_on_each) == 0
        assert "idempotent-replayed" not in create(served_on_each, "a-key").headers
        assert count(served_on_each) == 1


class TestAtOnce:
    def test_first_request_still_being_served_is_in_progress(self, served_on_each):
        met = threading.Event()
        release = threading.Event()

        def wait():
            met.set()
            assert release.wait(20)

        served_on_each.at("subscription.before_commit", wait)
        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(create, served_on_each, "a-key")
            assert met.wait(20)
            second = create(served_on_each, "a-key")
            release.set()
        assert error(second) == (409, "idempotency_in_progress", "Idempotency-Key")
        assert first.result().status_code == 201
        assert create(served_on_each, "a-key").json() == first.result().json()

    def test_twenty_at_once_make_one(self, served_on_each):
        with ThreadPoolExecutor(20) as pool:
            answers = list(pool.map(lambda _: create(served_on_each, "a-key"), range(20)))
        made = [a for a in answers if a.status_code == 201]
        assert len({a.json()["id"] for a in made}) == 1
        assert sum("idempotent-replayed" not in a.headers for a in made) == 1
        assert {error(a)[1] for a in answers if a.status_code != 201} <= {"idempotency_in_progress"}
        assert count(served_on_each) == 1


def test_refused_member_leaves_the_key_unused(served):
    assert error(create(served, "a-key", who="member"))[:2] == (403, "not_allowed")
    assert create(served, "a-key").status_code == 201


def test_old_answers_are_forgotten_with_the_next_create(served_on_each):
    create(served_on_each, "old")
    served_on_each.clock.advance(days=1)
    create(served_on_each, "new")
    with served_on_each.ports.store.read() as records:
        workspace = records.workspaces.named("florida").id
        assert records.idempotency.get(workspace, "POST /v1/feeds/subscriptions", "old") is None
        kept = records.idempotency.get(workspace, "POST /v1/feeds/subscriptions", "new")
    assert replace(kept, answer="", body_hash="").status == 201
