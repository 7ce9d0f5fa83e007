"""`ploti-server serve`: the API, with a worker in the same process."""

import ipaddress
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Annotated, Final

from cyclopts import Parameter

from ploti_server import worker
from ploti_server.api import make_api
from ploti_server.api.logs import logging_of
from ploti_server.api.serving import ApiServer
from ploti_server.app import build_ports, build_signer
from ploti_server.cli.home import settings_of
from ploti_server.cli.printing import COMMON, CommandRefused, Common, WrongUsage, say
from ploti_server.domain.settings import Settings
from ploti_server.ports import Ports

_PORT_MOST: Final = 65_535


def serve(
    *,
    host: str | None = None,
    port: Annotated[int | None, Parameter(help="0 takes any free port.")] = None,
    no_work: Annotated[bool, Parameter(name="--no-work", negative="", help="Serve only; run workers apart.")] = False,
    common: Common = COMMON,
) -> int:
    """Serve the API, and do the due work of checks and releases in the same process."""
    settings = settings_of(common)
    bound = host or settings.host
    require_public_address(bound, settings)
    settings = replace(settings, host=bound, port=free_port(bound, settings.port if port is None else port))
    ports = build_ports(settings)
    api = make_api(ports, settings, build_signer(ports))
    server = ApiServer(
        api,
        host=bound,
        port=settings.port,
        log_config=logging_of(as_json=not sys.stderr.isatty()),
    )
    with _working(ports, not no_work):
        if not common.as_json:
            say(f"serving {settings.home} (stop with Ctrl-C)")
        server.run()
    return 0


def require_public_address(host: str, settings: Settings) -> None:
    """Refuse to serve other machines without the address that links have to carry (D7.7)."""
    if settings.public_url is None and not is_loopback(host):
        raise CommandRefused(
            f"to serve on {host}, set the public address that links are made with first, like "
            "PLOTI_SERVER_PUBLIC_URL=https://feeds.example.org"
        )


def free_port(host: str, port: int) -> int:
    """Give the port to listen on, a free one for 0, that the links of webhooks carry too.

    Refuses a port that there cannot be, and one that cannot be listened on, before anything is opened.
    """
    if not 0 <= port <= _PORT_MOST:
        raise WrongUsage(f"--port: {port} is no port; give one from 1 to {_PORT_MOST}, or 0 for any free one")
    address = host.strip("[]")
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
            return int(probe.getsockname()[1])
        except OSError as error:
            why = error.strerror or error
            raise CommandRefused(
                f"cannot listen on {host} port {port}: {why}; give others with --host, --port"
            ) from error


def is_loopback(host: str) -> bool:
    """Tell whether an address can be reached from this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


@contextmanager
def _working(ports: Ports, on: bool) -> Iterator[None]:
    stop = threading.Event()
    thread = threading.Thread(target=worker.run, args=(ports, stop), name="worker", daemon=True)
    if on:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        if on:
            thread.join()
