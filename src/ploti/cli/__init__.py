"""The `ploti` command: how its process begins and ends. What it carries out is in `command`."""

import io
import os
import signal
import sys
from typing import Final

DONE: Final = 0
REFUSED: Final = 1
WRONG_USAGE: Final = 2
STOPPED: Final = 130
"""Exit codes: done, refused or failed, wrong usage, stopped with ctrl-C."""


class _Terminated(BaseException):
    """The process was asked to end: what is under way is put away first."""


def _terminated(number: int, _frame: object) -> None:
    """Unwind once; a second signal ends the process at once."""
    signal.signal(number, signal.SIG_DFL)
    raise _Terminated


def _speak() -> None:
    """Write UTF-8 for programs, and on a terminal what it can show, so that no name stops a command."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        if sys.stdout.isatty():
            sys.stdout.reconfigure(errors="replace")
        else:
            sys.stdout.reconfigure(encoding="utf-8")


def main() -> None:
    """Run the command line of this process."""
    signal.signal(signal.SIGTERM, _terminated)
    _speak()
    try:
        from ploti.cli.command import run  # here, so that ctrl-C is heard also while it is loaded

        code = run(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:
        sys.stderr.close()
        code = DONE
    except KeyboardInterrupt:
        print("Stopped.", file=sys.stderr)
        code = STOPPED
    except _Terminated:
        os.kill(os.getpid(), signal.SIGTERM)
        code = REFUSED
    sys.exit(code)
