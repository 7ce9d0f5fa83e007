"""`ploti-server versions`: every version of a dataset, those that subscribers never see too."""

from typing import Any

from cyclopts import App

from ploti_server.cli.home import ports_of
from ploti_server.cli.printing import COMMON, CommandRefused, Common, show
from ploti_server.domain.versions import Version, VersionStatus
from ploti_server.domain.wire import wire_time

versions = App(name="versions", help="List a dataset's versions.")


@versions.command(name="list")
def list_versions(dataset: str, *, common: Common = COMMON) -> int:
    """List every version of a dataset, with its status."""
    with ports_of(common).store.read() as records:
        if records.catalog.dataset(dataset) is None:
            raise CommandRefused(f"there is no dataset {dataset}: see `ploti-server datasets list`")
        found = records.versions.in_status(dataset, list(VersionStatus))
    show(common, [_row(version) for version in found], "versions")
    return 0


def _row(version: Version) -> dict[str, Any]:
    facts = version.facts
    return {
        "version": version.number,
        "status": str(version.status),
        "previous": version.previous_version,
        "schema": version.schema_version,
        "rows": version.row_count,
        "added": facts.get("added"),
        "changed": facts.get("changed"),
        "removed": facts.get("removed"),
        "resync": version.resync_reason,
        "fetchedAt": version.fetched_at and wire_time(version.fetched_at),
        "releasedAt": version.released_at and wire_time(version.released_at),
        "note": version.note,
    }
