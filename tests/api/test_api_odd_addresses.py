"""Addresses with U+0000, which PostgreSQL cannot be asked about, are refused like others, on each store (G10)."""

import pytest

IDS = ("sub_%00", "%00", "a%00b")


@pytest.mark.parametrize("id_", IDS)
def test_an_id_with_a_null_character_is_not_found(served_on_each, id_):
    for method, path in [
        ("GET", f"/v1/feeds/subscriptions/{id_}"),
        ("DELETE", f"/v1/feeds/subscriptions/{id_}"),
        ("GET", f"/v1/feeds/subscriptions/{id_}/events"),
        ("GET", f"/v1/feeds/subscriptions/{id_}/manifest"),
        ("GET", f"/v1/feeds/datasets/{id_}"),
        ("GET", f"/v1/feeds/datasets/{id_}/versions"),
        ("GET", f"/v1/feeds/datasets/{id_}/schema"),
        ("GET", f"/v1/webhooks/{id_}"),
        ("DELETE", f"/v1/webhooks/{id_}"),
        ("POST", f"/v1/webhooks/{id_}/test"),
        ("GET", f"/v1/webhooks/{id_}/deliveries"),
        ("POST", f"/v1/webhooks/wh_1/deliveries/{id_}/send"),
    ]:
        answer = served_on_each.client.request(method, path, headers=served_on_each.headers())
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found"), path


@pytest.mark.parametrize("query", ["subscription=sub_%00", "place=%00", "topic=%00", "cursor=%00"])
def test_a_value_with_a_null_character_is_invalid(served_on_each, query):
    answer = served_on_each.get(f"/v1/feeds/datasets?{query}")
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_input")
    assert answer.json()["error"]["field"] == query.partition("=")[0]
