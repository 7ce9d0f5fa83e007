"""`ploti-server versions`: every version of a dataset, those that subscribers never see too, and taking one back."""

from typing import Annotated, Any

from cyclopts import App, Parameter

from ploti_server.cli.acts import Later, work_acts
from ploti_server.cli.home import ports_for
from ploti_server.cli.printing import COMMON, Common, VersionNumber, show
from ploti_server.domain.versions import Version, VersionStatus
from ploti_server.domain.wire import wire_time
from ploti_server.pipeline.act import release_again

versions = App(name="versions", help="List a dataset's versions, release one again.")


@versions.command(name="list")
def list_versions(dataset: str, *, common: Common = COMMON) -> int:
    """List every version of a dataset, with its status."""
    with ports_for(common, dataset).store.read() as records:
        found = records.versions.in_status(dataset, list(VersionStatus))
    show(common, [_row(version) for version in found], "versions")
    return 0


@versions.command(name="release-again")
def again(
    dataset: str,
    version: VersionNumber,
    *,
    note: Annotated[str | None, Parameter(help="Why, kept with the version.")] = None,
    later: Later = False,
    common: Common = COMMON,
) -> int:
    """Take a dataset's newest version back and rebuild it under a new number; subscribers reload.

    It answers `410` from now on, and the version before it is current until the next one is sent.
    """
    ports = ports_for(common, dataset)
    return work_acts(ports, release_again(ports, dataset, version, note), common, later=later)


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
