"""What became of record ids, one or many (page 001, D4.3)."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Final

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from ploti.contract import resources
from ploti.contract._typed import TypedDict
from ploti.contract.files import RECORDS_PER_CALL
from ploti_server.api.answers import answer, read_answer
from ploti_server.api.documented import VERSION_REFUSALS, answers, body
from ploti_server.api.links import Context
from ploti_server.api.queries import parse_body, read_body, read_names
from ploti_server.api.reach import access_for, reach_dataset, require_subscribed
from ploti_server.api.routes import Routes, caller_of
from ploti_server.domain.access import Refused
from ploti_server.pipeline.ledger_parts import LedgerLost
from ploti_server.pipeline.trace import Traced, trace, trace_all

_ID_LONGEST: Final = 100


class RecordsBody(TypedDict):
    """The record ids to tell of."""

    records: list[str]


def record_routes(context: Context) -> APIRouter:
    """Declare the routes."""
    routes = Routes(context, "Datasets")

    def reach(request: Request, dataset: str) -> None:
        caller = caller_of(request)
        access = access_for(context, caller)
        with context.ports.store.read() as records:
            reach_dataset(records, access, dataset)
            require_subscribed(records, caller.workspace.id, dataset)

    def get_record(request: Request, dataset: str, record: str) -> Response:
        """Tell what became of a record id: whether a record carries it, until when, and what replaced it."""
        reach(request, dataset)
        with _told_when_lost(dataset):
            traced = trace(context.ports, dataset, record)
        if traced is None:
            raise Refused("not_found", f"No record of {dataset} ever carried this id: check it for typing errors.")
        return read_answer(request, _shape(dataset, traced))

    def get_records(request: Request, dataset: str, content: Annotated[bytes, Depends(read_body)]) -> Response:
        """Tell what became of the record ids that are named."""
        names = read_names(parse_body(content), "records", RECORDS_PER_CALL, _ID_LONGEST)
        reach(request, dataset)
        with _told_when_lost(dataset):
            found = trace_all(context.ports, dataset, names)
        told: resources.RecordTraces = {
            "records": [_shape(dataset, found[name]) for name in names if name in found],
            "missing": [name for name in names if name not in found],
        }
        return answer(told)

    path = "/v1/feeds/datasets/{dataset}/records"
    routes.add("GET", path + "/{record}", get_record, answers(resources.RecordTrace, *VERSION_REFUSALS))
    routes.add("POST", path, get_records, answers(resources.RecordTraces, *VERSION_REFUSALS), body=body(RecordsBody))
    return routes.router


@contextmanager
def _told_when_lost(dataset: str) -> Iterator[None]:
    try:
        yield
    except LedgerLost as lost:
        message = f"Part of what is known of the record ids of {dataset} is lost: ask again after its next check."
        raise Refused("expired", message) from lost


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
