"""Opens a home folder's publisher for a command."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ploti_server.app import build_ports, read_settings
from ploti_server.cli.printing import CommandRefused, Common
from ploti_server.domain.settings import Settings
from ploti_server.ports import Ports


def settings_of(common: Common) -> Settings:
    """Read the settings of the home folder that a command names; raises `SettingsBroken`."""
    return read_settings(common.home)


def ports_of(common: Common, *, starts: bool = False) -> Ports:
    """Open the home folder that a command names; one that is not there is made only by a command that starts one.

    Raises `CommandRefused` otherwise: a name with a typing error is no new publisher.
    """
    settings = settings_of(common)
    if not starts:
        require_home(common, settings)
    return build_ports(settings)


@contextmanager
def ports_of_any(common: Common) -> Iterator[Ports]:
    """Open the home folder that a command names, or in place of one that is not there an empty one that goes again."""
    settings = settings_of(common)
    if not _is_missing(common, settings):
        yield build_ports(settings)
        return
    with tempfile.TemporaryDirectory() as empty:
        yield build_ports(Settings.of(Path(empty)))


def require_home(common: Common, settings: Settings) -> None:
    """Refuse a home folder that is not there where it would hold the database: nothing was published from it."""
    if _is_missing(common, settings):
        raise CommandRefused(f"there is no home folder {common.home}: name it with --home, or apply a catalog first")


def _is_missing(common: Common, settings: Settings) -> bool:
    return not settings.home.exists() and settings.database_url == Settings.of(common.home).database_url


def ports_for(common: Common, dataset: str) -> Ports:
    """Open the home folder for a command about a dataset; raises `CommandRefused` where the catalog has none such."""
    ports = ports_of(common)
    with ports.store.read() as records:
        if records.catalog.dataset(dataset) is None:
            raise CommandRefused(f"there is no dataset {dataset}: see `ploti-server datasets list`")
    return ports
