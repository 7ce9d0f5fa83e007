"""`POST /v1/feeds/subscriptions/preview`: what a subscription would deliver now, without making one (page 000)."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Final, NotRequired

from fastapi import APIRouter, Depends, Query
from starlette.requests import Request
from starlette.responses import Response

from ploti.contract import resources
from ploti_server.api.answers import answer
from ploti_server.api.documented import answers, body
from ploti_server.api.links import Context
from ploti_server.api.pages import give_cursor, read_cursor
from ploti_server.api.queries import Cursor, PlainNumber, parse_body, read_body
from ploti_server.api.reach import access_for, covered_place, require_topic
from ploti_server.api.routes import Routes, caller_of
from ploti_server.api.shapes import filed_place
from ploti_server.api.subscriptions import SubscriptionBody
from ploti_server.domain.access import Access, Refused
from ploti_server.domain.preview import (
    NARROWING,
    NO_TOPIC,
    PAGE_MOST,
    Match,
    MatchedBy,
    Narrowing,
    Sort,
    Totals,
    keeps,
    matches_of,
    order_of,
    read_narrowing,
    totals_of,
)
from ploti_server.domain.subscriptions import Selection, read_selection
from ploti_server.pipeline.subscriptions import check_preview
from ploti_server.ports import Records

_LISTING: Final = "preview"
_ORDERED_BY: Final[dict[Sort, tuple[type, ...]]] = {
    "place": (str, str, str),
    "title": (str, str),
    "updated": (int, str),
}


class PreviewBody(SubscriptionBody):
    """What a subscription would name, and what narrows the page: here or as query parameters."""

    q: NotRequired[str]
    place: NotRequired[str]
    topic: NotRequired[str]
    matchedBy: NotRequired[MatchedBy]
    sort: NotRequired[Sort]
    limit: NotRequired[int]
    cursor: NotRequired[str]


def preview_routes(context: Context) -> APIRouter:
    """Declare the route."""
    routes = Routes(context, "Subscriptions")

    def preview(
        request: Request,
        content: Annotated[bytes, Depends(read_body)],
        *,
        q: Annotated[str | None, Query(description="Only datasets whose title has every one of these words.")] = None,
        place: Annotated[str | None, Query(description="Only datasets filed under this place.")] = None,
        topic: Annotated[str | None, Query(description="Only datasets of this topic, `none` for no topic.")] = None,
        matched_by: Annotated[MatchedBy | None, Query(alias="matchedBy")] = None,
        sort: Annotated[Sort | None, Query(description="`place` by default.")] = None,
        limit: Annotated[int | None, Query(ge=1, le=PAGE_MOST, description="Items a page."), PlainNumber] = None,
        cursor: Cursor = None,
    ) -> Response:
        """Count and list the datasets that a subscription would deliver now."""
        in_query = dict(zip(NARROWING, (q, place, topic, matched_by, sort, limit, cursor), strict=True))
        selection, narrowing = _read(parse_body(content), in_query)
        caller = caller_of(request)
        access = access_for(context, caller)
        bound = _bound(caller.workspace.id, selection, narrowing)
        opened, after = _start(context.ports.clock.now(), narrowing, bound)
        with context.ports.store.read() as records:
            check_preview(records, selection, access)
            matches = matches_of(selection, records.catalog.datasets(), access)
            _check_narrowing(records, narrowing, access, matches)
            kept = [match for match in matches if keeps(narrowing, match, access.counties)]
            ordered = sorted((_order(records, narrowing.sort, match, opened), match) for match in kept)
        rest = [(order, match) for order, match in ordered if after is None or order > after]
        page = rest[: narrowing.limit]
        following = [int(opened.timestamp() * 1000), *page[-1][0]] if len(rest) > len(page) else None
        next_cursor = give_cursor(_LISTING, bound, following) if following else None
        return answer(_shape(totals_of(matches), len(kept), [match for _, match in page], next_cursor))

    refused = ("outside_coverage", "not_deliverable", "plan_unavailable")
    described = answers(resources.SubscriptionPreview, *refused)
    path = "/v1/feeds/subscriptions/preview"
    routes.add("POST", path, preview, described, body=body(PreviewBody), strict=True)
    return routes.router


def _read(sent: Any, in_query: Mapping[str, Any]) -> tuple[Selection, Narrowing]:
    """Read what is previewed and what narrows it, each once, in the body or in the query."""
    given = {name: value for name, value in in_query.items() if value is not None}
    if not isinstance(sent, Mapping):
        return read_selection(sent), read_narrowing(given)
    for name in given.keys() & sent.keys():
        raise Refused("invalid_input", f"'{name}' is given in the body and in the query: give it once.", name)
    in_body = {name: sent[name] for name in NARROWING if name in sent}
    selection = read_selection({name: value for name, value in sent.items() if name not in in_body})
    return selection, read_narrowing(given | in_body)


def _check_narrowing(records: Records, narrowing: Narrowing, access: Access, matches: Sequence[Match]) -> None:
    """Refuse a place outside of the coverage, unless `byPlace` names it, and a topic that is none."""
    if narrowing.place not in {match.dataset.filed_place for match in matches}:
        covered_place(narrowing.place, access)
    if narrowing.topic != NO_TOPIC:
        require_topic(records, narrowing.topic)


def _bound(workspace_id: str, selection: Selection, narrowing: Narrowing) -> dict[str, Any]:
    return {
        "workspace": workspace_id,
        "places": sorted(selection.places),
        "topics": sorted(selection.topics),
        "datasetIds": sorted(selection.dataset_ids),
        "q": narrowing.q,
        "place": narrowing.place,
        "topic": narrowing.topic,
        "matchedBy": narrowing.matched_by,
        "sort": narrowing.sort,
    }


def _start(now: datetime, narrowing: Narrowing, bound: Mapping[str, Any]) -> tuple[datetime, list[Any] | None]:
    """Give the moment of the first page, and what this page follows; later pages keep that moment's order (D8.3)."""
    if narrowing.cursor is None:
        return now, None
    opened, *after = read_cursor(_LISTING, bound, narrowing.cursor, (int, *_ORDERED_BY[narrowing.sort]))
    return datetime.fromtimestamp(opened / 1000, UTC), after


def _order(records: Records, sort: Sort, match: Match, opened: datetime) -> list[str | int]:
    released_at = _released_at(records, match.dataset.id, opened) if sort == "updated" else None
    return order_of(sort, match.dataset, released_at)


def _released_at(records: Records, dataset_id: str, opened: datetime) -> datetime | None:
    """Give when the version that was current at a moment was released."""
    before: int | None = None
    while found := records.versions.released(dataset_id, before=before, newest_first=True, limit=1):
        if found[0].released_at is not None and found[0].released_at <= opened:
            return found[0].released_at
        before = found[0].number
    return None


def _shape(totals: Totals, matching: int, page: list[Match], next_cursor: str | None) -> resources.SubscriptionPreview:
    return {
        "total": totals.total,
        "matchedBy": {"places": totals.matched_by["places"], "datasets": totals.matched_by["datasets"]},
        "byTopic": [{"topic": topic, "count": count} for topic, count in totals.by_topic],
        "byPlace": [{**filed_place(place), "count": count} for place, count in totals.by_place],
        "matching": matching,
        "datasets": [_listed(match) for match in page],
        "nextCursor": next_cursor,
    }


def _listed(match: Match) -> resources.PreviewedDataset:
    return {"id": match.dataset.id, "title": match.dataset.title, "matchedBy": list(match.by)}
