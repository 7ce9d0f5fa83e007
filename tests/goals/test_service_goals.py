"""Readers of a log miss nothing, whoever writes, and the bench that shows it can see (D7.2)."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.goals


def test_no_reader_misses_an_event_and_a_sequence_is_caught():
    command = [sys.executable, "-m", "bench.gapless", "--seconds", "20"]
    repo = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=repo, capture_output=True, text=True, timeout=300, check=True)
    goals = [line for line in map(json.loads, done.stdout.splitlines()) if "goal" in line]
    assert [goal["met"] for goal in goals] == [True, True, True]
