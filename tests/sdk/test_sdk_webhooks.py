"""Webhooks in the SDK: verifying deliveries as the standardwebhooks library does, and the calls against the fake."""

import base64
import json
import random
import time
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook as Library
from standardwebhooks.webhooks import WebhookVerificationError

import ploti
from ploti._signing import verified
from ploti.contract.webhooks import TOLERANCE_SECONDS

SUB, PERMITS = "sub_orange", "ds_orange_permits"
SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
OTHER = "whsec_" + base64.b64encode(bytes(range(1, 33))).decode()


def headers_of(body, secret=SECRET, message_id="msg_1", at=None):
    at = int(time.time()) if at is None else at
    signed = Library(secret).sign(message_id, datetime.fromtimestamp(at, UTC), body.decode())
    return {"webhook-id": message_id, "webhook-timestamp": str(at), "webhook-signature": signed}


def random_body(chance):
    text = "".join(chr(chance.choice([*range(32, 127), *range(0xA0, 0x2FF), 0x1F600, 0x4E2D])) for _ in range(200))
    return json.dumps(
        {"id": f"evt_{chance.randrange(10**12):012d}", "n": chance.random(), "text": text[: chance.randrange(200)]},
        ensure_ascii=chance.random() < 0.5,
    ).encode()


class TestVerify:
    def test_a_thousand_random_bodies_verify_as_the_library_signs_them(self):
        chance = random.Random(20260301)
        for _ in range(1000):
            body = random_body(chance)
            message_id = f"msg_{chance.randrange(10**9)}"
            assert ploti.webhooks.verify(body, headers_of(body, message_id=message_id), SECRET) == json.loads(body)

    def test_a_thousand_tampered_ones_fail(self):
        """Body, id, time by 301 seconds, secret, order of bytes (G12)."""
        chance = random.Random(20260302)
        for number in range(1000):
            body = random_body(chance)
            headers, secret = headers_of(body), SECRET
            match number % 6:
                case 0:
                    place = chance.randrange(len(body))
                    body = body[:place] + bytes([body[place] ^ (1 << chance.randrange(8))]) + body[place + 1 :]
                case 1:
                    headers["webhook-id"] += "x"
                case 2:
                    skew = chance.choice([-301, 301])
                    headers = headers_of(body, at=int(time.time()) + skew + (1 if skew > 0 else -1))
                case 3:
                    secret = OTHER
                case 4:
                    body = json.dumps(json.loads(body), indent=1).encode()
                case 5:
                    headers["webhook-timestamp"] = str(int(headers["webhook-timestamp"]) - 1)
            with pytest.raises(ploti.BadSignature):
                ploti.webhooks.verify(body, headers, secret)

    @given(st.binary(max_size=60), st.text(max_size=40), st.integers(-400, 400))
    def test_it_judges_as_the_library_does(self, body, signature, skew):
        text = body.decode("latin-1").encode()
        headers = headers_of(text, at=int(time.time()) + skew)
        headers["webhook-signature"] = f"v1,{signature} " + headers["webhook-signature"]
        try:
            Library(SECRET).verify(
                text, {**headers, "webhook-signature": headers["webhook-signature"].split(" ")[-1]}, json_parse=False
            )
            accepted = True
        except WebhookVerificationError:
            accepted = False
        try:
            verified(text, headers, SECRET, time.time())
            found = True
        except ploti.BadSignature:
            found = False
        except ploti.BadAnswer:
            found = True
        assert found == accepted or abs(abs(skew) - TOLERANCE_SECONDS) <= 1

    @pytest.mark.parametrize("skew", [0, 299, -299])
    def test_a_clock_up_to_five_minutes_away_will_do(self, skew):
        body = b"{}"
        assert verified(body, headers_of(body, at=1_000_000 + skew), SECRET, 1_000_000) == {}

    @pytest.mark.parametrize("skew", [301, -301, 100_000])
    def test_a_clock_further_away_will_not(self, skew):
        with pytest.raises(ploti.BadSignature, match="clock"):
            verified(b"{}", headers_of(b"{}", at=1_000_000 + skew), SECRET, 1_000_000)

    def test_one_of_several_signatures_is_enough_as_while_a_secret_is_rotated(self):
        body = b'{"a": 1}'
        headers = headers_of(body)
        both = headers_of(body, OTHER)["webhook-signature"] + " " + headers["webhook-signature"]
        for sent in (both, "v2,AAAA " + both, "nonsense " + both, "v1,*** v1 , " + both, both + "  "):
            assert ploti.webhooks.verify(body, {**headers, "webhook-signature": sent}, SECRET) == {"a": 1}
            assert ploti.webhooks.verify(body, {**headers, "webhook-signature": sent}, OTHER) == {"a": 1}

    @pytest.mark.parametrize("sent", ["", "v1,", "v1", "v2,{}", "v1a,{}", "{}", "v1,ü", "v1,\n{}"])
    def test_other_signatures_are_none(self, sent):
        body = b"{}"
        headers = headers_of(body)
        right = headers["webhook-signature"].removeprefix("v1,")
        with pytest.raises(ploti.BadSignature):
            ploti.webhooks.verify(body, {**headers, "webhook-signature": sent.replace("{}", right)}, SECRET)

    @pytest.mark.parametrize("name", ["webhook-id", "webhook-timestamp", "webhook-signature"])
    def test_a_header_that_is_missing_is_named(self, name):
        headers = headers_of(b"{}")
        del headers[name]
        with pytest.raises(ploti.BadSignature, match=name):
            ploti.webhooks.verify(b"{}", headers, SECRET)

    @pytest.mark.parametrize("moment", ["", "now", "1e9", " 1", "-5", "9" * 40, "١٢٣"])
    def test_a_time_that_is_none_is_refused(self, moment):
        with pytest.raises(ploti.BadSignature):
            ploti.webhooks.verify(b"{}", headers_of(b"{}") | {"webhook-timestamp": moment}, SECRET)

    def test_header_names_are_read_in_any_case_and_text_is_as_good_as_bytes(self):
        headers = {name.title(): value for name, value in headers_of(b"{}").items()}
        assert ploti.webhooks.verify("{}", headers, SECRET) == {}

    def test_a_secret_from_a_file_may_end_its_line(self):
        assert ploti.webhooks.verify(b"{}", headers_of(b"{}"), f"{SECRET}\n") == {}

    @pytest.mark.parametrize("secret", ["", "whsec_", "whsec_***", "ü", None])
    def test_a_secret_that_is_none_is_told(self, secret):
        with pytest.raises(ploti.FixRequest, match="secret"):
            ploti.webhooks.verify(b"{}", headers_of(b"{}"), secret)

    @pytest.mark.parametrize("body", [b"[]", b"x", b'"a"', b"1"])
    def test_a_signed_body_that_is_no_object_is_told(self, body):
        with pytest.raises(ploti.BadAnswer):
            ploti.webhooks.verify(body, headers_of(body), SECRET)

    def test_it_needs_neither_key_nor_network(self, run_python, tmp_path):
        body = b'{"type": "ping"}'
        code = f"import ploti; print(ploti.webhooks.verify({body!r}, {headers_of(body)!r}, {SECRET!r})['type'])"
        assert run_python(code, XDG_CONFIG_HOME=str(tmp_path)).strip() == "ping"


class TestCalls:
    def test_create_list_get_delete(self, client):
        made = client.webhooks.create("https://acme.example/x", subscription_id=SUB, events=["feed.dataset.added"])
        assert made["secret"].startswith("whsec_")
        rest = {name: value for name, value in made.items() if name != "secret"}
        assert client.webhooks.get(made["id"]) == rest
        assert client.webhooks.list() == {"webhooks": [rest], "nextCursor": None}
        assert list(client.webhooks.iter()) == [rest]
        assert client.webhooks.delete(made["id"]) == {"deleted": True}
        with pytest.raises(ploti.NotFound):
            client.webhooks.get(made["id"])

    def test_test_and_rotate(self, client):
        made = client.webhooks.create("https://acme.example/x", subscription_id=SUB)
        assert client.webhooks.test(made["id"]) == {"delivered": True, "status": 204, "problem": None}
        assert client.webhooks.rotate(made["id"])["secret"] != made["secret"]

    def test_refusals(self, client, fake):
        with pytest.raises(ploti.NotFound):
            client.webhooks.create("https://acme.example/x", subscription_id="sub_other")
        with pytest.raises(ploti.FixRequest) as refused:
            client.webhooks.create("http://acme.example/x", subscription_id=SUB)
        assert refused.value.field == "url"
        with pytest.raises(ploti.FixRequest, match="not the id of a webhook"):
            client.webhooks.get("../x")

    def test_a_create_whose_answer_was_lost_is_not_repeated(self, client, fake):
        fake.drop_next("/v1/webhooks", after_acting=True)
        with pytest.raises(ploti.NoAnswer):
            client.webhooks.create("https://acme.example/x", subscription_id=SUB)
        assert len(client.webhooks.list()["webhooks"]) == 1

    def test_what_waits_is_signed_and_taken_once(self, client, fake):
        made = client.webhooks.create("https://acme.example/x", subscription_id=SUB, events=["feed.dataset.updated"])
        for number in (3, 4):
            fake.publish(PERMITS, files={"snapshot/part-0000.parquet": b"x"}, row_count=number)
        posts = list(fake.webhook_posts(made["id"]))
        events = [client.webhooks.verify(post.body, post.headers, made["secret"]) for post in posts]
        assert [event["data"]["version"] for event in events] == [3, 4]
        assert events == client.feeds.subscriptions.events(SUB)["events"][-2:]
        assert list(fake.webhook_posts(made["id"])) == []

    def test_deliveries_are_listed_and_sent_again_under_their_id(self, client, fake):
        made = client.webhooks.create("https://acme.example/x", subscription_id=SUB)
        fake.publish(PERMITS, files={"snapshot/part-0000.parquet": b"x"}, row_count=3)
        (first,) = fake.webhook_posts(made["id"])
        (listed,) = client.webhooks.deliveries.iter(made["id"])
        assert (listed["status"], listed["id"]) == ("delivered", first.headers["webhook-id"])
        assert client.webhooks.deliveries.send(made["id"], listed["id"])["status"] == "pending"
        (again,) = fake.webhook_posts(made["id"])
        assert (again.headers["webhook-id"], again.body) == (listed["id"], first.body)

    def test_a_deleted_subscription_takes_its_webhooks_along(self, client):
        client.webhooks.create("https://acme.example/x", subscription_id=SUB)
        client.feeds.subscriptions.delete(SUB)
        assert client.webhooks.list()["webhooks"] == []

    def test_the_fake_asks_for_both_permissions(self, fake):
        for number, permissions in enumerate((["feeds"], ["webhooks"])):
            fake.add_key(f"ploti_{number}", permissions=permissions)
            with (
                ploti.Client(**{**fake.client_options, "api_key": f"ploti_{number}"}) as client,
                pytest.raises(ploti.NotAllowed),
            ):
                client.webhooks.create("https://acme.example/x", subscription_id=SUB)
