"""`ploti-server demo`: the main job on real records, offline."""

import json
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console

from ploti_server.cli.printing import CommandRefused
from ploti_server.demo.story import play
from ploti_server.demo.subscriber import DemoFailed


def demo(
    *,
    folder: Annotated[Path, Parameter(help="Where to play it; an earlier demo there is replaced.")] = Path(
        "ploti-demo"
    ),
    port: Annotated[int | None, Parameter(help="The port to serve on; any free one by default.")] = None,
    as_json: Annotated[bool, Parameter(name="--json", negative="", help="Print only the summary, as JSON.")] = False,
) -> int:
    """Publish four real Florida histories, follow them with `ploti sync` into a DuckDB file, and prove it equal."""
    console = Console(highlight=False, quiet=as_json)
    try:
        summary = play(folder.absolute(), console, port)
    except DemoFailed as failed:
        raise CommandRefused(str(failed)) from failed
    if as_json:
        print(json.dumps(summary, indent=2))
    return 0
