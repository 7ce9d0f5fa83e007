"""Who may do what: every operation of the description for every kind of caller, each cell as the contract has it."""

from dataclasses import dataclass

import pytest

from ploti.contract.errors import ERROR_STATUS
from ploti_server.pipeline.workspaces import create_key, remove_member, revoke_key

CALLERS = ("admin", "member", "feeds", "hooks", "other", "revoked", "left", "")
"""Two of one workspace; its keys with one permission alone; another workspace's admin; three that have no valid key."""

OK, NO, NOT_FOUND, OUTSIDE = "ok", "not_allowed", "not_found", "outside_coverage"
EVERYONE = (OK, OK, OK, OK, OK)
FEEDS = (OK, OK, OK, NO, OK)
DATASET = (OK, OK, OK, NO, OUTSIDE)
OWN = (OK, OK, OK, NO, NOT_FOUND)
ADMINS = (OK, NO, OK, NO, NOT_FOUND)
WEBHOOKS = (OK, OK, NO, OK, OK)
OWN_WEBHOOK = (OK, OK, NO, NOT_FOUND, NOT_FOUND)

MATRIX = {
    "GET /v1/places": EVERYONE,
    "GET /v1/topics": EVERYONE,
    "GET /v1/feeds/datasets": FEEDS,
    "GET /v1/feeds/datasets/{dataset}": DATASET,
    "GET /v1/feeds/datasets/{dataset}/versions": DATASET,
    "GET /v1/feeds/datasets/{dataset}/versions/{version}": DATASET,
    "POST /v1/feeds/datasets/{dataset}/versions/{version}/links": DATASET,
    "GET /v1/feeds/datasets/{dataset}/records/{record}": (*[NOT_FOUND] * 3, NO, OUTSIDE),  # no record has this id
    "POST /v1/feeds/datasets/{dataset}/records": DATASET,
    "GET /v1/feeds/datasets/{dataset}/schema": DATASET,
    "GET /v1/feeds/datasets/{dataset}/schemas": DATASET,
    "GET /v1/datasets/{dataset}/schema": DATASET,
    "GET /v1/datasets/{dataset}/schemas": DATASET,
    "GET /v1/datasets/{dataset}/files/{file}": (*[NOT_FOUND] * 3, NO, OUTSIDE),  # it has no file of this name
    "GET /v1/datasets/{dataset}/provenance": DATASET,
    "POST /v1/feeds/subscriptions/preview": DATASET,
    "POST /v1/feeds/subscriptions": (OK, NO, OK, NO, OUTSIDE),
    "GET /v1/feeds/subscriptions": FEEDS,
    "GET /v1/feeds/subscriptions/{subscription}": OWN,
    "PATCH /v1/feeds/subscriptions/{subscription}": ADMINS,
    "DELETE /v1/feeds/subscriptions/{subscription}": ADMINS,
    "GET /v1/feeds/subscriptions/{subscription}/manifest": OWN,
    "GET /v1/feeds/subscriptions/{subscription}/events": OWN,
    "POST /v1/webhooks": (OK, OK, NO, NO, NOT_FOUND),
    "GET /v1/webhooks": WEBHOOKS,
    "GET /v1/webhooks/{webhook}": OWN_WEBHOOK,
    "DELETE /v1/webhooks/{webhook}": OWN_WEBHOOK,
    "POST /v1/webhooks/{webhook}/test": OWN_WEBHOOK,
    "POST /v1/webhooks/{webhook}/rotate": OWN_WEBHOOK,
    "GET /v1/webhooks/{webhook}/deliveries": OWN_WEBHOOK,
    "POST /v1/webhooks/{webhook}/deliveries/{delivery}/send": OWN_WEBHOOK,
}
"""What each of the first five callers gets; the other three are `unauthenticated` everywhere. Links need no key."""

BODIES = {
    "POST /v1/feeds/subscriptions/preview": {"places": ["fl-county-orange"]},
    "POST /v1/feeds/subscriptions": {"places": ["fl-county-orange"]},
    "PATCH /v1/feeds/subscriptions/{subscription}": {"name": "New", "revision": 1},
    "POST /v1/feeds/datasets/{dataset}/versions/{version}/links": {"files": ["schema.json"]},
    "POST /v1/feeds/datasets/{dataset}/records": {"records": [f"rec_{'a' * 26}"]},
    "POST /v1/webhooks": {"url": "https://hooks.example.org/x", "subscriptionId": "{subscription}"},
}


@dataclass
class World:
    """What one workspace has, made anew after each call that changes it."""

    served: object
    ids: dict

    @classmethod
    def made(cls, served):
        subscription = served.subscribe(places=["fl-county-orange"])
        hook = {"url": "https://hooks.example.org/", "subscriptionId": subscription}
        webhook = served.post("/v1/webhooks", hook).json()["id"]
        with served.ports.store.read() as records:
            number = records.versions.newest_number("ds_orange") + 1
        previous = {"previous_version": number - 1} if number > 1 else {}
        served.release("ds_orange", number, **previous)
        delivery = served.get(f"/v1/webhooks/{webhook}/deliveries").json()["deliveries"][0]["id"]
        ids = {"dataset": "ds_orange", "version": number, "record": f"rec_{'a' * 26}", "file": "original"}
        return cls(served, ids | {"subscription": subscription, "webhook": webhook, "delivery": delivery})

    def ask(self, operation, who):
        method, path = operation.split()
        body = BODIES.get(operation)
        if body is not None:
            body = {name: value.format(**self.ids) if isinstance(value, str) else value for name, value in body.items()}
        answer = self.served.client.request(
            method, path.format(**self.ids), json=body, headers=self.served.headers(who)
        )
        if answer.is_success:
            return OK
        code = answer.json()["error"]["code"]
        assert answer.status_code == ERROR_STATUS[code]
        return code


@pytest.fixture
def world(served):
    """A workspace with a subscription, a webhook and a delivery, and a key of each kind of caller."""
    served.keys["feeds"] = create_key(served.ports, "florida", "ann", permissions=["feeds"]).text
    revoked = create_key(served.ports, "florida", "ann")
    left = create_key(served.ports, "florida", "eve", "admin")
    served.keys |= {"revoked": revoked.text, "left": left.text}
    revoke_key(served.ports, revoked.key.id)
    remove_member(served.ports, "florida", "eve")
    return World.made(served)


def operations(served):
    paths = served.client.get("/openapi.json").json()["paths"]
    return [f"{method.upper()} {path}" for path, described in paths.items() for method in described]


def test_every_operation_for_every_caller_is_as_the_contract_has_it(served, world):
    wrong, cells = {}, 0
    described = [one for one in operations(served) if not one.endswith("/v1/files/{path}")]
    assert set(described) - set(MATRIX) == set(), "give each new operation its row"
    for operation in described:
        for who, expected in zip(CALLERS, (*MATRIX[operation], *["unauthenticated"] * 3), strict=True):
            found = world.ask(operation, who)
            cells += 1
            if found != expected:
                wrong[operation, who] = (found, expected)
            if found == OK and not operation.startswith("GET") and "{" in operation:
                world = World.made(served)
    assert wrong == {}
    assert cells == len(described) * len(CALLERS)


def test_a_link_needs_no_key_and_no_key_opens_another_address(served, world):
    version = served.get("/v1/feeds/datasets/{dataset}/versions/{version}".format(**world.ids)).json()
    url = version["files"]["schema"]["url"]
    for who in CALLERS:
        assert served.client.get(url, headers=served.headers(who)).status_code == 200
        assert served.client.get(url.split("?")[0], headers=served.headers(who)).status_code == 403
