"""`ploti-server workspace create | list | set | delete`."""

from typing import Annotated, Any

from cyclopts import App, Parameter

from ploti_server.cli.home import ports_of
from ploti_server.cli.printing import COMMON, Common, WrongUsage, say, show
from ploti_server.domain.wire import wire_time
from ploti_server.domain.workspaces import Workspace
from ploti_server.pipeline.workspaces import create_workspace, delete_workspace, set_workspace

workspace = App(name="workspace", help="Create, list, change and delete workspaces.")

Coverage = Annotated[
    list[str], Parameter(negative="", help="A county, or a state's counties like fl-counties; once for each.")
]
Topics = Annotated[
    list[str], Parameter(name="--topic", negative="", help="A topic that the plan opens; all by default.")
]


@workspace.command
def create(name: str, *, coverage: Coverage, topic: Topics | None = None, common: Common = COMMON) -> int:
    """Create a workspace with a coverage and, by default, a plan of all topics."""
    made = create_workspace(ports_of(common, starts=True), name, coverage, topic)
    show(common, _shown(common, made))
    return 0


@workspace.command(name="list")
def list_workspaces(*, common: Common = COMMON) -> int:
    """List the workspaces."""
    with ports_of(common).store.read() as records:
        rows = [
            _shown(common, found) | {"subscriptions": len(records.subscriptions.of_workspace(found.id))}
            for found in records.workspaces.all()
        ]
    show(common, rows, "workspaces")
    return 0


@workspace.command(name="set")
def set_(
    name: str,
    *,
    coverage: Coverage | None = None,
    topic: Topics | None = None,
    all_topics: Annotated[bool, Parameter(negative="", help="Let the plan open every topic.")] = False,
    common: Common = COMMON,
) -> int:
    """Change a workspace's coverage or plan; its subscriptions follow at once."""
    if all_topics and topic:
        raise WrongUsage("give either --topic or --all-topics")
    changed, waiting = set_workspace(ports_of(common), name, coverage, topic, all_topics=all_topics)
    show(common, _shown(common, changed) | ({"waiting": list(waiting)} if common.as_json else {}))
    if waiting and not common.as_json:
        say(f"waiting to be brought up to date: {', '.join(waiting)} (set again in a moment)")
    return 0


@workspace.command
def delete(name: str, *, common: Common = COMMON) -> int:
    """Delete a workspace with its members, keys, subscriptions and their events."""
    gone = delete_workspace(ports_of(common), name)
    show(common, {"deleted": gone.name})
    return 0


def _shown(common: Common, found: Workspace) -> dict[str, Any]:
    every = None if common.as_json else "all"
    return {
        "id": found.id,
        "name": found.name,
        "coverage": list(found.coverage),
        "topics": every if found.topics is None else list(found.topics),
        "createdAt": wire_time(found.created_at),
    }
