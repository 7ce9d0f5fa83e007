"""Which addresses may be called: https to the public internet, and nothing that leads back inside (D9.1, D14.4)."""

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final
from urllib.parse import urlsplit

URL_LONGEST: Final = 2_000
HTTPS_PORT: Final = 443
HTTP_PORT: Final = 80
_FREE_PORTS: Final = 1_024
_OWN_NAMES: Final = ("localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback")
_HOST: Final = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)(\.(?!-)[a-z0-9_-]{1,63}(?<!-))*\.?")
_NUMERIC_END: Final = re.compile(r"(.*\.)?([0-9]+|0x[0-9a-f]*)\.?")
_CLOSED: Final = tuple(
    ip_network(text)
    for text in (
        *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "168.63.129.16/32", "169.254.0.0/16"),
        *("172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15"),
        *("198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4"),
        *("::/96", "64:ff9b:1::/48", "100::/64", "100:0:0:1::/64", "2001:2::/48", "2001:10::/28", "2001:db8::/32"),
        *("3fff::/20", "5f00::/16", "fc00::/7", "fe80::/10", "fec0::/10", "ff00::/8"),
    )
)
"""This network, private, shared, loopback, link-local, documentation, benchmarking, multicast and reserved space."""
_UNICAST: Final = IPv6Network("2000::/3")
"""All that is given out of IPv6 for the public; the rest is reserved, translated forms of IPv4 among it."""
_NAT64: Final = IPv6Network("64:ff9b::/96")

Address = IPv4Address | IPv6Address


class AddressRefused(ValueError):
    """An address that may not be called; the message says why and what would do."""


@dataclass(frozen=True)
class Target:
    """Where a request goes: `host` in lower case, `path` with its query, as it is sent."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def authority(self) -> str:
        """Host and port as the Host header has them."""
        shown = f"[{self.host}]" if ":" in self.host else self.host
        usual = {"https": HTTPS_PORT, "http": HTTP_PORT}[self.scheme]
        return shown if self.port == usual else f"{shown}:{self.port}"


def read_target(url: str, allow_loopback: bool = False, *, plain: bool = False) -> Target:
    """Take an address apart; raises `AddressRefused` where it is not one that may be called (D9.1).

    The host's name is not looked up here. With `plain`, http passes too; with `allow_loopback` this machine by its own
    names and addresses, over http and on any port. The addresses behind are still to be checked with `check_answers`.
    """
    if len(url) > URL_LONGEST or not re.fullmatch(r"[!-\[\]-~]+", url):
        raise AddressRefused(f"an address has up to {URL_LONGEST} plain characters: percent-encode all others")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise AddressRefused("this is not an address like https://example.org/hooks") from None
    scheme, host = parts.scheme.lower(), (parts.hostname or "").lower()
    own = allow_loopback and _is_own(host)
    if scheme != "https" and not ((own or plain) and scheme == "http"):
        raise AddressRefused("the address has to begin with https://")
    if "@" in parts.netloc:
        raise AddressRefused("leave user name and password out of the address")
    if parts.fragment:
        raise AddressRefused("leave the part from # on out of the address")
    port = port if port is not None else (HTTPS_PORT if scheme == "https" else HTTP_PORT)
    usual = (HTTPS_PORT, HTTP_PORT) if plain else (HTTPS_PORT,)
    if not own and port not in usual and port < _FREE_PORTS:
        raise AddressRefused(f"use port {HTTPS_PORT}, or one from {_FREE_PORTS} on")
    _check_host(host, own)
    return Target(scheme, host, port, (parts.path or "/") + (f"?{parts.query}" if parts.query else ""))


def _is_own(host: str) -> bool:
    """Tell whether a host is this machine by what it is called."""
    literal, name = _literal(host), host.rstrip(".")
    return is_loopback(literal) if literal is not None else name in _OWN_NAMES or name.endswith(".localhost")


def _check_host(host: str, may_be_own: bool) -> None:
    literal = _literal(host)
    if literal is not None:
        check_answers([str(literal)], may_be_own)
    elif not _HOST.fullmatch(host) or len(host) > 253 or _NUMERIC_END.fullmatch(host):
        raise AddressRefused("the host has to be a name like hooks.example.org, or an IP address in its usual form")
    elif not may_be_own and _is_own(host):
        raise AddressRefused("the host is the server's own machine: use a public one")


def _literal(host: str) -> Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def check_answers(found: list[str], allow_loopback: bool = False) -> tuple[Address, ...]:
    """Check every address that a host's name leads to; raises `AddressRefused` where a single one is not public.

    With `allow_loopback`, addresses of this machine alone pass too, but never beside others.
    """
    addresses = tuple(dict.fromkeys(ip_address(text.partition("%")[0]) for text in found))
    if not addresses or any("%" in text for text in found):
        raise AddressRefused("the host's name leads to no public address")
    if allow_loopback and all(is_loopback(address) for address in addresses):
        return addresses
    if not all(is_public(address) for address in addresses):
        raise AddressRefused("the host's name leads to an address that is not public")
    return addresses


def is_loopback(address: Address) -> bool:
    """Tell whether an address is of this machine alone, written in either family."""
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback


def is_public(address: Address) -> bool:
    """Tell whether an address lies in the public internet, with every IPv4 address that it carries inside (D9.1)."""
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return is_public(address.ipv4_mapped)
    if any(address in closed for closed in _CLOSED if closed.version == address.version) or address.is_multicast:
        return False
    if isinstance(address, IPv4Address):
        return address.is_global
    inside = _carried(address)
    return all(is_public(one) for one in inside) if inside else address.is_global and address in _UNICAST


def _carried(address: IPv6Address) -> tuple[IPv4Address, ...]:
    """Unwrap the IPv4 addresses that NAT64, 6to4 and Teredo put into an IPv6 address."""
    if address in _NAT64:
        return (IPv4Address(int(address) & 0xFFFFFFFF),)
    if address.sixtofour is not None:
        return (address.sixtofour,)
    return address.teredo or ()
