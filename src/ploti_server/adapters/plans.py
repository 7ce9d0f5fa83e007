"""The plan as the operator stored it with the workspace (D10.3)."""

from ploti_server.domain.workspaces import Workspace


class StoredPlans:
    """`Plans` that always answers: what a plan opens is stored with the workspace."""

    def topics(self, workspace: Workspace) -> tuple[str, ...] | None:
        """Give the topics of the workspace, None for all."""
        return workspace.topics
