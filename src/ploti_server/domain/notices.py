"""Notices to the operator: that a version is held, a check failed, or a person is asked to judge."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Notify:
    """Where notices go: a command that gets each as JSON on its input, an address that gets it as a POST, or both."""

    command: str | None = None
    url: str | None = None
