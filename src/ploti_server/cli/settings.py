"""`ploti-server settings`."""

import os
import tomllib
from typing import Any

from sqlalchemy import make_url

from ploti_server.cli.home import settings_of
from ploti_server.cli.printing import COMMON, Common, show
from ploti_server.domain.settings import FILE_NAME, given_settings, setting_names, setting_value


def settings(*, common: Common = COMMON) -> int:
    """Show every setting, its value and where it comes from."""
    read = settings_of(common)
    file = read.home / FILE_NAME
    stored = tomllib.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    given = given_settings(os.environ, stored)
    rows = [{"setting": "home", "value": str(read.home), "from": "command"}]
    for name in setting_names():
        value = setting_value(read, name)
        rows.append(
            {"setting": name, "value": _shown(name, value), "from": given[name][1] if name in given else "default"}
        )
    show(common, rows, "settings")
    return 0


def _shown(name: str, value: Any) -> Any:
    if name in ("webhooks_key", "chat_key") and value is not None:
        return "***"
    return make_url(value).render_as_string(hide_password=True) if name == "database_url" else value
