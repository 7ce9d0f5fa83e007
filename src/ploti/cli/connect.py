"""The client that commands use: it gives up sooner than the SDK's, for a person is waiting."""

import ploti


def connect() -> "ploti.Client":
    """Make a client from the environment or the stored login that gives up after three attempts."""
    return ploti.Client(retries=ploti.Retries(attempts=3))
