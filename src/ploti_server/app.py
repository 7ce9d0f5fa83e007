"""Wiring: settings in, ports out. The only place that knows all adapters."""

import os
import secrets
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from ploti_server.adapters.agents import NobodyJudges
from ploti_server.adapters.clock import SystemClock
from ploti_server.adapters.engine import DuckDBEngine
from ploti_server.adapters.files_local import LocalFiles
from ploti_server.adapters.links import LinkSigner
from ploti_server.adapters.plans import StoredPlans
from ploti_server.adapters.store import open_store
from ploti_server.domain.settings import FILE_NAME, Settings, SettingsBroken
from ploti_server.ports import Clock, MatchingAgent, Ports
from ploti_server.sources import open_state

LINK_SECRET: Final = "signed-links"  # noqa: S105  # the secret's name


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
        store=open_store(settings.database_url),
        files=_files(settings.files_url),
        engine=DuckDBEngine(settings.memory_mb, settings.threads or os.cpu_count() or 1),
        agent=agent or NobodyJudges(),
        plans=StoredPlans(),
        clock=clock or SystemClock(),
        home=settings.home,
        open_state=open_state,
        reach=reach,
    )


def build_signer(ports: Ports) -> LinkSigner:
    """Make the signer of file links with the secret that all processes on the store share."""
    with ports.store.write() as records:
        secret = records.secrets.get_or_put(LINK_SECRET, secrets.token_hex(32))
    return LinkSigner(bytes.fromhex(secret))


def _files(url: str) -> LocalFiles:
    parts = urlsplit(url)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
        raise SettingsBroken(f"files_url: {url} cannot hold files; use an address like file:///srv/ploti/files")
    return LocalFiles(Path(unquote(parts.path)))
