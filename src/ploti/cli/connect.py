"""The clients that commands use: a person is waiting, so they tell what they wait for."""

from collections.abc import Callable
from typing import Final

import ploti
from ploti.cli.show import show_note

_TOLD_SECONDS: Final = 3.0
"""What takes longer is told."""


def connect(api_key: str | None = None, base_url: str | None = None) -> "ploti.Client":
    """Make a client, from the environment or the stored login unless given, that gives up after three attempts."""
    return ploti.Client(api_key, base_url, retries=ploti.Retries(attempts=3), waiting=told(show_note))


def told(say: Callable[[str], None]) -> "Callable[[ploti.RetryLater, float], None]":
    """Tell of trouble that is waited out for long."""

    def waiting(problem: ploti.RetryLater, seconds: float) -> None:
        if seconds >= _TOLD_SECONDS:
            say(f"Waiting {seconds:.0f} seconds: {problem}")

    return waiting
