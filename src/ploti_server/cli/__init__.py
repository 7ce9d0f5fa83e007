"""The operator's command `ploti-server` (D13). Each command's module is imported only when the command runs."""

from ploti_server.cli.main import main

__all__ = ["main"]
