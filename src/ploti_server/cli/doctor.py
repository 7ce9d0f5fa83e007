"""`ploti-server doctor`: checks that a home folder's server can work, one line for each thing."""

import secrets
import shutil
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Final

from cyclopts import Parameter

from ploti_server.app import build_ports
from ploti_server.cli.failures import reason_of
from ploti_server.cli.home import require_home, settings_of
from ploti_server.cli.printing import COMMON, CommandRefused, Common, counted, show
from ploti_server.domain.datasets import Dataset
from ploti_server.domain.evidence import Evidence
from ploti_server.domain.settings import Settings
from ploti_server.pipeline.restore import restore_current
from ploti_server.ports import Pair, Ports

SPACE_LEAST: Final = 1_000_000_000
_PROBE: Final = "doctor"


def doctor(
    *,
    files: Annotated[
        bool,
        Parameter(
            name="--files",
            negative="",
            help="Read every file of every current version too, and make those again whose bytes are not theirs.",
        ),
    ] = False,
    notify: Annotated[bool, Parameter(name="--notify", negative="", help="Send a notice to try the way.")] = False,
    common: Common = COMMON,
) -> int:
    """Check the settings, the database, the file store and the disk; exit code 1 where something is wrong."""
    settings = settings_of(common)
    require_home(common, settings)
    found = [_try("settings", lambda: f"home folder {settings.home}")]
    ports: list[Ports] = []

    def open_database() -> str:
        ports.append(build_ports(settings))
        with ports[0].store.write() as records:
            return ", ".join(
                (
                    counted(len(records.catalog.datasets()), "dataset"),
                    counted(len(records.workspaces.all()), "workspace"),
                )
            )

    found.append(_try("database", open_database))
    if ports:
        found.append(_try("files", lambda: _probe_files(ports[0])))
    if ports and files:
        found.append(_try("current versions", lambda: _make_whole(ports[0])))
    if ports:
        found += [_try("chat agent", partial(_ask_chat, ports[0], one)) for one in _asking_chat(ports[0])[:1]]
    if ports and notify:
        found.append(_try("notices", lambda: _notify(ports[0])))
    found.append(_try("disk", lambda: _free_space(settings)))
    found.append(_try("public address", lambda: settings.public_url or _no_public_url(settings)))
    show(common, found, "checks")
    return 0 if all(row["ok"] for row in found) else 1


def _no_public_url(settings: Settings) -> str:
    return f"not set: enough on this machine only; webhooks that `work` sends carry {settings.links_address}"


def _asking_chat(ports: Ports) -> list[Dataset]:
    with ports.store.read() as records:
        return [d for d in records.catalog.datasets() if d.matching.agent == "chat" and not d.retired]


def _ask_chat(ports: Ports, dataset: Dataset) -> str:
    """Ask the chat endpoint about one made-up pair."""
    values = {"name": "Oak Grill", "street": "100 Oak Street"}
    pair = Pair("rec_probe-probe-1", values, values | {"street": "100 Oak St"})
    ports.agent.judge(dataset, [pair], Evidence({"name": "string", "street": "string"}, rows=1))
    return "answers soundly"


def _notify(ports: Ports) -> str:
    if ports.notifier is None:
        raise CommandRefused("set notify_command or notify_url first")
    told = {"kind": "test", "text": "a notice of ploti-server doctor: nothing is wrong", "see": "ploti-server status"}
    trouble = ports.notifier.send(told)
    if trouble is not None:
        raise CommandRefused(trouble)
    return "sent"


def _try(what: str, look: Callable[[], str]) -> dict[str, Any]:
    try:
        return {"check": what, "ok": True, "says": look()}
    except Exception as error:  # noqa: BLE001 - whatever is wrong is what the doctor is asked for
        return {"check": what, "ok": False, "says": "; ".join(filter(None, reason_of(error)))}


def _probe_files(ports: Ports) -> str:
    path = f"{_PROBE}/{secrets.token_hex(8)}"
    ports.files.put_bytes(path, b"probe")
    try:
        if b"".join(ports.files.read(path)) != b"probe":
            raise OSError("a file came back with other bytes")
    finally:
        ports.files.remove(path)
    return "written, read and removed a file"


def _make_whole(ports: Ports) -> str:
    restored = restore_current(ports, deep=True)
    if restored.failed:
        raise OSError("; ".join(restored.failed))
    again = [f"version {version.number} of {version.dataset_id}" for version in restored.versions]
    return f"made again: {', '.join(again)}" if again else "every file has its bytes"


def _free_space(settings: Settings) -> str:
    free = shutil.disk_usage(settings.home).free
    if free < SPACE_LEAST:
        raise OSError(f"only {free // 1_000_000} MB left in {settings.home}: make room")
    return f"{free // 1_000_000} MB free"
