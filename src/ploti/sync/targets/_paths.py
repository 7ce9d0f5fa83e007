"""The file or folder that a target's address names (D11.1)."""

import stat
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ploti.sync.target import TargetUnusable


def path_in(url: str, kind: str, example: str) -> Path:
    """Give the path in `scheme:///path`; one slash more makes it absolute.

    A link is followed: whichever name a run goes by there is one lock, and a first load makes what a link points to.
    Raises TargetUnusable for an address without a path, or one that no file system takes.
    """
    parts = urlsplit(url)
    name = unquote(parts.path[1:])
    if parts.netloc or parts.query or not name or "\0" in name:
        write = f"{parts.scheme}:///{example}, or {parts.scheme}:////data/{example}"
        raise TargetUnusable(f"{url!r} names no {kind}. Write {write}")
    path = Path(name)
    try:
        if kind == "file" and path.is_dir():
            raise TargetUnusable(f"{path} is a folder: name a file in it, as {parts.scheme}:///{path / example}")
        for folder in (path, *path.parents)[kind == "file" :]:
            if (mode := _mode(folder)) is None:
                continue
            if not stat.S_ISDIR(mode):
                raise TargetUnusable(f"{folder} is a file: name another {kind}, as {parts.scheme}:///{example}")
            break
        return path.resolve() if path.is_symlink() else path
    except (OSError, RuntimeError) as error:  # RuntimeError: a loop of links before Python 3.13
        raise TargetUnusable(f"{url!r} names no {kind}: {error}") from error


def _mode(path: Path) -> int | None:
    """Give what a path is; None where nothing is there, or something above it is no folder."""
    with suppress(FileNotFoundError, NotADirectoryError):
        return path.stat().st_mode
    return None
