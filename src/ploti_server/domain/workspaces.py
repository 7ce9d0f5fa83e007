"""Workspaces, members and API keys (D10.3)."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

Role = Literal["admin", "member"]
PERMISSIONS = ("feeds", "webhooks")


@dataclass(frozen=True)
class Workspace:
    """A team's account. `coverage` names counties or `<state>-counties`; `topics` None: the plan opens all."""

    id: str
    name: str
    coverage: tuple[str, ...]
    topics: tuple[str, ...] | None
    created_at: datetime


@dataclass(frozen=True)
class Member:
    """A person or service in a workspace; `left_at` once it left."""

    workspace_id: str
    name: str
    role: Role
    left_at: datetime | None = None


@dataclass(frozen=True)
class ApiKey:
    """An API key; only the sha256 of its text is stored."""

    id: str
    workspace_id: str
    member: str
    role: Role
    permissions: tuple[str, ...]
    key_hash: str
    created_at: datetime
    revoked_at: datetime | None = None


@dataclass(frozen=True)
class Holder:
    """Whose a key is; `member` None where none of its name is known."""

    key: ApiKey
    member: Member | None
    workspace: Workspace
