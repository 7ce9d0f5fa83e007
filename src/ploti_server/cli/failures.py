"""Failures that an operator can do something about, shown as one line, or with `--json` as an object (D13.6)."""

import sys

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
    return as_text(_told(failed))


def _told(failed: Exception) -> str:
    if isinstance(failed, DatabaseError):
        return f"the database does not answer as it should: {' '.join(str(failed.orig).split())}; try `doctor`"
    if isinstance(failed, duckdb.Error):
        return f"the engine gave up: {' '.join(str(failed).split())}; look at memory and disk with `doctor`"
    if isinstance(failed, OSError):
        place = f" ({failed.filename})" if failed.filename is not None else ""
        return f"the disk or the network refused: {failed.strerror or failed}{place}; try `doctor`"
    return str(failed)
