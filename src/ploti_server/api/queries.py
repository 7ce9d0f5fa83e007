"""What every request is checked for first: its key, its permission, and that each parameter is known and given once."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Final
from urllib.parse import parse_qsl

import msgspec
from fastapi import Query
from pydantic import BeforeValidator
from starlette.requests import ClientDisconnect, Request

from ploti_server.domain.access import Refused, refusal_of_key
from ploti_server.domain.workspaces import Role, Workspace
from ploti_server.pipeline.workspaces import hash_key
from ploti_server.ports import Ports

CALLER: Final = "caller"
"""Name of who asks, in the state of a request whose key was found."""
_PARAMETERS: Final = "parameters"
BODY_BYTES: Final = 1_000_000
TOO_LARGE: Final = f"The body is too large: send at most {BODY_BYTES} bytes."
_NUMBER: Final = re.compile(r"[0-9]{1,15}")
_MOMENT: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2})"
)


@dataclass(frozen=True)
class Caller:
    """Who asks: a workspace's key, with the lower role of key and member."""

    workspace: Workspace
    member: str
    role: Role
    permissions: tuple[str, ...]
    key_id: str


def identify(ports: Ports, request: Request) -> Caller:
    """Find whose key a request carries; raises `Refused` `unauthenticated`."""
    scheme, _, text = header_of(request, b"authorization").partition(" ")
    text = text.strip() if scheme.lower() == "bearer" else ""
    with ports.store.glance() as records:
        found = records.workspaces.holder(hash_key(text)) if text else None
    key, member = (found.key, found.member) if found else (None, None)
    refused = refusal_of_key(key, member)
    if refused is not None:
        raise refused
    if found is None or key is None or member is None:
        raise LookupError("a valid key that nobody holds")
    role: Role = "admin" if key.role == member.role == "admin" else "member"
    return Caller(found.workspace, member.name, role, key.permissions, key.id)


def header_of(request: Request, name: bytes) -> str:
    """Give the first header of a name in lower case, an empty text where there is none."""
    for given, value in request.scope["headers"]:
        if given == name:
            text: str = value.decode("latin-1")
            return text
    return ""


def require_permission(caller: Caller, permission: str) -> None:
    """Refuse a key that lacks a permission."""
    if permission not in caller.permissions:
        message = f"This key lacks the '{permission}' permission: make one with `ploti-server key create` that has it."
        raise Refused("not_allowed", message)


def require_admin(caller: Caller) -> None:
    """Refuse a key of a member who is not a workspace admin (page 000)."""
    if caller.role != "admin":
        raise Refused("not_allowed", "Only a workspace admin may create, change or delete a subscription: ask one.")


def parameters_of(request: Request) -> list[tuple[str, str]]:
    """Read the query parameters once, in the order in which they are sent."""
    state = request.scope["state"]
    if _PARAMETERS not in state:
        state[_PARAMETERS] = parse_qsl(request.scope["query_string"].decode("latin-1"), keep_blank_values=True)
    read: list[tuple[str, str]] = state[_PARAMETERS]
    return read


def require_known_parameters(request: Request) -> None:
    """Refuse query parameters that the route does not take or that are given twice (D1.5)."""
    known: frozenset[str] = request.scope["route"].known
    seen: set[str] = set()
    for name, _ in parameters_of(request):
        if name not in known:
            takes = f"it takes {', '.join(sorted(known))}" if known else "it takes none"
            raise Refused("invalid_input", f"'{name}' is not a parameter of this address: {takes}.", name)
        if name in seen:
            raise Refused("invalid_input", f"'{name}' is given more than once: give it once.", name)
        seen.add(name)


def require_plain_text(request: Request) -> None:
    """Refuse U+0000 in the address, which no id has and which not every database can be asked about."""
    for value in request.path_params.values():
        if "\0" in str(value):
            raise Refused("not_found", "There is nothing at this address: it has a character that no id has.")
    for name, value in parameters_of(request):
        if "\0" in value:
            raise Refused("invalid_input", f"'{name}' has a character that no value has: leave it out.", name)


async def read_body(request: Request) -> bytes:
    """Read a request's body, up to a megabyte; one that says it is larger is not waited for."""
    content = bytearray()
    if int(request.headers.get("content-length", "0")) > BODY_BYTES:
        raise Refused("invalid_input", TOO_LARGE)
    try:
        async for block in request.stream():
            content += block
            if len(content) > BODY_BYTES:
                raise Refused("invalid_input", TOO_LARGE)
    except ClientDisconnect:
        raise Refused("invalid_input", "The body breaks off: send it again.") from None
    return bytes(content)


def parse_body(content: bytes) -> Any:
    """Parse a JSON body; raises `Refused` `invalid_input`."""
    try:
        return msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Refused("invalid_input", "The body is not JSON: send a JSON object.") from None


def read_names(sent: Any, member: str, most: int, longest: int) -> list[str]:
    """Read a body that is one list of names, each once; raises `Refused` `invalid_input`."""
    if not isinstance(sent, dict) or set(sent) != {member}:
        raise Refused("invalid_input", f'Send {{"{member}": [...]}} and nothing else.', member)
    names = sent[member]
    if not isinstance(names, list) or not all(isinstance(name, str) and 0 < len(name) <= longest for name in names):
        raise Refused("invalid_input", f"Name {member} with 1 to {longest} characters each.", member)
    if not 1 <= len(names) <= most:
        raise Refused("invalid_input", f"Name 1 to {most} {member}: {len(names)} were sent.", member)
    return list(dict.fromkeys(names))


def _plain_number(value: Any) -> Any:
    if isinstance(value, str) and not _NUMBER.fullmatch(value):
        raise ValueError("has to be a whole number in plain digits, 15 at most")
    return value


PlainNumber = BeforeValidator(_plain_number)


def _plain_moment(value: Any) -> Any:
    if not isinstance(value, str) or not _MOMENT.fullmatch(value):
        raise ValueError("has to be a moment like 2026-10-18T06:12:40Z (write + as %2B)")
    try:
        return datetime.fromisoformat(value).astimezone(UTC)
    except OverflowError:
        raise ValueError("lies outside the years 1 to 9999") from None


PlainMoment = BeforeValidator(_plain_moment)
Cursor = Annotated[str | None, Query(description="`nextCursor` of the page before.")]
Limit200 = Annotated[int, Query(ge=1, le=200, description="Items a page."), PlainNumber]
Limit500 = Annotated[int, Query(ge=1, le=500, description="Items a page."), PlainNumber]
"""The `limit` of a list: 100 unless given, never clamped (D8.8)."""
