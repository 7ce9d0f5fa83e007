"""What `ploti` carries out: one line below for each group of commands, loaded when it is used."""

from collections.abc import Sequence

from cyclopts import App, CycloptsError

import ploti
from ploti.cli import DONE, REFUSED, STOPPED, WRONG_USAGE, raise_heard
from ploti.cli.show import show_error

app = App(
    name="ploti",
    help="Follow public records as versioned feeds.",
    version=lambda: ploti.__version__,
    help_format="plaintext",
    usage="Usage: ploti COMMAND",
    suppress_keyboard_interrupt=False,
)
app.command("ploti.cli.feeds:app", name="feeds", help="Datasets, their versions, and subscriptions.")
app.command("ploti.cli.look:show_changes", name="changes", help="Show what changed in a subscription since a moment.")
app.command("ploti.cli.places:places", name="places", help="Places in your coverage.")
app.command("ploti.cli.places:topics", name="topics", help="Topics that datasets are filed under.")
app.command("ploti.cli.webhooks:app", name="webhooks", help="Addresses of yours that get a subscription's events.")
app.command("ploti.cli.sync:app", name="sync", help="Make a database follow a subscription.")
app.command("ploti.cli.listen:listen", name="listen", help="Post a subscription's events to an address of yours.")
app.command("ploti.cli.login:login", name="login", help="Store an API key and address for this user.")
app.command(
    "ploti.cli.doctor:doctor", name="doctor", help="Check this machine, its disk and clock, the key and the API."
)
app.command("ploti.cli.doctor:completion", name="completion", help="Print the script that lets a shell complete.")
app.command("ploti.cli.login:version", name="version", help="Show the version of this program.")


def run(tokens: Sequence[str]) -> int:
    """Carry out one command line and give its exit code: 0 done, 1 refused or failed, 2 wrong usage, 130 stopped."""
    as_json = "--json" in tokens
    try:
        result = _carry_out(tokens)
    except CycloptsError as problem:
        message = " ".join(str(problem).split()) + " See --help."
        show_error(f"Error: {message}", {"code": "wrong_usage", "message": message}, as_json)
        return WRONG_USAGE
    except ploti.PlotiError as problem:
        told = {"code": problem.code, "message": problem.message}
        show_error(f"Error: {problem}", {**told, "field": problem.field, "requestId": problem.request_id}, as_json)
        return REFUSED
    except BrokenPipeError:
        raise
    except OSError as problem:
        message = f"{problem.strerror or problem}{f': {problem.filename}' if problem.filename else ''}."
        show_error(f"Error: {message}", {"code": "system_error", "message": message}, as_json)
        return REFUSED
    except KeyboardInterrupt:
        show_error("Stopped.", {"code": "stopped", "message": "Stopped."}, as_json)
        return STOPPED
    return result if isinstance(result, int) else DONE


def _carry_out(tokens: Sequence[str]) -> object:
    try:
        return app(list(tokens), exit_on_error=False, print_error=False, result_action="return_value")
    except Exception:
        raise_heard()
        raise
