"""What the operator's command prints on a terminal: tables that fit, whole values, nothing that steers it (D13)."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios

import pytest

from ploti_server.cli.printing import as_text

PRINT = """
from ploti_server.cli.printing import COMMON, show
show(COMMON, [{"dataset": "ds_orange_fl_building_permits", "state": "current", "why": None, "version": 12,
               "lastCheckedAt": "2026-09-05T06:30:00.000Z", "nextCheckBy": "2026-09-06T06:30:00.000Z"}])
show(COMMON, [{"permit": None, "read": "2026-09-05T06:30:00.000Z", "address": "123 North Orange Avenue, Orlando"}],
     whole=True)
show(COMMON, {"why": "until 2026-09-05T06:30:00.000Z"})
"""


def on_terminal(columns):
    """Run `PRINT` on a terminal of a set width; gives its lines."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    done = subprocess.Popen([sys.executable, "-c", PRINT], stdout=slave, env=environment | {"TERM": "xterm"})
    os.close(slave)
    printed = b""
    try:
        while block := os.read(master, 65536):
            printed += block
    except OSError:
        pass  # the terminal's end, once the program has ended
    os.close(master)
    assert done.wait(timeout=30) == 0
    return re.sub(r"\x1b\[[0-9;]*m", "", printed.decode()).split("\r\n")


def test_a_wide_terminal_gets_a_table_with_times_to_the_minute():
    heads, row, *_ = on_terminal(120)
    assert heads.split() == ["dataset", "state", "why", "version", "lastCheckedAt", "nextCheckBy"]
    assert row.split("  ")[0] == "ds_orange_fl_building_permits"
    assert row.rstrip().endswith("2026-09-05 06:30Z  2026-09-06 06:30Z")


def test_a_narrow_terminal_gets_a_line_for_each_fact_and_no_crumbs():
    assert on_terminal(60)[:5] == [
        "dataset: ds_orange_fl_building_permits",
        "state: current",
        "version: 12",
        "lastCheckedAt: 2026-09-05 06:30Z",
        "nextCheckBy: 2026-09-06 06:30Z",
    ]


def test_own_values_are_printed_whole_and_moments_are_short_everywhere_else():
    lines = on_terminal(40)
    assert lines[-6:-2] == [
        "permit: -", "read: 2026-09-05T06:30:00.000Z", "address: 123 North Orange Avenue, Orlando", "",
    ]  # fmt: skip
    assert lines[-2] == "why: until 2026-09-05 06:30Z"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        ((), "-"),
        (True, "yes"),
        (["a", None], "a, -"),
        ("two\nlines", "two lines"),
        ("\x1b[31mred", "\N{REPLACEMENT CHARACTER}[31mred"),
        ("\u202eabc", "\N{REPLACEMENT CHARACTER}abc"),
        ("[bold]Zürich", "[bold]Zürich"),
    ],
)
def test_a_value_for_a_person(value, text):
    assert as_text(value) == text
