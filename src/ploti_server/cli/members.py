"""`ploti-server member add | list | remove`."""

from typing import Any

from cyclopts import App

from ploti_server.cli.home import ports_of
from ploti_server.cli.printing import COMMON, Common, show
from ploti_server.domain.wire import wire_time
from ploti_server.domain.workspaces import Member, Role
from ploti_server.pipeline.workspaces import add_member, remove_member, workspace_named

member = App(name="member", help="Add, list and remove a workspace's members.")


@member.command
def add(name: str, *, workspace: str, role: Role = "member", common: Common = COMMON) -> int:
    """Add a member to a workspace, or change a member's role."""
    show(common, _row(add_member(ports_of(common), workspace, name, role)))
    return 0


@member.command(name="list")
def list_members(*, workspace: str, common: Common = COMMON) -> int:
    """List a workspace's members, those that left too."""
    with ports_of(common).store.read() as records:
        rows = [_row(found) for found in records.workspaces.members(workspace_named(records, workspace).id)]
    show(common, rows, "members")
    return 0


@member.command
def remove(name: str, *, workspace: str, common: Common = COMMON) -> int:
    """Let a member leave a workspace: the member's keys stop at once."""
    show(common, _row(remove_member(ports_of(common), workspace, name)))
    return 0


def _row(found: Member) -> dict[str, Any]:
    return {"name": found.name, "role": found.role, "leftAt": found.left_at and wire_time(found.left_at)}
