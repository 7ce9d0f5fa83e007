"""The HTTP API: `make_api(ports, settings, signer)` gives the application."""

from ploti_server.api.application import make_api

__all__ = ["make_api"]
