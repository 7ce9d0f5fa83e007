"""The `ploti` command: how its process begins and ends. What it carries out is in `command`."""

import io
import os
import signal
import sys
from contextlib import suppress
from types import FrameType
from typing import Final, TextIO

DONE: Final = 0
REFUSED: Final = 1
WRONG_USAGE: Final = 2
STOPPED: Final = 130
"""Exit codes: done, refused or failed, wrong usage, stopped with ctrl-C."""


class _Terminated(BaseException):
    """The process was asked to end by a signal: what is under way is put away first."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


_heard: list[BaseException] = []


def _interrupted(number: int, frame: FrameType | None) -> None:
    """Unwind on ctrl-C."""
    _heard.append(KeyboardInterrupt())
    signal.default_int_handler(number, frame)


def _terminated(number: int, _frame: FrameType | None) -> None:
    """Unwind once; a second signal ends the process at once."""
    signal.signal(number, signal.SIG_DFL)
    _heard.append(_Terminated(number))
    raise _heard[-1]


def raise_heard() -> None:
    """Raise again what a signal raised, where there was one: DuckDB makes an error of its own of it."""
    if _heard:
        raise _heard[-1]


def _heed_signals() -> None:
    """End in order when asked to, and where the terminal goes; `nohup` and a shell's `&` keep signals away."""
    signal.signal(signal.SIGTERM, _terminated)
    hangup = getattr(signal, "SIGHUP", None)  # Windows has none
    if hangup is not None and signal.getsignal(hangup) is not signal.SIG_IGN:
        signal.signal(hangup, _terminated)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupted)


def _speak() -> None:
    """Write UTF-8 for programs, and on a terminal what it can show, so that no name stops a command."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:  # closed, as for some daemons
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w", encoding="utf-8"))  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        if sys.stdout.isatty():
            sys.stdout.reconfigure(errors="replace")
        else:
            sys.stdout.reconfigure(encoding="utf-8")


def main() -> None:
    """Run the command line of this process."""
    _heed_signals()
    _speak()
    code = DONE
    try:
        from ploti.cli.command import run  # here, so that ctrl-C is heard also while it is loaded

        code = run(sys.argv[1:])
        sys.stdout.flush()
    except (BrokenPipeError, SystemExit):  # the latter is rich's for the former
        pass
    except OSError as problem:
        _say(f"Error: {problem.strerror}.")
        code = code or REFUSED
    except KeyboardInterrupt:
        _say("Stopped.")
        code = STOPPED
    except _Terminated as asked:
        os.kill(os.getpid(), asked.number)
        code = REFUSED
    _let_go(sys.stdout)
    _let_go(sys.stderr)
    sys.exit(code)


def _say(line: str) -> None:
    with suppress(OSError):
        print(line, file=sys.stderr, flush=True)


def _let_go(stream: TextIO) -> None:
    """Drop what can no longer be printed, so that the interpreter's end does not fail of it."""
    try:
        stream.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
