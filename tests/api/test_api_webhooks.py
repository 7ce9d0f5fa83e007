"""Webhooks over HTTP, a test for each sentence of page 003's part about them (D1.5, D9)."""

import json
from dataclasses import replace
from datetime import UTC, datetime

import msgspec
import pytest
from pydantic import TypeAdapter
from standardwebhooks import Webhook as Receiving
from standardwebhooks.webhooks import WebhookVerificationError

from ploti.contract import events
from ploti.contract import webhooks as wire
from ploti.contract.errors import ERROR_STATUS
from ploti.contract.events import EVENT_TYPES
from ploti_server.domain.deliveries import Answer
from ploti_server.domain.events import NewEvent
from ploti_server.domain.webhooks import WEBHOOKS_MOST
from ploti_server.pipeline.deliver import deliver_due
from ploti_server.pipeline.workspaces import create_key, remove_member, revoke_key

URL = "https://acme.example/hooks/ploti"
HOOKS = "/v1/webhooks"


def code(answer):
    error = answer.json()["error"]
    assert answer.status_code == ERROR_STATUS[error["code"]]
    return error["code"]


def check(shape, value):
    assert TypeAdapter(shape).validate_python(value, strict=True) == value
    return value


@pytest.fixture
def subscription(served):
    return served.subscribe(places=["fl-county-orange"])


@pytest.fixture
def made(served, subscription):
    """A webhook just made for the subscription."""
    return create(served, subscription)


def create(served, subscription, who="admin", **more):
    answer = served.post(HOOKS, {"url": URL, "subscriptionId": subscription, **more}, who)
    assert answer.status_code == 201, answer.text
    return check(wire.NewWebhook, answer.json())


def deliver(served, answer=Answer(204)):  # noqa: B008
    served.ports.hooks.sender.answer_with(lambda *_: answer)
    return deliver_due(served.ports, "test")


class TestCreate:
    def test_takes_a_key_with_both_permissions_and_any_member(self, served, subscription):
        for who in ("admin", "member"):
            assert create(served, subscription, who)["member"] == {"admin": "ann", "member": "bob"}[who]

    @pytest.mark.parametrize("permissions", [["webhooks"], ["feeds"]])
    def test_a_key_with_one_of_them_is_not_allowed(self, served, subscription, permissions):
        served.keys["one"] = create_key(served.ports, "florida", "ann", permissions=permissions).text
        assert code(served.post(HOOKS, {"url": URL, "subscriptionId": subscription}, "one")) == "not_allowed"

    def test_every_new_key_has_both(self, served, subscription):
        served.keys["new"] = create_key(served.ports, "florida", "new").text
        assert create(served, subscription, "new")

    def test_answers_the_webhook_with_its_secret_once(self, served, subscription, made):
        assert made["id"].startswith("wh_")
        assert made["secret"].startswith("whsec_")
        rest = {name: value for name, value in made.items() if name != "secret"}
        assert rest == {
            "id": made["id"],
            "url": URL,
            "subscriptionId": subscription,
            "events": None,
            "member": "ann",
            "status": "on",
            "offReason": None,
            "offAt": None,
            "failingSince": None,
            "createdAt": rest["createdAt"],
        }
        assert served.get(f"{HOOKS}/{made['id']}").json() == rest
        assert served.get(HOOKS).json() == {"webhooks": [rest], "nextCursor": None}

    def test_the_answer_is_kept_by_no_cache(self, served, subscription):
        answer = served.post(HOOKS, {"url": URL, "subscriptionId": subscription})
        assert answer.headers["cache-control"] == "no-store"

    def test_without_events_it_gets_every_feed_event_type(self, served, subscription, made):
        send_each_type(served, subscription)
        deliver(served)
        assert sorted(types_sent(served)) == sorted(EVENT_TYPES)

    @pytest.mark.parametrize("left_out", [events.ADDED, events.SCHEMA_CHANGED])
    def test_a_filter_without_added_or_schema_changed_never_tells_of_them(self, served, subscription, left_out):
        create(served, subscription, events=[one for one in EVENT_TYPES if one != left_out])
        send_each_type(served, subscription)
        deliver(served)
        assert sorted(types_sent(served)) == sorted(one for one in EVENT_TYPES if one != left_out)
        assert left_out in [event["type"] for event in served.events(subscription)]

    def test_a_filter_leaves_out_what_it_does_not_name(self, served, subscription):
        hook = create(served, subscription, events=["feed.dataset.stale", "feed.dataset.removed"])
        assert hook["events"] == ["feed.dataset.removed", "feed.dataset.stale"]
        served.release("ds_orange", 1)
        assert deliver(served) == 0
        served.put_catalog(*[replace(d, retired=True) for d in datasets(served, "ds_orange")])
        deliver(served)
        assert types_sent(served) == ["feed.dataset.removed"]

    @pytest.mark.parametrize(
        ("body", "field"),
        [
            ([], None),
            ({}, "subscriptionId"),
            ({"url": URL}, "subscriptionId"),
            ({"url": URL, "subscriptionId": None}, "subscriptionId"),
            ({"url": URL, "subscriptionId": 5}, "subscriptionId"),
            ({"url": URL, "subscriptionId": "sub_\0"}, "subscriptionId"),
            ({"subscriptionId": "{sub}"}, "url"),
            ({"url": None, "subscriptionId": "{sub}"}, "url"),
            ({"url": "http://acme.example/", "subscriptionId": "{sub}"}, "url"),
            ({"url": "https://127.0.0.1/", "subscriptionId": "{sub}"}, "url"),
            ({"url": "https://localhost/", "subscriptionId": "{sub}"}, "url"),
            ({"url": "https://[::ffff:10.0.0.1]/", "subscriptionId": "{sub}"}, "url"),
            ({"url": "https://u:p@acme.example/", "subscriptionId": "{sub}"}, "url"),
            ({"url": URL, "subscriptionId": "{sub}", "events": []}, "events"),
            ({"url": URL, "subscriptionId": "{sub}", "events": None}, "events"),
            ({"url": URL, "subscriptionId": "{sub}", "events": ["dataset.changed"]}, "events"),
            ({"url": URL, "subscriptionId": "{sub}", "events": ["ping"]}, "events"),
            ({"url": URL, "subscriptionId": "{sub}", "events": [[]]}, "events"),
            ({"url": URL, "subscriptionId": "{sub}", "secret": "whsec_x"}, "secret"),
            ({"url": URL, "subscriptionId": "{sub}", "workspaceId": "x"}, "workspaceId"),
        ],
    )
    def test_other_bodies_are_refused(self, served, subscription, body, field):
        sent = json.loads(json.dumps(body).replace("{sub}", subscription))
        answer = served.post(HOOKS, sent)
        assert code(answer) == "invalid_input"
        assert answer.json()["error"].get("field") == field

    def test_a_foreign_subscription_is_refused_like_an_unknown_one(self, served, subscription):
        foreign = served.post(HOOKS, {"url": URL, "subscriptionId": subscription}, "other")
        unknown = served.post(HOOKS, {"url": URL, "subscriptionId": "sub_0"}, "other")
        assert code(foreign) == code(unknown) == "not_found"
        assert foreign.text == unknown.text.replace("sub_0", subscription)

    def test_busy_while_the_subscriptions_datasets_are_changing(self, served, subscription):
        with served.ports.store.busy(subscription):
            assert code(served.post(HOOKS, {"url": URL, "subscriptionId": subscription})) == "busy"

    def test_a_workspace_has_at_most_a_hundred(self, served, subscription):
        for _ in range(WEBHOOKS_MOST):
            served.clock.advance(seconds=1)
            create(served, subscription)
        assert code(served.post(HOOKS, {"url": URL, "subscriptionId": subscription})) == "limit_reached"


def datasets(served, *names):
    with served.ports.store.read() as records:
        return [records.catalog.dataset(name) for name in names]


def send_each_type(served, subscription):
    """Log one event of each type."""
    with served.ports.store.write() as records:
        made = [NewEvent(type_, "ds_orange", {"datasetId": "ds_orange"}) for type_ in EVENT_TYPES]
        records.events.append(subscription, made, served.clock.now())


def types_sent(served):
    return [json.loads(body)["type"] for *_, body in served.ports.hooks.sender.sent]


class TestWhoSees:
    def ways(self, webhook, delivery="msg_x"):
        one = f"{HOOKS}/{webhook}"
        return [
            ("GET", one),
            ("DELETE", one),
            ("POST", f"{one}/test"),
            ("POST", f"{one}/rotate"),
            ("GET", f"{one}/deliveries"),
            ("POST", f"{one}/deliveries/{delivery}/send"),
        ]

    def call(self, served, method, path, who):
        return served.client.request(method, path, headers=served.headers(who))

    @pytest.mark.parametrize("who", ["hooks", "other"])
    def test_a_key_without_feeds_and_another_workspace_see_none(self, served, made, who):
        assert served.get(HOOKS, who).json() == {"webhooks": [], "nextCursor": None}
        for (method, path), (_, unknown) in zip(self.ways(made["id"]), self.ways("wh_0"), strict=True):
            answer = self.call(served, method, path, who)
            assert code(answer) == "not_found"
            assert answer.text == self.call(served, method, unknown, who).text.replace("wh_0", made["id"])
        assert served.get(f"{HOOKS}/{made['id']}").status_code == 200

    def test_a_key_without_webhooks_is_not_allowed(self, served, made):
        served.keys["one"] = create_key(served.ports, "florida", "ann", permissions=["feeds"]).text
        for method, path in [("GET", HOOKS), *self.ways(made["id"])]:
            assert code(self.call(served, method, path, "one")) == "not_allowed"

    def test_without_a_key_nothing_opens(self, served, made):
        for method, path in [("GET", HOOKS), ("POST", HOOKS), *self.ways(made["id"])]:
            assert code(self.call(served, method, path, "")) == "unauthenticated"

    def test_any_member_sees_and_touches_the_workspaces_webhooks(self, served, made):
        assert served.get(f"{HOOKS}/{made['id']}", "member").status_code == 200
        assert served.post(f"{HOOKS}/{made['id']}/test", None, "member").status_code == 200
        assert served.delete(f"{HOOKS}/{made['id']}", "member").json() == {"deleted": True}


def test_the_list_goes_in_pages_oldest_first(served, subscription):
    made = []
    for _ in range(5):
        served.clock.advance(seconds=1)
        made.append(create(served, subscription)["id"])
    found, cursor = [], None
    while True:
        page = check(
            wire.WebhookPage, served.get(HOOKS, params={"limit": 2} | ({"cursor": cursor} if cursor else {})).json()
        )
        found += [one["id"] for one in page["webhooks"]]
        cursor = page["nextCursor"]
        if cursor is None:
            break
    assert found == made


class TestDelete:
    def test_answers_and_is_gone(self, served, made):
        answer = served.delete(f"{HOOKS}/{made['id']}")
        assert (answer.status_code, answer.json()) == (200, {"deleted": True})
        assert code(served.get(f"{HOOKS}/{made['id']}")) == "not_found"
        assert code(served.delete(f"{HOOKS}/{made['id']}")) == "not_found"


class TestTestCall:
    def test_sends_one_signed_ping_now(self, served, subscription, made):
        answer = served.post(f"{HOOKS}/{made['id']}/test", None)
        assert check(wire.WebhookTest, answer.json()) == {"delivered": True, "status": 204, "problem": None}
        ((url, headers, body),) = served.ports.hooks.sender.sent
        assert url == URL
        ping = check(wire.Ping, json.loads(body))
        assert (ping["type"], ping["data"]) == ("ping", {})
        assert headers["webhook-signature"].startswith("v1,")
        assert served.events(subscription)[-1]["type"] == "feed.dataset.added"

    def test_counts_toward_the_stricter_limit_for_it_starts_work(self, served, made):
        answer = served.post(f"{HOOKS}/{made['id']}/test", None)
        other = served.get(f"{HOOKS}/{made['id']}")
        assert answer.headers["ratelimit"].count(";r=") == 2
        assert other.headers["ratelimit"].count(";r=") == 1

    @pytest.mark.parametrize(
        "came",
        [Answer(308, "redirects are not followed"), Answer(None, "no whole answer within 15 seconds"), Answer(500)],
    )
    def test_tells_what_came_back(self, served, made, came):
        """F064."""
        served.ports.hooks.sender.answer_with(lambda *_: came)
        told = served.post(f"{HOOKS}/{made['id']}/test", None).json()
        assert told == {"delivered": False, "status": came.status, "problem": came.problem}


class TestStops:
    def test_when_its_member_leaves_and_says_so(self, served, subscription):
        made = create(served, subscription, "member")
        remove_member(served.ports, "florida", "bob")
        served.release("ds_orange", 1)
        assert deliver(served) == 0
        shown = check(wire.Webhook, served.get(f"{HOOKS}/{made['id']}").json())
        assert (shown["status"], shown["offReason"]) == ("off", "member_left")
        for way in ("test", "rotate"):
            assert code(served.post(f"{HOOKS}/{made['id']}/{way}", None)) == "invalid_input"

    @pytest.mark.parametrize("way", ["its member leaves", "its subscription is deleted"])
    def test_when_its_member_leaves_and_when_its_subscription_is_deleted(self, served, subscription, way):
        made = create(served, subscription, "member")
        served.release("ds_orange", 1)
        deliver(served, Answer(500))
        if way == "its member leaves":
            remove_member(served.ports, "florida", "bob")
            served.release("ds_orange", 2, previous_version=1)
            assert served.get(f"{HOOKS}/{made['id']}").json()["status"] == "off"
        else:
            served.delete(f"/v1/feeds/subscriptions/{subscription}")
            assert code(served.get(f"{HOOKS}/{made['id']}")) == "not_found"
        served.clock.advance(days=2)
        assert deliver(served) == 0

    def test_not_when_its_key_is_revoked(self, served, subscription):
        key = create_key(served.ports, "florida", "ann")
        served.keys["short"] = key.text
        create(served, subscription, "short")
        revoke_key(served.ports, key.key.id)
        served.release("ds_orange", 1)
        assert deliver(served) == 1

    def test_an_answer_of_410_turns_it_off_and_says_so(self, served, made):
        served.release("ds_orange", 1)
        deliver(served, Answer(410))
        shown = served.get(f"{HOOKS}/{made['id']}").json()
        assert (shown["status"], shown["offReason"]) == ("off", "gone")
        assert shown["offAt"] is not None


class TestDeliveries:
    def test_each_posts_body_is_the_event_object_of_the_log(self, served, subscription, made):
        served.release("ds_orange", 1)
        served.release("ds_orange", 2, previous_version=1)
        deliver(served)
        logged = served.events(subscription)[-2:]
        assert [body for *_, body in served.ports.hooks.sender.sent] == [msgspec.json.encode(event) for event in logged]

    def test_each_body_is_the_logs_event_signed_with_the_secret_of_its_creation(self, served, subscription, made):
        served.clock.set(datetime.now(UTC))
        served.release("ds_orange", 1)
        deliver(served)
        ((_, headers, body),) = served.ports.hooks.sender.sent
        assert Receiving(made["secret"]).verify(body, headers) == served.events(subscription)[-1]
        with pytest.raises(WebhookVerificationError):
            Receiving(made["secret"]).verify(body.replace(b"ds_orange", b"ds_banana"), headers)

    def test_are_listed_with_their_last_answers(self, served, made):
        served.release("ds_orange", 1)
        deliver(served, Answer(503))
        (shown,) = check(wire.DeliveryPage, served.get(f"{HOOKS}/{made['id']}/deliveries").json())["deliveries"]
        assert shown["lastAttempt"] == {"at": "2026-01-01T00:00:00.000Z", "status": 503, "problem": None}
        assert (shown["status"], shown["attempts"], shown["type"]) == ("pending", 1, "feed.dataset.resync_required")
        assert "2026-01-01T00:00:54" <= shown["nextAttemptAt"] <= "2026-01-01T00:01:07"
        assert served.get(f"{HOOKS}/{made['id']}").json()["failingSince"] == "2026-01-01T00:00:00.000Z"

    def test_go_in_pages_newest_event_first_and_by_status(self, served, made):
        for number in range(1, 6):
            served.release("ds_orange", number, **({"previous_version": number - 1} if number > 1 else {}))
        deliver(served)
        path, found, cursor = f"{HOOKS}/{made['id']}/deliveries", [], None
        while True:
            query = {"limit": 2, "status": "delivered"} | ({"cursor": cursor} if cursor else {})
            page = served.get(path, params=query).json()
            found += [one["eventId"] for one in page["deliveries"]]
            cursor = page["nextCursor"]
            if cursor is None:
                break
        assert found == sorted(found, reverse=True)
        assert len(found) == 5
        assert served.get(path, params={"status": "pending"}).json()["deliveries"] == []
        assert code(served.get(path, params={"status": "lost"})) == "invalid_input"

    def test_one_can_be_sent_again(self, served, made):
        served.release("ds_orange", 1)
        deliver(served, Answer(413))
        path = f"{HOOKS}/{made['id']}/deliveries"
        (ended,) = served.get(path).json()["deliveries"]
        assert (ended["status"], ended["endReason"], ended["nextAttemptAt"]) == ("ended", "too_large", None)
        again = check(wire.Delivery, served.post(f"{path}/{ended['id']}/send", None).json())
        assert (again["id"], again["status"], again["attempts"]) == (ended["id"], "pending", 0)
        assert deliver(served) == 1
        assert len({headers["webhook-id"] for _, headers, _ in served.ports.hooks.sender.sent}) == 1
        assert code(served.post(f"{path}/msg_0/send", None)) == "not_found"


def test_rotating_shows_a_new_secret_once_and_when_the_old_one_ends(served, made):
    told = check(wire.WebhookSecret, served.post(f"{HOOKS}/{made['id']}/rotate", None).json())
    assert told["secret"].startswith("whsec_")
    assert told["secret"] != made["secret"]
    assert told["previousUntil"] == "2026-01-02T00:00:00.000Z"
    for path in (HOOKS, f"{HOOKS}/{made['id']}"):
        assert "whsec_" not in served.get(path).text


def test_on_each_store_a_release_reaches_the_receiver(served_on_each):
    served = served_on_each
    subscription = served.subscribe(places=["fl-county-orange"])
    made = create(served, subscription)
    served.release("ds_orange", 1)
    assert deliver(served) == 1
    (shown,) = served.get(f"{HOOKS}/{made['id']}/deliveries").json()["deliveries"]
    assert shown["status"] == "delivered"
    assert shown["eventId"] == served.events(subscription)[-1]["id"]
