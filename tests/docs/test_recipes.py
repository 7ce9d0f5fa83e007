"""The recipes: each command in them is one that `ploti` takes, the exit codes are those it gives, the DAG is Python."""

import ast
import re
import shlex
from pathlib import Path

import pytest

from ploti.cli import DONE, REFUSED, STOPPED, WRONG_USAGE
from ploti.cli.command import app

TEXT = (Path(__file__).parents[2] / "docs" / "recipes.md").read_text("utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", TEXT, re.DOTALL)
COMMANDS = [
    found
    for _, block in BLOCKS
    for found in re.findall(r"(?:^|[/ \"])ploti ((?:sync|feeds)\b[^\n|>]*?)\s*(?:$|\"$|\",$|[>|])", block, re.MULTILINE)
]


@pytest.mark.parametrize("line", COMMANDS)
def test_each_command_is_one_that_ploti_takes(line):
    command, _, _ = app.parse_args(shlex.split(line.rstrip('",')), exit_on_error=False, print_error=False)[:3]
    assert callable(command)


def test_every_scheduler_is_there():
    assert [kind for kind, _ in BLOCKS] == ["cron", "ini", "ini", "python"]
    assert len(COMMANDS) >= 4
    ast.parse(BLOCKS[3][1])


def test_the_exit_codes_are_those_of_the_command():
    codes = [int(code) for code in re.findall(r"^\| (\d+) \|", TEXT, re.MULTILINE)]
    assert codes == [DONE, REFUSED, WRONG_USAGE, STOPPED]
