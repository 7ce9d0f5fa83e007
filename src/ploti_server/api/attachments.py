"""A dataset's stored files by name, and the sources that it comes from: thin reads under the feeds rules (D1.7)."""

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from ploti.contract import resources
from ploti.contract.files import SOURCE_COPY_PREFIX
from ploti_server.api.answers import answer, read_answer
from ploti_server.api.documented import DATASET_REFUSALS, answers
from ploti_server.api.links import Context
from ploti_server.api.reach import access_for, reach_dataset, require_subscribed
from ploti_server.api.routes import Routes, caller_of
from ploti_server.domain.access import Refused
from ploti_server.domain.attachments import is_web
from ploti_server.domain.datasets import Dataset
from ploti_server.pipeline.check import public_source

OWN_SOURCE = "main"
"""The id of the source that a dataset's rows are read from."""


def attachment_routes(context: Context) -> APIRouter:
    """Declare the routes."""
    routes = Routes(context, "Versions")

    def get_file(request: Request, dataset: str, file: str) -> Response:
        """Sign a link to an attachment of the dataset's current version."""
        caller = caller_of(request)
        access = access_for(context, caller)
        with context.ports.store.read() as records:
            reach_dataset(records, access, dataset)
            require_subscribed(records, caller.workspace.id, dataset)
            current = records.versions.current(dataset)
        signed = context.links(request).named(current, [file]) if current is not None else None
        found = next((one for one in signed["files"] if one["file"] == file), None) if signed is not None else None
        if current is None or signed is None or found is None or file in {one.path for one in current.files}:
            message = f"{dataset} has no file of this name now: its current version lists those that it has."
            raise Refused("not_found", message)
        told: resources.DatasetFile = {
            "datasetId": dataset,
            "version": current.number,
            "file": file,
            "filename": found["filename"],
            "contentType": found["contentType"],
            "sizeBytes": found["sizeBytes"],
            "sha256": found["sha256"],
            "url": found["url"],
            "expiresAt": signed["expiresAt"],
        }
        return answer(told)

    def get_provenance(request: Request, dataset: str) -> Response:
        """List the sources that a dataset comes from; an archived copy of one is its attachment `source:<id>`."""
        access = access_for(context, caller_of(request))
        with context.ports.store.read() as records:
            found = reach_dataset(records, access, dataset)
        told: resources.Provenance = {"datasetId": dataset, "sources": _sources(found)}
        return read_answer(request, told)

    file_answers = answers(resources.DatasetFile, *DATASET_REFUSALS, "not_subscribed")
    routes.add("GET", "/v1/datasets/{dataset}/files/{file}", get_file, file_answers)
    provenance = answers(resources.Provenance, *DATASET_REFUSALS)
    routes.add("GET", "/v1/datasets/{dataset}/provenance", get_provenance, provenance)
    return routes.router


def _sources(dataset: Dataset) -> list[resources.ProvenanceSource]:
    """Give the dataset's own source and those that the catalog has archived; a local path is never shown (D10.5)."""
    archived = {
        one.file.removeprefix(SOURCE_COPY_PREFIX): one.url if is_web(one.url) else None
        for one in dataset.attachments
        if one.file.startswith(SOURCE_COPY_PREFIX)
    }
    sources = {OWN_SOURCE: public_source(dataset)} | archived
    return [
        {"id": id_, "url": url, "file": f"{SOURCE_COPY_PREFIX}{id_}" if id_ in archived else None}
        for id_, url in sources.items()
    ]
