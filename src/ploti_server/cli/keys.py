"""`ploti-server key create | list | revoke`."""

from typing import Annotated, Any

from cyclopts import App, Parameter

from ploti_server.cli.home import ports_of
from ploti_server.cli.printing import COMMON, Common, say, show
from ploti_server.domain.wire import wire_time
from ploti_server.domain.workspaces import PERMISSIONS, ApiKey, Role
from ploti_server.pipeline.workspaces import create_key, revoke_key, workspace_named

key = App(name="key", help="Create, list and revoke API keys.")

Permissions = Annotated[
    list[str], Parameter(name="--permission", negative="", help=f"Among {', '.join(PERMISSIONS)}; all by default.")
]


@key.command
def create(
    *,
    workspace: str,
    member: str,
    role: Role | None = None,
    permission: Permissions | None = None,
    common: Common = COMMON,
) -> int:
    """Make a key for a member, who is created where new; its text is shown this once.

    The first member of a workspace is an admin unless `--role` says otherwise.
    """
    made = create_key(ports_of(common), workspace, member, role, PERMISSIONS if permission is None else permission)
    if common.as_json:
        show(common, {"key": made.text, "id": made.key.id})
    else:
        say(made.text)
        say(f"key {made.key.id} of {member}, {made.key.role} of {workspace}: keep the text, it is not shown again")
    return 0


@key.command(name="list")
def list_keys(*, workspace: str, common: Common = COMMON) -> int:
    """List a workspace's keys, revoked ones too; their texts are not kept."""
    with ports_of(common).store.read() as records:
        rows = [_row(found) for found in records.workspaces.keys(workspace_named(records, workspace).id)]
    show(common, rows, "keys")
    return 0


@key.command
def revoke(key_id: str, *, common: Common = COMMON) -> int:
    """Revoke a key by its id: it stops at once."""
    show(common, _row(revoke_key(ports_of(common), key_id)))
    return 0


def _row(found: ApiKey) -> dict[str, Any]:
    return {
        "id": found.id,
        "member": found.member,
        "role": found.role,
        "permissions": list(found.permissions),
        "createdAt": wire_time(found.created_at),
        "revokedAt": found.revoked_at and wire_time(found.revoked_at),
    }
