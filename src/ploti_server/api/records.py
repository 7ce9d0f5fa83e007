"""`GET /v1/feeds/datasets/{dataset}/records/{record}`: what became of a record id (page 001, D4.3)."""

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from ploti.contract import resources
from ploti_server.api.answers import read_answer
from ploti_server.api.documented import DATASET_REFUSALS, answers
from ploti_server.api.links import Context
from ploti_server.api.reach import access_for, reach_dataset, require_subscribed
from ploti_server.api.routes import Routes, caller_of
from ploti_server.domain.access import Refused
from ploti_server.pipeline.trace import Traced, trace


def record_routes(context: Context) -> APIRouter:
    """Declare the route."""
    routes = Routes(context, "Datasets")

    def get_record(request: Request, dataset: str, record: str) -> Response:
        """Tell what became of a record id: whether a record carries it, until when, and what replaced it."""
        caller = caller_of(request)
        access = access_for(context, caller)
        with context.ports.store.read() as records:
            reach_dataset(records, access, dataset)
            require_subscribed(records, caller.workspace.id, dataset)
        traced = trace(context.ports, dataset, record)
        if traced is None:
            raise Refused("not_found", f"No record of {dataset} ever carried this id: check it for typing errors.")
        return read_answer(request, _shape(dataset, traced))

    refused = (*DATASET_REFUSALS, "not_subscribed")
    path = "/v1/feeds/datasets/{dataset}/records/{record}"
    routes.add("GET", path, get_record, answers(resources.RecordTrace, *refused))
    return routes.router


def _shape(dataset: str, traced: Traced) -> resources.RecordTrace:
    return {
        "datasetId": dataset,
        "recordId": traced.record_id,
        "status": traced.wire_status,
        "firstVersion": traced.first_version,
        "lastVersion": traced.last_version,
        "replacedBy": traced.replaced_by,
        "currentId": traced.current_id,
    }
