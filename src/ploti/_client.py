"""The client: settings from arguments, environment or `ploti login`, and the resources over one connection."""

import json
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from ploti._http import TIMEOUT_SECONDS, Http, Retries
from ploti._resources import Feeds, Places, Topics, Webhooks
from ploti.errors import FixRequest, RetryLater

if TYPE_CHECKING:
    import httpx2

DEFAULT_URL: Final = "http://127.0.0.1:8731"


class Client:
    """Reads and changes data feeds with one API key.

    Without arguments the key and address come from `PLOTI_API_KEY` and `PLOTI_API_URL`, else from what `ploti login`
    stored; a stored key is only ever sent to the address that it was stored for (D11.10). `timeout` is in seconds, for
    each wait; `proxy` is a proxy's address, that of `HTTPS_PROXY` and its kin unless given; `waiting` is told of
    trouble that is waited out, with the seconds; `transport` is an httpx2 transport, for tests.
    """

    def __init__(
        self,
        api_key: str | None = None,
        base_url: str | None = None,
        *,
        timeout: float = TIMEOUT_SECONDS,
        transport: "httpx2.BaseTransport | None" = None,
        proxy: str | None = None,
        retries: Retries | None = None,
        waiting: Callable[[RetryLater, float], object] | None = None,
    ) -> None:
        key, url = settings(api_key, base_url)
        self.http = Http(url, key, timeout=timeout, transport=transport, proxy=proxy, retries=retries, waiting=waiting)
        self.feeds = Feeds(self.http)
        self.places = Places(self.http)
        self.topics = Topics(self.http)
        self.webhooks = Webhooks(self.http)

    @property
    def base_url(self) -> str:
        """Address of the API."""
        return self.http.base_url

    def close(self) -> None:
        """Close the connections."""
        self.http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def settings(
    api_key: str | None = None, base_url: str | None = None, environment: Mapping[str, str] = os.environ
) -> tuple[str | None, str]:
    """Find the API key and address: arguments, then environment, then the stored login (D11.10)."""
    url = _named_url(base_url, environment)
    key = api_key or environment.get("PLOTI_API_KEY")
    if key is not None and url is not None:
        return key, url
    stored = stored_login(login_path(environment))
    url = url or stored.get("url") or DEFAULT_URL
    if key is None and stored.get("url") == url.rstrip("/"):
        key = stored.get("key")
    return key, url


def login_url(base_url: str | None = None, environment: Mapping[str, str] = os.environ) -> str:
    """Find the address to log in at as `settings` does; a stored login that cannot be read is as good as none."""
    stored = {}
    with suppress(FixRequest):
        stored = stored_login(login_path(environment))
    return _named_url(base_url, environment) or stored.get("url") or DEFAULT_URL


def _named_url(base_url: str | None, environment: Mapping[str, str]) -> str | None:
    return (base_url or environment.get("PLOTI_API_URL") or "").strip() or None


def login_path(environment: Mapping[str, str] = os.environ) -> Path:
    """Name the file in the user's configuration folder that holds the login; raises FixRequest for a user without."""
    return (
        user_folder("APPDATA" if sys.platform == "win32" else "XDG_CONFIG_HOME", ".config", environment) / "login.json"
    )


def user_folder(
    variable: str, named: str, environment: Mapping[str, str] = os.environ, home: Callable[[], Path] = Path.home
) -> Path:
    """Name the folder that this program has below one of the user's; raises FixRequest for a user without a home."""
    folder = environment.get(variable)
    try:
        return Path(folder or home() / named) / "ploti"
    except RuntimeError as problem:
        told = f"This user has no home folder: set {variable} to a folder, or HOME."
        raise FixRequest(told, code="invalid_input") from problem


def stored_login(path: Path) -> dict[str, str]:
    """Read the stored login, `url` and `key`; empty where there is none. Raises FixRequest for a broken file."""
    try:
        found = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except OSError as problem:
        raise FixRequest(f"{path} cannot be read: {problem.strerror}.", code="invalid_input") from problem
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(isinstance(found.get(name), str) for name in ("url", "key")):
        raise FixRequest(f"{path} is not a stored login: run `ploti login` again.", code="invalid_input")
    return {"url": found["url"], "key": found["key"]}


def store_login(path: Path, url: str, key: str) -> None:
    """Store a login for its owner's eyes only, replacing an earlier one whole."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    fresh.unlink(missing_ok=True)
    try:
        with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            json.dump({"url": url.rstrip("/"), "key": key}, file)
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)
