"""What a user of the SDK tests with: a fake API that answers like the service, with faults on demand."""

from ploti.testing.fake_api import FakeApi

__all__ = ["FakeApi"]
