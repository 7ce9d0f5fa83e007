"""The table of commands, and what becomes of their failures: 0 done, 1 refused with one clear line, 2 wrong usage."""

import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import Final

from cyclopts import App, CycloptsError
from rich.console import Console

COMMANDS: Final = (
    ("demo", "ploti_server.cli.demo:demo", "Play the main job on real records, offline."),
    ("serve", "ploti_server.cli.serve:serve", "Serve the API, with workers inside."),
    (
        "status",
        "ploti_server.cli.status:status",
        "Tell where every dataset stands; exit code 1 where one needs care.",
    ),
    ("doctor", "ploti_server.cli.doctor:doctor", "Check that this home folder's server can work."),
    ("settings", "ploti_server.cli.settings:settings", "Show every setting and where it comes from."),
    ("catalog", "ploti_server.cli.catalog:catalog", "Apply a catalog of topics and datasets."),
    (
        "datasets",
        "ploti_server.cli.datasets:datasets",
        "List the datasets of the catalog; profile a file or a dataset.",
    ),
    ("check", "ploti_server.cli.checks:check", "Read a state of a source and build its next version."),
    (
        "holds",
        "ploti_server.cli.holds:holds",
        "List, show, release and discard held versions; see what subscribers were told.",
    ),
    ("judge", "ploti_server.cli.judge:judge", "Judge by hand which records are the same."),
    ("versions", "ploti_server.cli.versions:versions", "List a dataset's versions, release one again."),
    ("ids", "ploti_server.cli.ids:ids", "Show what became of record ids, and replace them."),
    ("work", "ploti_server.cli.checks:work", "Do the due work until stopped."),
    ("prune", "ploti_server.cli.prune:prune", "Let go of what is past retention."),
    ("workspace", "ploti_server.cli.workspaces:workspace", "Create, list, change and delete workspaces."),
    ("member", "ploti_server.cli.members:member", "Add, list and remove a workspace's members."),
    ("key", "ploti_server.cli.keys:key", "Create, list and revoke API keys."),
)
"""Name, where its function or group is, what it does: one line for each command or group."""

DONE: Final = 0
REFUSED: Final = 1
WRONG_USAGE: Final = 2
INTERRUPTED: Final = 130


def make_app() -> App:
    """Make the command with all of its sub-commands, none of them imported yet."""
    app = App(
        name="ploti-server",
        help="Publish public records as versioned feeds, and serve them.",
        version=lambda: version("ploti"),
        result_action="return_value",
    )
    for name, place, says in COMMANDS:
        app.command(place, name=name, help=says)
    return app


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; gives the exit code (D13.6)."""
    code = DONE
    try:
        code = _run(list(sys.argv[1:] if arguments is None else arguments))
        sys.stdout.flush()
    except BrokenPipeError:
        from ploti_server.cli.printing import stop_printing

        stop_printing()
    return code


def _home_last(given: list[str]) -> list[str]:
    """Let `--home` stand ahead of the command as well as after it."""
    ahead = 2 if given[:1] == ["--home"] else 1 if given and given[0].startswith("--home=") else 0
    return given[ahead:] + given[:ahead]


def _run(given: list[str]) -> int:
    try:
        result = make_app()(_home_last(given), exit_on_error=False, print_error=False)
    except CycloptsError as wrong:
        _tell_wrong(_line(wrong), as_json="--json" in given)
        return WRONG_USAGE
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        raise
    except Exception as failed:
        from ploti_server.cli.failures import is_expected, is_wrong_usage, tell

        if isinstance(failed, UnicodeEncodeError) and (odd := _no_text(given)) is not None:
            _tell_wrong(f"{odd!a} is no text: write it in UTF-8", as_json="--json" in given)
            return WRONG_USAGE
        if not is_expected(failed):
            raise
        tell(failed, as_json="--json" in given)
        return WRONG_USAGE if is_wrong_usage(failed) else REFUSED
    return result if isinstance(result, int) else DONE


def _no_text(given: list[str]) -> str | None:
    """Find an argument with bytes that are no text in the encoding of the machine."""
    return next((one for one in given if one.encode(errors="ignore").decode() != one), None)


def _tell_wrong(line: str, as_json: bool) -> None:
    """Print what is wrong with a call: a line to the error output, or an object to the output."""
    if as_json:
        from ploti_server.cli.printing import print_json

        print_json({"error": {"message": line}})
    else:
        Console(stderr=True, highlight=False, markup=False, soft_wrap=True).print(f"ploti-server: {line}")


def _line(wrong: CycloptsError) -> str:
    from ploti_server.cli.printing import as_text

    return f"{as_text(' '.join(str(wrong).split()))} See `ploti-server --help`."
