"""`ploti doctor` and `ploti completion`: whether this machine is ready, and the words that a shell completes."""

import os
import platform
import stat
import sys
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from shutil import disk_usage
from tempfile import TemporaryFile, gettempdir
from typing import Any, Final, Literal

import ploti
from ploti._client import login_path, settings, stored_login
from ploti.cli.show import AsJson, byte_size, present, show_table

_SKEW_SECONDS: Final = 60
"""From here on a clock is told of; from five minutes on signed webhooks are refused."""
_FREE_BYTES: Final = 1_000_000_000
"""Room for a few parts of a version, which have up to 256 MB each."""
_EXTRAS: Final[Mapping[str, tuple[str, ...]]] = {
    "sync": ("duckdb",),
    "postgres": ("duckdb", "psycopg", "adbc-driver-postgresql"),
    "arrow": ("pyarrow",),
    "pandas": ("pandas", "pyarrow"),
    "polars": ("polars",),
}
_COMPLETION_ENDS: Final[Mapping[str, str]] = {
    "bash": "",
    "zsh": """
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
  _cyclopts_ploti "$@"
else
  compdef _cyclopts_ploti ploti
fi
""",
    "fish": "\ncomplete -c ploti -f\n",
}
"""What makes the scripts complete: zsh's only defines a function, fish's offers files beside every command."""


def doctor(*, json: AsJson = False) -> int:
    """Check what is installed, disk, key, API and clock; exit code 1 where something is wrong.

    The key itself is never shown.
    """
    checks = [_program(), *map(_extra, _EXTRAS), _disk(), *_reached()]
    present(checks, json, _show)
    return 0 if all(check["ok"] is not False for check in checks) else 1


def _show(checks: list[dict[str, Any]]) -> None:
    words = {True: "ok", False: "WRONG", None: "-"}
    show_table(("CHECK", "STATE", "SAYS"), [(each["check"], words[each["ok"]], each["says"]) for each in checks])


def _check(what: str, ok: bool | None, says: str) -> dict[str, Any]:
    """Give one line; `ok` is None for what may be missing."""
    return {"check": what, "ok": ok, "says": says}


def _program() -> dict[str, Any]:
    return _check("ploti", True, f"{ploti.__version__}, Python {platform.python_version()}, {sys.platform}")


def _extra(name: str) -> dict[str, Any]:
    found, missing = [], []
    for package in _EXTRAS[name]:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            missing.append(package)
    if missing:
        return _check(f"extra {name}", None, f'not installed: pip install "ploti[{name}]"')
    return _check(f"extra {name}", True, ", ".join(found))


def _disk() -> dict[str, Any]:
    """Look at the folder that downloads go through."""
    try:
        folder = gettempdir()
        free = disk_usage(folder).free
        with TemporaryFile(dir=folder):
            pass
    except OSError as problem:
        return _check("disk", False, f"no folder for temporary files: {problem.strerror}. Name one in TMPDIR")
    if free < _FREE_BYTES:
        return _check("disk", False, f"{folder} has {byte_size(free)} left: make room, or name another one in TMPDIR")
    return _check("disk", True, f"{folder} has {byte_size(free)} left")


def _reached() -> list[dict[str, Any]]:
    """Check the settings, then the API with one call."""
    try:
        key, url = settings()
        checks = [_check("address", True, f"{url}, from {_origin('PLOTI_API_URL', 'url')}"), _key(key, url)]
        if key is None:
            return [*checks, _check("API", None, "not asked without a key")]
        with ploti.Client(key, url, timeout=10, retries=ploti.Retries(attempts=1)) as client:
            api = _answered(lambda: client.feeds.subscriptions.list(limit=1), url)
            return [*checks, api, _clock(client.http.skew)]
    except ploti.PlotiError as problem:
        return [_check("settings", False, problem.message)]


def _origin(variable: str, member: str) -> str:
    """Tell where a setting comes from."""
    if os.environ.get(variable):
        return variable
    return "`ploti login`" if stored_login(login_path()).get(member) else "the default"


def _key(key: str | None, url: str) -> dict[str, Any]:
    if key is None:
        stored = stored_login(login_path()).get("url")
        why = "none" if stored is None else f"none for {url}, as the stored one is for {stored}"
        return _check("key", False, f"{why}: set PLOTI_API_KEY, or run `ploti login`")
    path, origin = login_path(), _origin("PLOTI_API_KEY", "key")
    if os.name == "posix" and path.exists() and stat.S_IMODE(path.stat().st_mode) & 0o077:
        return _check("key", False, f"others on this machine can read {path}: run `chmod 600 {path}`")
    return _check("key", True, f"from {origin}")


def _answered(call: Callable[[], object], url: str) -> dict[str, Any]:
    try:
        call()
    except ploti.NoAnswer as problem:
        return _check("API", False, problem.message)
    except ploti.NotAllowed as problem:
        refused = "refuses the key" if problem.code == "unauthenticated" else "does not let this key read feeds"
        return _check("API", False, f"{url} answers, but {refused}: {problem.message}")
    except ploti.PlotiError as problem:
        return _check("API", False, str(problem))
    return _check("API", True, f"{url} answers and takes the key")


def _clock(skew: float | None) -> dict[str, Any]:
    if skew is None:
        return _check("clock", None, "not known, as the API did not tell its time")
    if abs(skew) < _SKEW_SECONDS:
        return _check("clock", True, "agrees with the API's")
    side = "behind" if skew > 0 else "ahead of"
    return _check("clock", False, f"{abs(skew):,.0f} seconds {side} the API's: set this machine's clock")


def completion(shell: Literal["bash", "zsh", "fish"], /) -> None:
    """Print the script that lets a shell complete `ploti` and its options.

    Keep it where the shell looks, for example: ploti completion bash > ~/.local/share/bash-completion/completions/ploti

    Parameters
    ----------
    shell
        The shell.
    """
    from ploti.cli.command import app

    print(app.generate_completion(prog_name="ploti", shell=shell) + _COMPLETION_ENDS[shell])
