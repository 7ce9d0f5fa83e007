"""Fakes for the ports that need a disk, a network, a person or time. The suites in `tests/adapters` hold them to the
same contract as the real ones. The engine needs none: DuckDB runs in the process.
"""

from ploti_server.testing.fakes import FakeAgent, FakePlans, FakeSender, FixedClock, MemoryFiles
from ploti_server.testing.memory_store import MemoryStore

__all__ = ["FakeAgent", "FakePlans", "FakeSender", "FixedClock", "MemoryFiles", "MemoryStore"]
