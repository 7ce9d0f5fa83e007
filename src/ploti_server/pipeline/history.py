"""Finds the states of a source's past: dated files of a folder, or one file's commits in a git repository (D13.5)."""

import re
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from ploti_server.pipeline.check import CheckRefused, GivenState

FIRST_DAY: Final = datetime(2000, 1, 1, tzinfo=UTC)
_EVER: Final = datetime.max.replace(tzinfo=UTC)
_DATE = re.compile(r"(?<!\d)(\d{4}-\d{2}-\d{2})(?!\d)")


def history_states(
    where: str, last_checked_at: datetime | None, scratch: Path, now: datetime = _EVER
) -> Iterator[GivenState]:
    """Give the states of FOLDER or REPO:PATH, oldest first, each with the time it was read, none after `now`.

    A state's time is the date in its name, else a day after the state before it, else 2000-01-01. Files of a git
    history are written into `scratch`. Raises `CheckRefused` where there is nothing to read.
    """
    folder = Path(where)
    if folder.is_dir():
        yield from _dated(_numbered_files(folder), last_checked_at, now)
        return
    repository, colon, path = where.rpartition(":")
    if not colon or not Path(repository).is_dir():
        raise CheckRefused(f"{where} is neither a folder of states nor REPO:PATH of a file in a git repository")
    yield from _commits(Path(repository), path, scratch, now)


def _numbered_files(folder: Path) -> list[Path]:
    files = sorted(file for file in folder.iterdir() if file.name[0].isdigit() and file.is_file())
    if not files:
        raise CheckRefused(f"{folder} has no files whose names begin with digits, like 001-2024-05-31.csv")
    return files


def _dated(files: list[Path], last: datetime | None, now: datetime) -> list[GivenState]:
    """Give every file its time, before any is read; refuses files that are not in the order of their dates."""
    states: list[GivenState] = []
    for file in files:
        dated = _day_of(file)
        if dated is not None and dated > now:
            raise CheckRefused(f"{file.name} has a date in the future: name it by the day when it was read")
        at = dated or _day_after(last, now)
        if states and last is not None and at < last:
            raise CheckRefused(
                f"{file.name} was read before {states[-1].file.name}, which comes first: "
                "name the files in the order of their dates"
            )
        states.append(GivenState(file, at))
        last = at
    return states


def _day_after(last: datetime | None, now: datetime) -> datetime:
    return FIRST_DAY if last is None else max(last, min(last + timedelta(days=1), now))


def _day_of(file: Path) -> datetime | None:
    found = _DATE.search(file.name)
    try:
        return datetime.fromisoformat(found[1]).replace(tzinfo=UTC) if found else None
    except ValueError as error:
        raise CheckRefused(f"{file.name} names no day of the calendar: rename it") from error


def _commits(repository: Path, path: str, scratch: Path, now: datetime) -> Iterator[GivenState]:
    listed = _git(repository, "log", "--reverse", "--format=%H %cI", "--", path).decode().split("\n")
    commits = [line.split(" ") for line in listed if line]
    if not commits:
        raise CheckRefused(f"{path} has no commits in {repository}")
    suffix = "".join(Path(path).suffixes)
    read_at = None
    for number, (commit, moment) in enumerate(commits, 1):
        try:
            content = _git(repository, "cat-file", "blob", f"{commit}:./{path}")
        except CheckRefused:
            continue  # the commit that deleted the file: it holds no state
        file = scratch / f"{number:06d}-{commit[:12]}{suffix}"
        file.write_bytes(content)
        committed = min(datetime.fromisoformat(moment).astimezone(UTC), now)
        read_at = max(committed, read_at or committed)  # clocks of committers differ, and a rebase keeps old times
        yield GivenState(file, read_at)
    if read_at is None:
        raise CheckRefused(f"{path} is no file in the history of {repository}: name one file")


def _git(repository: Path, *arguments: str) -> bytes:
    done = subprocess.run(["git", "-C", str(repository), *arguments], capture_output=True, check=False)
    if done.returncode:
        raise CheckRefused(f"git could not read {repository}: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout
