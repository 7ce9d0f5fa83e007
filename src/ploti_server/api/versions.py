"""A dataset's versions, one version with signed links, and links to some of its files (page 001)."""

from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Depends, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from ploti.contract import resources
from ploti.contract._typed import TypedDict
from ploti.contract.files import LINKS_PER_CALL
from ploti_server.api.answers import answer, read_answer
from ploti_server.api.documented import DATASET_REFUSALS, VERSION_REFUSALS, answers, body
from ploti_server.api.kept import require_kept
from ploti_server.api.links import Context
from ploti_server.api.pages import give_cursor, read_cursor
from ploti_server.api.queries import Cursor, Limit200, PlainNumber, parse_body, read_body, read_names
from ploti_server.api.reach import access_for, reach_dataset, reach_files
from ploti_server.api.routes import Routes, caller_of
from ploti_server.api.shapes import version_shape

_LISTING: Final = "versions"
_NAME_LONGEST: Final = 500

VersionNumber = Annotated[int, Path(ge=1), PlainNumber]


class LinksBody(TypedDict):
    """The files to link, by `path`, or by `file` for attachments."""

    files: list[str]


def version_routes(context: Context) -> APIRouter:
    """Declare the routes."""
    routes = Routes(context, "Versions")

    def list_versions(
        request: Request,
        dataset: str,
        *,
        after: Annotated[int, Query(ge=0, description="Only versions above this number."), PlainNumber] = 0,
        order: Annotated[Literal["asc", "desc"], Query()] = "asc",
        limit: Limit200 = 100,
        cursor: Cursor = None,
    ) -> Response:
        """List a dataset's released versions by number."""
        access = access_for(context, caller_of(request))
        bound: dict[str, Any] = {"dataset": dataset, "after": after, "order": order}
        passed = read_cursor(_LISTING, bound, cursor, (int,))[0] if cursor is not None else None
        newest_first = order == "desc"
        lowest = after if newest_first or passed is None else max(after, passed)
        with context.ports.store.read() as records:
            reach_dataset(records, access, dataset)
            found = records.versions.released(
                dataset,
                after=lowest,
                before=passed if newest_first else None,
                newest_first=newest_first,
                limit=limit + 1,
            )
        listed = found[:limit]
        page: resources.VersionPage = {
            "versions": [version_shape(version) for version in listed],
            "nextCursor": give_cursor(_LISTING, bound, [listed[-1].number]) if len(found) > limit else None,
        }
        return read_answer(request, page)

    def get_version(request: Request, dataset: str, version: VersionNumber) -> Response:
        """Read a released version with signed links to its files."""
        reached = reach_files(context, caller_of(request), dataset, version)
        require_kept(context.ports.files, reached.version, is_current=reached.is_current)
        shape = version_shape(reached.version)
        shape["files"] = context.links(request).files(reached.version)
        return answer(shape)

    def sign_links(
        request: Request, dataset: str, version: VersionNumber, content: Annotated[bytes, Depends(read_body)]
    ) -> Response:
        """Sign fresh links to the files that are named."""
        names = read_names(parse_body(content), "files", LINKS_PER_CALL, _NAME_LONGEST)
        reached = reach_files(context, caller_of(request), dataset, version)
        return answer(context.links(request).named(reached.version, names))

    one = "/v1/feeds/datasets/{dataset}/versions/{version}"
    page_answers = answers(resources.VersionPage, *DATASET_REFUSALS)
    routes.add("GET", "/v1/feeds/datasets/{dataset}/versions", list_versions, page_answers)
    routes.add("GET", one, get_version, answers(resources.Version, *VERSION_REFUSALS))
    link_answers = answers(resources.SignedFiles, *VERSION_REFUSALS)
    routes.add("POST", f"{one}/links", sign_links, link_answers, body=body(LinksBody))
    return routes.router
