"""`ploti login` and `ploti version`."""

import platform
import sys
from getpass import getpass

import ploti
from ploti.cli.connect import connect
from ploti.cli.show import AsJson, present


def login(*, url: str | None = None, json: AsJson = False) -> None:
    """Check an API key with the API, then store it with the address for this user.

    The key is asked for, or read from standard input when that is not a terminal, so that it stays out of the shell's
    history.

    Parameters
    ----------
    url
        Address of the API; PLOTI_API_URL, what was stored before or the address of a local demo unless given.
    """
    from ploti._client import login_path, login_url, store_login

    address = login_url(url)
    key = (getpass(f"API key for {address}: ") if sys.stdin.isatty() else sys.stdin.readline()).strip()
    if not key:
        raise ploti.FixRequest("Give an API key, on standard input or when asked.", code="invalid_input")
    with connect(key, address) as client:
        client.topics.list()
    path = login_path()
    store_login(path, address, key)
    stored = {"url": address, "path": str(path)}
    present(stored, json, lambda _: print(f"Stored the key for {address} in {path}."))


def version(*, json: AsJson = False) -> None:
    """Show the version of this program."""
    found = {"version": ploti.__version__, "python": platform.python_version()}
    present(found, json, lambda found: print(f"ploti {found['version']} (Python {found['python']})"))
