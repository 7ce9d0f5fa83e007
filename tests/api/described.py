"""Sends what the OpenAPI description allows and forbids, and holds each answer to it (D1.5).

Many of the identifiers and bodies sent are real, so that requests get past the first refusal.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
MODES = (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
CALLERS = ("admin", "admin", "admin", "member", "hooks", "other", "")
BODIES: dict[str, list[Any]] = {
    "/v1/feeds/subscriptions": [{"places": ["fl"]}, {"datasetIds": ["ds_orange"], "topics": ["zoning"]}],
    "/v1/feeds/subscriptions/preview": [{"places": ["fl-counties"]}, {"places": ["us"], "q": "a", "sort": "updated"}],
    "/v1/feeds/subscriptions/{subscription}": [{"name": "x", "revision": 1}, {"places": [], "revision": 1}],
    "/v1/webhooks": [{"url": "https://hooks.example.org/"}, {"url": "https://127.0.0.1/", "events": []}],
    "/v1/feeds/datasets/{dataset}/versions/{version}/links": [{"files": ["schema.json", "nothing"]}],
}


@dataclass
class Driver:
    """Drives every operation over a served publisher; `answered` counts the answers by status."""

    served: Any
    answered: Counter[int] = field(default_factory=Counter)

    def drive(self, examples: int, start: int) -> None:
        """Send about `examples` requests to each operation; raises where an answer is not as described."""
        described = schemathesis.openapi.from_dict(self.served.client.get("/openapi.json").json())
        for found in described.get_all_operations():
            for mode in MODES:
                self._drive_operation(found.ok(), mode, max(examples // len(MODES), 1), start)

    def _drive_operation(self, operation: Any, mode: GenerationMode, examples: int, start: int) -> None:
        path = operation.path

        @seed(start)
        @settings(
            max_examples=examples,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(generation_mode=mode), chosen=st.data())
        def send(case: Any, chosen: Any) -> None:
            real = self._real_ids()
            for name in case.path_parameters or {}:
                if name in real and chosen.draw(st.booleans()):
                    case.path_parameters[name] = real[name]
            for name in case.query or {}:
                if name in real and chosen.draw(st.booleans()):
                    case.query[name] = real[name]
            if path in BODIES and chosen.draw(st.booleans()):
                case.body = chosen.draw(st.sampled_from(BODIES[path]))
                if path == "/v1/webhooks":
                    case.body = case.body | {"subscriptionId": real["subscription"]}
            self._send(case, chosen.draw(st.sampled_from(CALLERS)))

        send()

    def _send(self, case: Any, who: str) -> None:
        call = case.as_transport_kwargs(base_url="http://feeds.test")
        sent = {k: v for k, v in dict(call.pop("headers", {})).items() if k.lower() != "authorization"}
        headers = {name: str(value).encode("latin-1", "replace") for name, value in sent.items()}
        wanted = {name: call[name] for name in ("params", "json", "data") if call.get(name) is not None}
        if "data" in wanted:
            wanted["content"] = wanted.pop("data")
        answer = self.served.client.request(
            call["method"], call["url"], headers=headers | self.served.headers(who), **wanted
        )
        self.answered[answer.status_code] += 1
        case.validate_response(answer, checks=CHECKS)

    def _real_ids(self) -> dict[str, Any]:
        """Give ids of what there is now, making a subscription and a webhook where they are gone."""
        with self.served.ports.store.read() as records:
            workspace = records.workspaces.named("florida").id
            subscriptions = records.subscriptions.of_workspace(workspace)
            webhooks = records.webhooks.of_workspace(workspace)
            deliveries = records.deliveries.of_webhook(webhooks[0].id, 1) if webhooks else ()
        if not subscriptions or not webhooks:
            one = subscriptions[0].id if subscriptions else self.served.subscribe(places=["fl-county-orange"])
            self.served.post("/v1/webhooks", {"url": "https://hooks.example.org/", "subscriptionId": one})
            number = self._next_version()
            self.served.release("ds_orange", number, previous_version=number - 1)
            return self._real_ids()
        ids = {"dataset": "ds_orange", "version": 1, "record": f"rec_{'a' * 26}", "place": "fl", "topic": "permits"}
        named = {"subscription": subscriptions[0].id, "webhook": webhooks[0].id, "cursor": "evt_000000000000"}
        return ids | named | {"delivery": deliveries[0].id if deliveries else "msg_none", "asOf": "evt_000000000001"}

    def _next_version(self) -> int:
        with self.served.ports.store.read() as records:
            return records.versions.newest_number("ds_orange") + 1
