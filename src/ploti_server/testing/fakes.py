"""A clock, plans, an agent, a sender and files that do as they are told."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from ploti_server.domain.datasets import Dataset
from ploti_server.domain.deliveries import Answer
from ploti_server.domain.evidence import Evidence
from ploti_server.domain.workspaces import Workspace
from ploti_server.ports import FileStat, Judgement, Pair, PlanUnavailable


class FixedClock:
    """`Clock` that stands still until it is moved."""

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._now = start.astimezone(UTC)

    def now(self) -> datetime:
        """Give the moment it stands at, cut to milliseconds."""
        return self._now.replace(microsecond=self._now.microsecond // 1000 * 1000)

    def advance(self, by: timedelta | None = None, **parts: float) -> datetime:
        """Move on by a span, or by `days=`, `hours=`, `seconds=`..., and give the new moment."""
        self._now += timedelta(**parts) if by is None else by
        return self.now()

    def set(self, to: datetime) -> None:
        """Stand at another moment, also an earlier one."""
        self._now = to.astimezone(UTC)


class FakePlans:
    """`Plans` that answers what the workspace stores, or that it cannot be read while `available` is False."""

    def __init__(self) -> None:
        self.available = True

    def topics(self, workspace: Workspace) -> tuple[str, ...] | None:
        """Give the topics of the workspace, None for all; raises `PlanUnavailable`."""
        if not self.available:
            raise PlanUnavailable("the plan is switched off in this test")
        return workspace.topics


class FakeAgent:
    """`MatchingAgent` that judges with a given function, or answers later while `silent`; `asked` keeps the asks."""

    def __init__(self, judge: Callable[[Pair], Judgement | None] = lambda _: None, silent: bool = False) -> None:
        self._judge = judge
        self.silent = silent
        self.asked: list[tuple[Pair, ...]] = []

    def judges(self, dataset: Dataset) -> bool:  # noqa: ARG002
        """Tell that pairs are judged."""
        return True

    def judge(
        self,
        dataset: Dataset,  # noqa: ARG002
        pairs: Sequence[Pair],
        evidence: Evidence,  # noqa: ARG002
    ) -> tuple[Judgement, ...] | None:
        """Answer about the pairs that the function judges; None while silent."""
        self.asked.append(tuple(pairs))
        if self.silent:
            return None
        return tuple(judgement for pair in pairs if (judgement := self._judge(pair)) is not None)


class FakeSender:
    """`Sender` that answers what a given function says; `sent` keeps every request."""

    def __init__(self, answer: Callable[[str, Mapping[str, str], bytes], Answer] | None = None) -> None:
        self._answer = answer or (lambda *_: Answer(204))
        self.sent: list[tuple[str, Mapping[str, str], bytes]] = []

    def answer_with(self, answer: Callable[[str, Mapping[str, str], bytes], Answer]) -> None:
        """Answer what another function says from now on."""
        self._answer = answer

    def send(self, url: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """Note the request and answer it."""
        self.sent.append((url, headers, body))
        return self._answer(url, headers, body)


class MemoryFiles:
    """`Files` in memory; `local` copies a file out into a folder that lives as long as this."""

    def __init__(self) -> None:
        self._stored: dict[str, bytes] = {}
        self._folder = TemporaryDirectory(prefix="ploti-files-")

    def put(self, path: str, local: Path) -> None:
        """Take over a local file."""
        self.put_bytes(path, local.read_bytes())
        local.unlink()

    def put_bytes(self, path: str, content: bytes) -> None:
        """Store bytes; raises `FileExistsError` where other bytes lie."""
        _check_path(path)
        if self._stored.setdefault(path, bytes(content)) != content:
            raise FileExistsError(f"{path} is stored with other bytes")

    def stat(self, path: str) -> FileStat | None:
        """Tell a file's size."""
        _check_path(path)
        return FileStat(len(self._stored[path])) if path in self._stored else None

    def read(self, path: str, start: int = 0, length: int | None = None) -> Iterator[bytes]:
        """Give a file's bytes from `start` on."""
        if start < 0 or (length is not None and length < 0):
            raise ValueError("start and length cannot be negative")
        content = self._content(path)[start:]
        return iter([content[:length]] if content[:length] else [])

    def local(self, path: str) -> Path:
        """Give a copy of the file on disk."""
        target = Path(self._folder.name, path)
        content = self._content(path)
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
        return target

    def paths(self, prefix: str) -> Iterator[str]:
        """List stored paths that begin with a prefix, in order."""
        return iter(sorted(path for path in self._stored if path.startswith(prefix)))

    def remove(self, path: str) -> None:
        """Delete a file."""
        _check_path(path)
        self._stored.pop(path, None)
        Path(self._folder.name, path).unlink(missing_ok=True)

    def sweep(self) -> int:
        """Find nothing left: no writer of this process crashes without it."""
        return 0

    def presigned(self, path: str, filename: str, content_type: str, seconds: int) -> str | None:  # noqa: ARG002
        """Leave signing to the server."""
        return None

    def _content(self, path: str) -> bytes:
        _check_path(path)
        if path not in self._stored:
            raise FileNotFoundError(f"no file is stored at {path}")
        return self._stored[path]


def _check_path(path: str) -> None:
    for segment in path.split("/"):
        if not segment or segment.startswith(".") or "\\" in segment or not segment.isprintable():
            raise ValueError(f"{path!r} is not a path of the file store")
