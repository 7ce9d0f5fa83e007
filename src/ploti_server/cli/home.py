"""Opens a home folder's publisher for a command."""

from ploti_server.app import build_ports, read_settings
from ploti_server.cli.printing import CommandRefused, Common
from ploti_server.domain.settings import Settings
from ploti_server.ports import Ports


def settings_of(common: Common) -> Settings:
    """Read the settings of the home folder that a command names; raises `SettingsBroken`."""
    return read_settings(common.home)


def ports_of(common: Common) -> Ports:
    """Open the home folder that a command names."""
    return build_ports(settings_of(common))


def require_home(common: Common) -> None:
    """Refuse a home folder that is not there where it would hold the database: nothing was published from it."""
    settings = settings_of(common)
    if not settings.home.exists() and settings.database_url == Settings.of(common.home).database_url:
        raise CommandRefused(f"there is no home folder {common.home}: name it with --home, or apply a catalog first")


def ports_for(common: Common, dataset: str) -> Ports:
    """Open the home folder for a command about a dataset; raises `CommandRefused` where the catalog has none such."""
    ports = ports_of(common)
    with ports.store.read() as records:
        if records.catalog.dataset(dataset) is None:
            raise CommandRefused(f"there is no dataset {dataset}: see `ploti-server datasets list`")
    return ports
