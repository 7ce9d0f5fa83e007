"""Wiring: settings in, ports out. The only place that knows all adapters."""

import os
import secrets
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from ploti_server.adapters.agents import AgentsByName, AsksNobodyElse, NobodyJudges, StaffJudge
from ploti_server.adapters.chat import ChatJudge
from ploti_server.adapters.clock import SystemClock
from ploti_server.adapters.copier import FileCopier
from ploti_server.adapters.engine import DuckDBEngine
from ploti_server.adapters.files_local import LocalFiles
from ploti_server.adapters.files_overlay import OverlayFiles
from ploti_server.adapters.judge import BuiltInJudge
from ploti_server.adapters.links import LinkSigner
from ploti_server.adapters.notifier import OwnNotifier
from ploti_server.adapters.plans import StoredPlans
from ploti_server.adapters.sender import HttpSender
from ploti_server.adapters.store import SqlStore, open_store
from ploti_server.domain.notices import Notify
from ploti_server.domain.settings import FILE_NAME, Settings, SettingsBroken
from ploti_server.ports import Clock, Hooks, MatchingAgent, Ports
from ploti_server.sources import open_state

LINK_SECRET: Final = "signed-links"  # noqa: S105  # the secret's name
WEBHOOKS_KEY_FILE: Final = "webhooks.key"


def read_settings(home: Path, environment: Mapping[str, str] | None = None) -> Settings:
    """Read a home folder's settings from its file and the environment; raises `SettingsBroken`."""
    file = home / FILE_NAME
    try:
        stored = tomllib.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsBroken(f"{file} is not valid TOML: {error}") from error
    return Settings.of(home, os.environ if environment is None else environment, stored)


def build_ports(
    settings: Settings,
    *,
    clock: Clock | None = None,
    agent: MatchingAgent | None = None,
    reach: Callable[[str], None] = lambda _: None,
) -> Ports:
    """Open the stores that the settings name, and everything else that pipeline and API reach out through."""
    settings.home.mkdir(parents=True, exist_ok=True)
    return Ports(
        store=_store(settings.database_url),
        files=_files(settings.files_url),
        engine=DuckDBEngine(settings.memory_mb, settings.threads or os.cpu_count() or 1),
        agent=agent or _agents(settings),
        plans=StoredPlans(),
        clock=clock or SystemClock(),
        home=settings.home,
        open_state=open_state,
        reach=reach,
        hooks=_hooks(settings),
        notifier=OwnNotifier(settings.notify) if settings.notify != Notify() else None,
        retention=settings.retention,
        copier=FileCopier(settings.webhooks_allow_loopback),
    )


def _agents(settings: Settings) -> AgentsByName:
    chat = ChatJudge(settings.chat)
    return AgentsByName({"built-in": BuiltInJudge(), "chat": chat, "staff": StaffJudge(), "nobody": NobodyJudges()})


@contextmanager
def rehearsal_of(ports: Ports) -> Iterator[tuple[Ports, AsksNobodyElse]]:
    """Give ports for a build without a trace: empty records, files over the real ones, all gone at the end."""
    agent = AsksNobodyElse(ports.agent)
    place = ports.home / "work"
    place.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place, prefix="rehearsal-") as folder:
        store = open_store(f"sqlite:///{folder}/records.db")
        files = OverlayFiles(ports.files, LocalFiles(Path(folder) / "files"))
        try:
            own = replace(ports, home=Path(folder), rehearsed=ports.home, notifier=None)
            yield replace(own, store=store, files=files, agent=agent), agent
        finally:
            store.close()


def build_signer(ports: Ports) -> LinkSigner:
    """Make the signer of file links with the secret that all processes on the store share."""
    with ports.store.write() as records:
        secret = records.secrets.get_or_put(LINK_SECRET, secrets.token_hex(32))
    return LinkSigner(bytes.fromhex(secret))


def _hooks(settings: Settings) -> Hooks:
    key = settings.webhooks_key or _stored_key(settings.home / WEBHOOKS_KEY_FILE)
    loopback = settings.webhooks_allow_loopback
    return Hooks(HttpSender(loopback), key.encode(), settings.links_address, loopback)


def _stored_key(file: Path) -> str:
    """Read the key that webhooks' secrets are derived from, made at first use for its owner's eyes only (D9.4)."""
    fresh = file.with_name(f"{file.name}.{secrets.token_hex(8)}")
    if not file.exists():
        with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as made:
            made.write(secrets.token_hex(32))
            made.flush()
            os.fsync(made.fileno())
        try:
            os.link(fresh, file)
        except FileExistsError:
            pass  # another process was first, and its key is read below
        finally:
            fresh.unlink()
    return file.read_text(encoding="ascii")


def _store(url: str) -> SqlStore:
    try:
        return open_store(url)
    except ValueError as error:
        raise SettingsBroken(f"database_url: {error}") from None


def _files(url: str) -> LocalFiles:
    parts = urlsplit(url)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
        raise SettingsBroken(f"files_url: {url} cannot hold files; use an address like file:///srv/ploti/files")
    return LocalFiles(Path(unquote(parts.path)))
