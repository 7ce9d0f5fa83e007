"""Opens workspaces to people and programs: coverage, plan, members and keys (D10.3, D10.4)."""

import hashlib
import secrets
import string
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from ploti_server.domain.coverage import coverage_problems
from ploti_server.domain.workspaces import PERMISSIONS, ApiKey, Member, Role, Workspace
from ploti_server.pipeline.membership import bring_all_up_to_date
from ploti_server.pipeline.subscriptions import new_id
from ploti_server.pipeline.webhooks import stop_webhooks_of
from ploti_server.ports import Ports, Records

_KEY_CHARACTERS: Final = string.ascii_letters + string.digits
_KEY_LENGTH: Final = 32
_NAME_LONGEST: Final = 100


class WorkspaceRefused(Exception):
    """Something about workspaces, members or keys that cannot be done; the message says what to do."""


@dataclass(frozen=True)
class NewKey:
    """A key just made: its text is shown this once."""

    text: str
    key: ApiKey


def hash_key(text: str) -> str:
    """Give what is stored of a key's text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def workspace_named(records: Records, name: str) -> Workspace:
    """Find a workspace by name or id; raises `WorkspaceRefused`."""
    found = records.workspaces.named(name) or records.workspaces.get(name)
    if found is None:
        raise WorkspaceRefused(f"there is no workspace {name}: see `ploti-server workspace list`")
    return found


def _check_name(kind: str, name: str) -> str:
    if not 0 < len(name) <= _NAME_LONGEST or not name.isprintable() or name != name.strip():
        raise WorkspaceRefused(f"name the {kind} with 1 to {_NAME_LONGEST} printable characters")
    return name


def _check_opening(records: Records, coverage: Sequence[str], topics: Sequence[str] | None) -> None:
    problems = list(coverage_problems(coverage)) or ([] if coverage else ["give at least one place of coverage"])
    known = {topic.id for topic in records.catalog.topics()}
    problems += [f"'{topic}' is not a topic of the catalog" for topic in topics or () if topic not in known]
    if problems:
        raise WorkspaceRefused("; ".join(problems))


def create_workspace(ports: Ports, name: str, coverage: Sequence[str], topics: Sequence[str] | None) -> Workspace:
    """Create a workspace; `topics` None opens all. Raises `WorkspaceRefused`."""
    with ports.store.write() as records:
        _check_name("workspace", name)
        _check_opening(records, coverage, topics)
        if records.workspaces.named(name) is not None:
            raise WorkspaceRefused(f"there is a workspace {name} already: change it with `ploti-server workspace set`")
        made = Workspace(
            id=new_id("ws_"),
            name=name,
            coverage=tuple(dict.fromkeys(coverage)),
            topics=None if topics is None else tuple(dict.fromkeys(topics)),
            created_at=ports.clock.now(),
        )
        records.workspaces.put(made)
    return made


def set_workspace(
    ports: Ports,
    name: str,
    coverage: Sequence[str] | None = None,
    topics: Sequence[str] | None = None,
    *,
    all_topics: bool = False,
) -> tuple[Workspace, tuple[str, ...]]:
    """Change a workspace's coverage or plan and bring its subscriptions up to date (D7.3).

    What is None stays; `all_topics` opens all. Gives the workspace and the ids of subscriptions that have to be asked
    again. Raises `WorkspaceRefused`.
    """
    with ports.store.write() as records:
        records.workspaces.lock(workspace_named(records, name).id)
        before = workspace_named(records, name)
        opened = None if all_topics else before.topics if topics is None else tuple(dict.fromkeys(topics))
        after = replace(
            before, coverage=before.coverage if coverage is None else tuple(dict.fromkeys(coverage)), topics=opened
        )
        _check_opening(records, after.coverage, None if topics is None else after.topics)
        records.workspaces.put(after)
    return after, bring_all_up_to_date(ports, after.id)


def delete_workspace(ports: Ports, name: str) -> Workspace:
    """Delete a workspace with its members, keys, subscriptions and their logs; raises `WorkspaceRefused`."""
    with ports.store.write() as records:
        found = workspace_named(records, name)
        records.workspaces.remove(found.id)
    return found


def add_member(ports: Ports, workspace: str, name: str, role: Role) -> Member:
    """Add a member, or change one's role; a member that left comes back without its old keys."""
    with ports.store.write() as records:
        member = Member(workspace_named(records, workspace).id, _check_name("member", name), role)
        records.workspaces.put_member(member)
    return member


def remove_member(ports: Ports, workspace: str, name: str) -> Member:
    """Let a member leave: its keys stop at once and for good, its webhooks too (D9.3). Raises `WorkspaceRefused`."""
    now = ports.clock.now()
    with ports.store.write() as records:
        owner = workspace_named(records, workspace)
        records.workspaces.lock(owner.id)
        member = _present(records, owner, name)
        if member is None:
            raise WorkspaceRefused(f"{owner.name} has no member {name}: see `ploti-server member list`")
        left = replace(member, left_at=now)
        records.workspaces.put_member(left)
        for key in records.workspaces.keys(owner.id):
            if key.member == name and key.revoked_at is None:
                records.workspaces.put_key(replace(key, revoked_at=now))
        stop_webhooks_of(records, owner.id, name, now)
    return left


def _present(records: Records, workspace: Workspace, name: str) -> Member | None:
    found = records.workspaces.member(workspace.id, name)
    return found if found is not None and found.left_at is None else None


def create_key(
    ports: Ports, workspace: str, member: str, role: Role | None = None, permissions: Sequence[str] = PERMISSIONS
) -> NewKey:
    """Make a key for a member, created where new; raises `WorkspaceRefused`.

    A workspace's first member is an admin unless `role` says otherwise, later ones are members. A key never has a
    higher role than its member.
    """
    unknown = [p for p in permissions if p not in PERMISSIONS]
    if unknown or not permissions:
        raise WorkspaceRefused(f"give permissions among {', '.join(PERMISSIONS)}")
    text = "ploti_" + "".join(secrets.choice(_KEY_CHARACTERS) for _ in range(_KEY_LENGTH))
    with ports.store.write() as records:
        owner = workspace_named(records, workspace)
        holder = _holder(records, owner, member, role)
        key = ApiKey(
            id=new_id("key_"),
            workspace_id=owner.id,
            member=holder.name,
            role=role or holder.role,
            permissions=tuple(p for p in PERMISSIONS if p in permissions),
            key_hash=hash_key(text),
            created_at=ports.clock.now(),
        )
        records.workspaces.put_key(key)
    return NewKey(text, key)


def _holder(records: Records, workspace: Workspace, name: str, role: Role | None) -> Member:
    present = _present(records, workspace, name)
    if present is None:
        first = not any(member.left_at is None for member in records.workspaces.members(workspace.id))
        made = Member(workspace.id, _check_name("member", name), role or ("admin" if first else "member"))
        records.workspaces.put_member(made)
        return made
    if role == "admin" and present.role != "admin":
        raise WorkspaceRefused(
            f"{name} is no admin of {workspace.name}: raise the role first with "
            f"`ploti-server member add {name} --workspace {workspace.name} --role admin`"
        )
    return present


def revoke_key(ports: Ports, key_id: str) -> ApiKey:
    """Revoke a key by its id; one revoked already stays as it is. Raises `WorkspaceRefused`."""
    with ports.store.write() as records:
        for workspace in records.workspaces.all():
            for key in records.workspaces.keys(workspace.id):
                if key.id == key_id:
                    revoked = key if key.revoked_at else replace(key, revoked_at=ports.clock.now())
                    records.workspaces.put_key(revoked)
                    return revoked
    raise WorkspaceRefused(f"there is no key {key_id}: see `ploti-server key list`")
