"""An empty store on SQLite as a copy of one that was made once: making its tables anew takes ten times as long."""

import functools
import tempfile
from pathlib import Path

from ploti_server.adapters.store import open_store


@functools.cache
def _content():
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "store.sqlite"
        open_store(f"sqlite:///{file}").close()
        assert [found.name for found in Path(folder).iterdir()] == [file.name], "the file is whole once it is closed"
        return file.read_bytes()


def put_empty_store(file):
    """Put the file of an empty store where there is none; gives its address."""
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(_content())
    return f"sqlite:///{file}"


def put_empty_home(home):
    """Put a server's home folder with an empty store where it has none; gives the folder."""
    put_empty_store(home / "ploti.db")
    return home
