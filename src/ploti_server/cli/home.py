"""Opens a home folder's publisher for a command."""

from ploti_server.app import build_ports, read_settings
from ploti_server.cli.printing import Common
from ploti_server.domain.settings import Settings
from ploti_server.ports import Ports


def settings_of(common: Common) -> Settings:
    """Read the settings of the home folder that a command names; raises `SettingsBroken`."""
    return read_settings(common.home)


def ports_of(common: Common) -> Ports:
    """Open the home folder that a command names."""
    return build_ports(settings_of(common))
