"""The demo's story: publish real histories state by state, follow them with `ploti sync`, prove equality."""

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from ploti_server.demo.histories import CATALOG, DemoState, demo_states
from ploti_server.demo.publisher import Publisher
from ploti_server.demo.subscriber import DemoFailed, Subscriber, command
from ploti_server.domain.checks import Check
from ploti_server.domain.schema import SchemaChange
from ploti_server.domain.versions import Version

MARK: Final = ".ploti-demo"
SINCE: Final = "2023-06-01"
START_SECONDS: Final = 30.0
EXPLAINED_HOLDS: Final = 1


@dataclass
class Told:
    """What the demo has shown so far, for its last lines."""

    states: int = 0
    versions: int = 0
    minor: int = 0
    major: int = 0
    released_holds: int = 0
    rows: dict[str, int] = field(default_factory=dict)


def play(folder: Path, console: Console, port: int | None = None) -> dict[str, Any]:
    """Play the whole demo in a folder, made anew, and give its summary; raises `DemoFailed` where one fails."""
    _make_room(folder)
    publisher = Publisher.open(folder / "server")
    publisher.apply_catalog(CATALOG)
    key = publisher.create_workspace("demo", "fl-counties", "reader")
    port = port or _free_port()
    with _serving(folder, port) as url:
        subscriber = Subscriber(url, key, folder / "florida.duckdb")
        subscription = subscriber.subscribe("Florida", "fl")
        console.print(f"[bold]Serving[/bold] {url}, subscription {subscription} to the place fl\n", soft_wrap=True)
        told = Told()
        for state in demo_states():
            _publish(console, publisher, state, told)
            for line in _sync_lines(subscriber.sync(subscription), state.dataset_id):
                console.print(f"      [cyan]ploti sync[/cyan] {line}")
        _show_changes(console, subscriber)
        _show_verified(console, subscriber)
        _show_end(console, folder, subscriber, subscription, told)
        return asdict(told) | {"database": str(subscriber.database), "subscription": subscription}


def _make_room(folder: Path) -> None:
    if folder.exists():
        if not (folder / MARK).exists() and any(folder.iterdir()):
            raise DemoFailed(f"{folder} is not an earlier demo and not empty: name another folder with --folder")
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    (folder / MARK).touch()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def _serving(folder: Path, port: int) -> Iterator[str]:
    """Run `ploti-server serve` on loopback until the block ends; the story has years of calls in a minute."""
    home = ["--home", str(folder / "server")]
    roomy = {f"PLOTI_SERVER_{name}": "1000000" for name in ("REQUESTS_PER_MINUTE", "STRICT_REQUESTS_PER_MINUTE")}
    with (folder / "serve.log").open("w") as log:
        server = subprocess.Popen(
            [command("ploti-server"), "serve", *home, "--port", str(port), "--no-work"],
            stdout=log,
            stderr=log,
            env=os.environ | roomy,
        )
        try:
            url = f"http://127.0.0.1:{port}"
            _wait_for(server, url, folder / "serve.log")
            yield url
        finally:
            server.terminate()
            server.wait(timeout=START_SECONDS)


def _wait_for(server: subprocess.Popen[bytes], url: str, log: Path) -> None:
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        if server.poll() is not None:
            break
        try:
            urllib.request.urlopen(f"{url}/openapi.json", timeout=1).close()  # noqa: S310
            return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.05)
    raise DemoFailed(f"the server did not start: see {log}")


def _publish(console: Console, publisher: Publisher, state: DemoState, told: Told) -> None:
    check = publisher.check(state.dataset_id, state.given)
    told.states += 1
    if check.outcome == "failed":
        raise DemoFailed(f"{state.given.file.name} of {state.dataset_id} could not be read: {check.reason}")
    version = publisher.version(state.dataset_id, check.version)
    console.print(_headline(state, check, version), soft_wrap=True)
    if check.outcome == "held" and version is not None:
        if told.released_holds < EXPLAINED_HOLDS:
            _show_hold(console, publisher, version)
        publisher.release(version)
        told.released_holds += 1
        console.print(f"      [green]released[/green] version {version.number} after review")
    if version is not None and check.outcome in ("held", "released"):
        _count(told, version)


def _headline(state: DemoState, check: Check, version: Version | None) -> str:
    day = state.given.fetched_at.date() if state.given.fetched_at else ""
    named = f"[bold]{day}[/bold] {state.dataset_id.removeprefix('ds_'):12} {state.given.file.name[:3]} "
    if check.outcome == "unchanged" or version is None:
        told = "[dim]unchanged[/dim]"
    else:
        told = f"version {version.number} · {version.schema_version} · {version.row_count} rows · {_counts(check)}"
        if version.schema_change is not None:
            told += f"\n      [magenta]{_columns(version.schema_change)}[/magenta]"
        if check.outcome == "held":
            told += f"\n      [yellow]held: {', '.join(version.reasons)}[/yellow]"
    return named + told + (f"\n      [dim]{state.note}[/dim]" if state.note else "")


def _columns(change: SchemaChange) -> str:
    moved = [f"+{column.name}" for column in change.added]
    moved += [f"-{name}" for name in change.removed]
    moved += [f"{each.name}: {each.from_} to {each.to}" for each in change.retyped]
    moved += [f"{each.name} may be empty now" for each in change.nullability]
    kind = {"breaking": "MAJOR", "additive": "MINOR"}[change.kind]
    return f"{kind} schema change: {', '.join(moved)}"


def _counts(check: Check) -> str:
    facts = check.facts
    matched = ", ".join(f"{count} by {how}" for how, count in facts.get("matched", {}).items() if count)
    changed = f"+{facts['added']} ~{facts['changed']} -{facts['removed']}"
    return f"{changed} · {matched}" if matched else changed


def _count(told: Told, version: Version) -> None:
    told.versions += 1
    told.rows[version.dataset_id] = version.row_count
    if version.schema_change is not None:
        told.minor += version.schema_change.kind == "additive"
        told.major += version.schema_change.kind == "breaking"


def _show_hold(console: Console, publisher: Publisher, version: Version) -> None:
    console.print(f"Why version {version.number} of {version.dataset_id} waits for a person", style="bold")
    table = Table()
    for column in ("reason", "rule", "measured", "limit"):
        table.add_column(column)
    for hold in version.facts["holds"]:
        table.add_row(hold["reason"], hold["rule"], _short(hold["measured"]), _short(hold["limit"]))
    console.print(table)
    rows = publisher.sample_rows(version)
    if rows:
        console.print("Sample rows", style="bold")
        sample = Table()
        for column in rows[0]:
            sample.add_column(column)
        for row in rows:
            sample.add_row(*map(_short, row.values()))
        console.print(sample)


def _short(value: Any) -> str:
    text = "" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value)
    return text if len(text) <= 40 else text[:39] + "…"


def _sync_lines(report: dict[str, Any], dataset_id: str) -> Iterator[str]:
    for moved in report["datasets"]:
        if moved["datasetId"] == dataset_id and moved["state"] != "ok":
            raise DemoFailed(f"sync left {dataset_id} {moved['state']}: {moved.get('reason')}")
        if moved["datasetId"] == dataset_id and moved["fromVersion"] != moved["version"]:
            how = "loaded" if moved["reloaded"] else f"+{moved['added']} ~{moved['changed']} -{moved['removed']}"
            yield f"{dataset_id} is at version {moved['version']} ({how}), {moved['rows']} rows"


def _show_changes(console: Console, subscriber: Subscriber) -> None:
    console.print(f"\nWhat changed since {SINCE}, over all datasets, from the changes files", style="bold")
    table = Table()
    for column in ("dataset", "change", "records"):
        table.add_column(column, justify="right" if column == "records" else "left")
    for dataset, change, count in subscriber.changes_since(SINCE):
        table.add_row(dataset, change, str(count))
    console.print(table)


def _show_verified(console: Console, subscriber: Subscriber) -> None:
    console.print("\nploti sync verify: each table against its version's digest", style="bold")
    table = Table()
    for column in ("dataset", "version", "rows", "verify"):
        table.add_column(column)
    for dataset in subscriber.verify():
        equal = dataset["equal"]
        table.add_row(
            dataset["datasetId"], str(dataset["version"]), str(dataset["records"]), "equal" if equal else "DIFFERS"
        )
        if not equal:
            raise DemoFailed(f"{dataset['datasetId']} differs from its version: {dataset}")
    console.print(table)


def _show_end(console: Console, folder: Path, subscriber: Subscriber, subscription: str, told: Told) -> None:
    console.print(
        f"\n{told.states} states, {told.versions} versions, {told.minor} MINOR and {told.major} MAJOR schema changes, "
        f"{told.released_holds} holds released; every table equals its version.\n\n"
        f"[bold]The subscriber's database[/bold]\n  {subscriber.database}\n"
        f"  {sys.executable} -c "
        f"\"import duckdb; duckdb.connect('{subscriber.database}').sql('FROM ds_fl_airports').show()\"\n"
        f"  {command('ploti')} sync status --to {subscriber.target}\n"
        f"[bold]The publisher's home[/bold]\n  {folder / 'server'}\n"
        f"  {command('ploti-server')} versions list ds_fl_counties --home {folder / 'server'}\n"
        f"[bold]Go on[/bold]: serve it again, and in another terminal follow it\n"
        f"  {command('ploti-server')} serve --home {folder / 'server'}\n"
        f"  PLOTI_API_KEY={subscriber.key} {command('ploti')} sync {subscription} --to {subscriber.target}",
        soft_wrap=True,
    )
