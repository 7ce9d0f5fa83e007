"""What the OpenAPI description says about answers, refusals and bodies; the shapes come from the contract."""

from typing import Any, Final

from pydantic import TypeAdapter

from ploti.contract.errors import ERROR_STATUS, ErrorBody

_ALWAYS: Final = ("invalid_input", "unauthenticated", "not_allowed", "rate_limited", "internal_error")
DATASET_REFUSALS: Final = ("not_found", "outside_coverage", "not_deliverable", "plan_unavailable")
VERSION_REFUSALS: Final = (*DATASET_REFUSALS, "not_subscribed", "expired")
_ERROR_NAME: Final = ErrorBody.__name__
_ERROR_PLACE: Final = "#/components/schemas/{model}"
_REFUSED: Final = {"content": {"application/json": {"schema": {"$ref": _ERROR_PLACE.format(model=_ERROR_NAME)}}}}
_BODY_TEXT: Final = {"type": "string", "format": "binary"}


def answers(shape: Any, *codes: str, status: int = 200) -> dict[int | str, dict[str, Any]]:
    """Describe a route's answer and the codes that it can refuse with beside those of every route."""
    described: dict[int | str, dict[str, Any]] = {status: {"model": shape, "description": "The answer."}}
    for code in dict.fromkeys((*_ALWAYS, *codes)):
        known = described.setdefault(ERROR_STATUS[code], {**_REFUSED, "description": ""})
        known["description"] = ", ".join(filter(None, (known["description"], f"`{code}`")))
    return described


def error_schemas() -> dict[str, Any]:
    """Give the schemas that every refusal's description refers to."""
    schema = TypeAdapter(ErrorBody).json_schema(ref_template=_ERROR_PLACE)
    parts: dict[str, Any] = schema.pop("$defs", {})
    return {**parts, _ERROR_NAME: schema}


def body(shape: Any) -> dict[str, Any]:
    """Describe a JSON body."""
    schema = TypeAdapter(shape).json_schema()
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def header_parameter(name: str, description: str) -> dict[str, Any]:
    """Describe a request header that may be left out."""
    return {"parameters": [{"name": name, "in": "header", "description": description, "schema": {"type": "string"}}]}


def file_answers() -> dict[int | str, dict[str, Any]]:
    """Describe the answers of a file's link."""
    content = {"application/octet-stream": {"schema": _BODY_TEXT}}
    return {
        200: {"description": "The whole file.", "content": content},
        206: {"description": "The range that was asked for.", "content": content},
        400: {"description": "`invalid_input`: a malformed Range header.", **_REFUSED},
        403: {"description": "`not_allowed`: the link was altered or has expired.", **_REFUSED},
        404: {"description": "`not_found`: the file is gone.", **_REFUSED},
        416: {"description": "`range_not_satisfiable`.", **_REFUSED},
    }


def file_parameters() -> list[dict[str, Any]]:
    """Describe what a file's link is made of; a link is used as it was given."""
    text = {"required": True, "schema": {"type": "string"}}
    query = [{"name": name, "in": "query", **text} for name in ("expires", "filename", "type", "signature")]
    return [{"name": "path", "in": "path", **text}, *query]
