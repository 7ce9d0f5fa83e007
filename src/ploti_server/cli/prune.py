"""`ploti-server prune`: lets go of what is past retention."""

from typing import Annotated, Any

from cyclopts import Parameter

from ploti_server.cli.home import ports_of
from ploti_server.cli.printing import COMMON, Common, WrongUsage, counted, read_moment, say, show
from ploti_server.pipeline.prune import prune as let_go


def prune(
    *,
    at: Annotated[str | None, Parameter(help="The moment that limits are counted to; now by default.")] = None,
    dry_run: Annotated[
        bool, Parameter(name="--dry-run", negative="", help="Tell what would go, without letting anything go.")
    ] = False,
    common: Common = COMMON,
) -> int:
    """Let go of events, changes, snapshots and attachments that are past retention.

    Links that were given keep working: files go once every download begun with one can have ended.
    """
    ports, when = ports_of(common), read_moment(at)
    if when is not None and when > ports.clock.now() and not dry_run:
        raise WrongUsage(
            f"--at: {at} is in the future, before which all is promised: add --dry-run to see what would go"
        )
    done = let_go(ports, when, dry_run=dry_run)
    rows: list[dict[str, Any]] = [
        {"dataset": one.dataset_id, "version": one.version, "kinds": list(one.kinds), "bytes": one.size_bytes}
        for one in done.versions
    ]
    if common.as_json:
        told = {"dryRun": dry_run, "events": done.events, "versions": rows}
        show(common, told | {"filesRemoved": done.files, "bytesRemoved": done.size_bytes})
        return 0
    if rows:
        show(common, rows, "versions past retention")
    will = "would be " if dry_run else ""
    say(f"events {will}dropped: {done.events}")
    say(f"versions {will}past retention now: {len(rows)}, with {sum(row['bytes'] for row in rows)} bytes to go later")
    say(f"files {will}removed: {done.files}, {counted(done.size_bytes, 'byte')}")
    return 0
