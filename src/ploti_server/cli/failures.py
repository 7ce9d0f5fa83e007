"""Failures that an operator can do something about, shown as one line, or with `--json` as an object (D13.6)."""

import re
import sys
from typing import Final

import duckdb
from sqlalchemy.exc import DatabaseError

from ploti_server.adapters.migrations import UnknownLayout
from ploti_server.cli.printing import CommandRefused, WrongUsage, as_text, print_json
from ploti_server.domain.access import Refused
from ploti_server.domain.asks import AnswerRefused
from ploti_server.domain.catalog import CatalogBroken
from ploti_server.domain.replacements import ReplacementRefused
from ploti_server.domain.settings import SettingsBroken
from ploti_server.domain.states import StateUnreadable
from ploti_server.pipeline.check import CheckRefused
from ploti_server.pipeline.release import ReleaseRefused
from ploti_server.pipeline.workspaces import WorkspaceRefused

EXPECTED: tuple[type[Exception], ...] = (
    CommandRefused,
    Refused,
    CatalogBroken,
    SettingsBroken,
    StateUnreadable,
    CheckRefused,
    AnswerRefused,
    ReleaseRefused,
    ReplacementRefused,
    WorkspaceRefused,
    UnknownLayout,
    DatabaseError,
    duckdb.Error,
    OSError,
)
"""Every kind of refusal that a command can end with; another exception is a fault of the program.

What the database, the engine or the disk refuses is one: a full disk, a file that is no database, a read-only folder.
"""


def is_expected(failed: Exception) -> bool:
    """Tell whether a failure is a refusal with a message for the operator."""
    return isinstance(failed, EXPECTED)


def is_wrong_usage(failed: Exception) -> bool:
    """Tell whether a command was called in a way that it cannot be, which has an exit code of its own (D13.6)."""
    return isinstance(failed, WrongUsage)


def tell(failed: Exception, as_json: bool) -> None:
    """Print a refusal: a line to the error output, or an object to the output."""
    lines = [as_text(line) for line in failed.problems] if isinstance(failed, CatalogBroken) else [_message(failed)]
    if as_json:
        problems = {"problems": lines} if isinstance(failed, CatalogBroken) else {}
        print_json({"error": {"message": "; ".join(lines), **problems}})
    for line in [] if as_json else lines:
        print(f"ploti-server: {line}", file=sys.stderr)


def _message(failed: Exception) -> str:
    if not isinstance(failed, _REFUSED_BELOW):
        return as_text(str(failed))
    said, remedy = reason_of(failed)
    return as_text(f"{said}; {remedy or 'try `doctor`'}")


def reason_of(failed: Exception) -> tuple[str, str | None]:
    """Tell what failed and, where database, engine or disk refused in a way that is known, what to do about it."""
    if isinstance(failed, DatabaseError):
        said = " ".join(str(failed.orig).split())
        return f"the database does not answer as it should: {said}", _remedy(said)
    if isinstance(failed, duckdb.Error):
        said = " ".join(str(failed).split()).partition(" Possible solutions:")[0]
        return f"the engine gave up: {said}", _remedy(said)
    if isinstance(failed, OSError) and failed.strerror is not None:
        place = f" ({failed.filename})" if failed.filename is not None else ""
        return f"the disk or the network refused: {failed.strerror}{place}", _remedy(failed.strerror)
    return " ".join(str(failed).split()) or type(failed).__name__, None


_REFUSED_BELOW: Final = (DatabaseError, duckdb.Error, OSError)
_REMEDIES: Final = (
    ("permission denied|readonly database", "let the user that runs this read and write the whole home folder"),
    ("read-only file system", "mount it so that it can be written"),
    ("unable to open database", "see that the home folder can be written"),
    ("no space left|disk is full|quota|disk i/o", "make room on the disk of the home folder"),
    ("database is locked", "another program holds the database: end it, or wait for it"),
    ("out of memory", "raise the setting `memory_mb`, or lower `threads`"),
)


def _remedy(said: str) -> str | None:
    return next((remedy for found, remedy in _REMEDIES if re.search(found, said, re.IGNORECASE)), None)
