"""A dataset's schema and every schema version it has had (page 004); they outlive the files (D1.5)."""

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from ploti.contract import resources
from ploti_server.api.answers import read_answer
from ploti_server.api.documented import DATASET_REFUSALS, answers
from ploti_server.api.links import Context
from ploti_server.api.queries import PlainNumber
from ploti_server.api.reach import access_for, no_version, reach_dataset
from ploti_server.api.routes import Routes, caller_of
from ploti_server.api.shapes import schema_shape
from ploti_server.domain.access import Refused
from ploti_server.domain.versions import Version, VersionStatus
from ploti_server.ports import Records

_SENT = (VersionStatus.RELEASED, VersionStatus.RELEASED_AGAIN)


def schema_routes(context: Context) -> APIRouter:
    """Declare the routes, under the paths of today and the older ones (D1.1)."""
    routes = Routes(context, "Schemas")

    def get_schema(
        request: Request,
        dataset: str,
        version: Annotated[
            int | None, Query(ge=1, description="A version of the dataset; the current one by default."), PlainNumber
        ] = None,
    ) -> Response:
        """Read the schema of a dataset's version."""
        access = access_for(context, caller_of(request))
        with context.ports.store.read() as records:
            found = reach_dataset(records, access, dataset)
            wanted = _sent_version(records, dataset, version)
            first, _ = _ends(records, dataset)[wanted.schema_version]
        return read_answer(request, schema_shape(found, wanted, first))

    def list_schemas(request: Request, dataset: str) -> Response:
        """List every schema version that a dataset has had, oldest first, each as its newest version has it."""
        access = access_for(context, caller_of(request))
        with context.ports.store.read() as records:
            found = reach_dataset(records, access, dataset)
            ends = _ends(records, dataset).values()
        body: resources.SchemaList = {
            "datasetId": dataset,
            "schemas": [schema_shape(found, last, first) for first, last in ends],
        }
        return read_answer(request, body)

    both = ("/v1/feeds/datasets/{dataset}", "/v1/datasets/{dataset}")
    schema, schemas = (answers(shape, *DATASET_REFUSALS) for shape in (resources.Schema, resources.SchemaList))
    routes.add("GET", [f"{path}/schema" for path in both], get_schema, schema)
    routes.add("GET", [f"{path}/schemas" for path in both], list_schemas, schemas)
    return routes.router


def _ends(records: Records, dataset_id: str) -> dict[str, tuple[Version, Version]]:
    """Find the first and the last sent version of each schema version, oldest first."""
    ends: dict[str, tuple[Version, Version]] = {}
    for version in records.versions.in_status(dataset_id, _SENT):
        if version.released_at is not None:
            first, _ = ends.get(version.schema_version, (version, version))
            ends[version.schema_version] = (first, version)
    return ends


def _sent_version(records: Records, dataset_id: str, number: int | None) -> Version:
    """Find a version that was ever sent, by default the current one, or refuse."""
    if number is None:
        version = records.versions.current(dataset_id)
        if version is None:
            message = f"{dataset_id} has no released version yet: its schema comes with the first."
            raise Refused("not_found", message)
        return version
    version = records.versions.get(dataset_id, number)
    if version is None or version.status not in _SENT or version.released_at is None:
        raise no_version(dataset_id, number)
    return version
