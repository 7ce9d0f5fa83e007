"""The demo's operator: applies the catalog, checks states, looks at a hold and releases it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ploti_server.app import build_ports
from ploti_server.domain.catalog import parse_catalog
from ploti_server.domain.checks import Check
from ploti_server.domain.settings import Settings
from ploti_server.domain.versions import Version
from ploti_server.pipeline.catalog import apply_catalog
from ploti_server.pipeline.check import GivenState, take_state
from ploti_server.pipeline.release import release_held
from ploti_server.pipeline.samples import sample_rows
from ploti_server.pipeline.workspaces import create_key, create_workspace
from ploti_server.ports import Ports
from ploti_server.worker import new_owner, work_through


@dataclass(frozen=True)
class Publisher:
    """A publisher with a home folder of its own."""

    ports: Ports
    owner: str

    @classmethod
    def open(cls, home: Path) -> "Publisher":
        """Make or open the publisher of a home folder."""
        return cls(build_ports(Settings.of(home=home)), new_owner())

    def apply_catalog(self, file: Path) -> None:
        """Apply the demo's catalog."""
        apply_catalog(self.ports, parse_catalog(file.read_text(encoding="utf-8"), file))

    def create_workspace(self, name: str, coverage: str, member: str) -> str:
        """Open a workspace to one member; gives the text of the member's key."""
        create_workspace(self.ports, name, [coverage], None)
        return create_key(self.ports, name, member, "admin").text

    def check(self, dataset_id: str, given: GivenState) -> Check:
        """Take one state in and build it."""
        taken = take_state(self.ports, dataset_id, given)
        return work_through(self.ports, self.owner, taken.id)

    def version(self, dataset_id: str, number: int | None) -> Version | None:
        """Find a version of any status."""
        with self.ports.store.read() as records:
            return None if number is None else records.versions.get(dataset_id, number)

    def release(self, version: Version) -> None:
        """Release a held version."""
        release_held(self.ports, version.dataset_id, "looked at in the demo")

    def sample_rows(self, version: Version) -> list[dict[str, Any]]:
        """Give a few rows that the hold is about."""
        return sample_rows(self.ports, version, limit=4)
