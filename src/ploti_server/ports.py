"""What the publisher and server need from outside, as small Protocols; one suite runs over all adapters of each.

What is needed of the store lies in `records.py`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from ploti_server.domain.datasets import Dataset
from ploti_server.domain.deliveries import Answer
from ploti_server.domain.evidence import Evidence
from ploti_server.domain.retention import RetentionLimits
from ploti_server.domain.workspaces import Workspace
from ploti_server.records import NameTaken, Records, Store
from ploti_server.rows.raw import RawState

__all__ = [
    "Clock",
    "Copier",
    "CopiesNothing",
    "CopyFailed",
    "Engine",
    "FileStat",
    "Files",
    "Hooks",
    "Judgement",
    "MatchingAgent",
    "NameTaken",
    "Notifier",
    "Pair",
    "PlanUnavailable",
    "Plans",
    "Ports",
    "Records",
    "Sender",
    "Sources",
    "Store",
    "Tables",
    "Unanswered",
]


class Clock(Protocol):
    """Tells the time."""

    def now(self) -> datetime:
        """Give the present moment, aware, in UTC, cut to milliseconds."""


@dataclass(frozen=True)
class FileStat:
    """A stored file's size."""

    size_bytes: int


class Files(Protocol):
    """Immutable files by path; a path's bytes never change once written (D5.3)."""

    def put(self, path: str, local: Path) -> None:
        """Take over a finished local file: it is visible whole and durable, or not at all.

        Writing a path again with the same bytes is allowed, with other bytes an error (`FileExistsError`).
        """

    def put_bytes(self, path: str, content: bytes) -> None:
        """Store bytes in the same way."""

    def stat(self, path: str) -> FileStat | None:
        """Tell a file's size; None where there is no such file."""

    def read(self, path: str, start: int = 0, length: int | None = None) -> Iterator[bytes]:
        """Give a file's bytes in blocks; `FileNotFoundError` where there is none."""

    def local(self, path: str) -> Path:
        """Give a local file with the bytes, for engines and readers; `FileNotFoundError` where there is none."""

    def paths(self, prefix: str) -> Iterator[str]:
        """List the stored paths that begin with a prefix, in order."""

    def remove(self, path: str) -> None:
        """Delete a file; nothing happens where there is none."""

    def sweep(self) -> int:
        """Remove what writers that crashed left unfinished, and tell how many files; no path shows them anyway."""

    def presigned(self, path: str, filename: str, content_type: str, seconds: int) -> str | None:
        """Give a link signed by the storage itself; None where the server has to sign one."""


class Tables(Protocol):
    """One piece of work of an engine: named tables in a private space that ends with it."""

    def add_files(self, name: str, files: Sequence[Path]) -> None:
        """Name Parquet files as a table."""

    def map_batches(self, name: str, batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> None:
        """Store what a generator of batches gives as a table, on disk where it is large."""

    def keep(self, name: str, sql: str) -> None:
        """Store the answer of a row query as a table."""

    def define(self, name: str, sql: str) -> None:
        """Name a row query as a table that is worked out when it is read."""

    def drop(self, name: str) -> None:
        """Let go of a stored table that nothing reads again."""

    def query(self, sql: str, rows_per_batch: int = 20_000) -> Iterator[pa.RecordBatch]:
        """Stream the answer of a row query; it never stands in memory whole."""

    def one(self, sql: str) -> Mapping[str, Any]:
        """Give the only row of an answer."""


class Sources(Protocol):
    """Reads stored states."""

    def __call__(self, path: Path, file_name: str | None, dataset: Dataset) -> RawState:
        """Open a state, told by its content; raises `StateUnreadable` where it cannot be read whole."""


class Engine(Protocol):
    """Runs whole-table work out of core, within its memory setting."""

    def work(self, folder: Path) -> AbstractContextManager[Tables]:
        """Open a space for one piece of work, spilling into the folder."""


@dataclass(frozen=True)
class Pair:
    """A candidate: an old and a new record that may be one; values by delivered column name."""

    pair_id: str
    old: Mapping[str, Any]
    new: Mapping[str, Any]


@dataclass(frozen=True)
class Judgement:
    """An agent's answer about a pair; `confidence` is 0 to 1."""

    pair_id: str
    same: bool
    confidence: float
    explanation: str | None = None


class Unanswered(Exception):
    """An agent that answers by itself did not answer whole; the message says why, `answered` is what it did judge.

    It is asked about the rest again before long.
    """

    def __init__(self, why: str, answered: Sequence[Judgement] = ()) -> None:
        super().__init__(why)
        self.answered = tuple(answered)


class MatchingAgent(Protocol):
    """Judges whether two records are the same (D4.8)."""

    def judges(self, dataset: Dataset) -> bool:
        """Tell whether pairs of a dataset are judged at all; where not, none are looked for."""

    def judge(self, dataset: Dataset, pairs: Sequence[Pair], evidence: Evidence) -> tuple[Judgement, ...] | None:
        """Answer about the pairs, in any order and possibly fewer; None where answers come later, by other ways.

        Raises `Unanswered` where it cannot answer now.
        """


class PlanUnavailable(Exception):
    """The plan cannot be read now."""


class Plans(Protocol):
    """Tells what a workspace's plan opens."""

    def topics(self, workspace: Workspace) -> tuple[str, ...] | None:
        """Give the topics that the plan opens, None for all; raises `PlanUnavailable`."""


class Sender(Protocol):
    """Sends one request to a receiver that a stranger chose (D9.1)."""

    def send(self, url: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """POST a body and tell what came back, within 15 seconds in all; never raises for what a receiver does."""


class CopyFailed(Exception):
    """A file that could not be copied; the message says why."""


class Copier(Protocol):
    """Copies files that stand beside a source to a local file (D5.9)."""

    def copy(self, address: str, target: Path, validator: str | None) -> str | None:
        """Copy the file at an address, and give what tells the next time whether it is still the same, if anything.

        With the `validator` that was given before, `target` may be left unwritten where the file is still the same.
        Raises `CopyFailed`.
        """


class CopiesNothing:
    """`Copier` of a process that copies no files."""

    def copy(self, address: str, target: Path, validator: str | None) -> str | None:  # noqa: ARG002  # the port's
        """Refuse."""
        raise CopyFailed("this process copies no files")


class Notifier(Protocol):
    """Gives word to the operator, by ways of their own."""

    def send(self, told: Mapping[str, Any]) -> str | None:
        """Pass a notice on; tells what went wrong, None where it arrived. Never raises for what a receiver does."""


@dataclass(frozen=True)
class Hooks:
    """What webhooks need: a sender, the key that secrets are derived from, and the address that links carry (D7.7)."""

    sender: Sender
    key: bytes
    public_url: str
    allow_loopback: bool = False


@dataclass(frozen=True)
class Ports:
    """Everything that the pipeline and the API reach out through.

    `reach` is called with the name of each step that a crash must survive; tests stop the process there.
    `notifier` None: the operator wants no notices.
    `hooks` None: this process neither makes webhooks nor sends to them; their deliveries are queued all the same.
    `rehearsed` is the home folder that a rehearsal in a `home` of its own stands for.
    """

    store: Store
    files: Files
    engine: Engine
    agent: MatchingAgent
    plans: Plans
    clock: Clock
    home: Path
    open_state: Sources
    reach: Callable[[str], None] = lambda _: None
    hooks: Hooks | None = None
    notifier: Notifier | None = None
    retention: RetentionLimits = RetentionLimits()
    copier: Copier = CopiesNothing()
    rehearsed: Path | None = None
