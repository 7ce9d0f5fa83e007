"""Which requests carry the API key: those to the API's own origin, and no other."""

from urllib.parse import urlsplit

_PORTS = {"http": 80, "https": 443}


def authorization(api_key: str, base_url: str, url: str) -> dict[str, str]:
    """Give the header that proves who calls; empty for an address of another scheme, host or port."""
    return {"authorization": f"Bearer {api_key}"} if origin(url) == origin(base_url) else {}


def origin(url: str) -> tuple[str, str | None, int | None]:
    """Give the scheme, host and port of an address."""
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or _PORTS.get(parts.scheme)
