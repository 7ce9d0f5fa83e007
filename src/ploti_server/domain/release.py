"""How a version is sent: as changes or to be loaded anew, and why (page 003, D1.3)."""

from ploti.contract.events import ResyncReason
from ploti_server.domain.schema import SchemaChange


def resync_reason(
    *, first: bool, change: SchemaChange | None, previous_unavailable: bool = False, ids_changed: bool = False
) -> ResyncReason | None:
    """Give the reason to load a version from its snapshot, the first that applies; None where its changes suffice."""
    if ids_changed:
        return "record_ids_changed"
    if first:
        return "first_version"
    if change is None:
        return "previous_unavailable" if previous_unavailable else None
    if change.kind == "breaking" or previous_unavailable:
        return "key_columns_changed" if change.key_changed else "schema_changed"
    return None
