"""`ploti-server demo` plays the main job on real histories, offline, as often as one likes, in its own folder only."""

import json
import subprocess

from tests.e2e.independent import PublishedVersion, SyncedTable, folders
from tests.e2e.serving import DEMO_NAMES, beside

DEMO_SECONDS = 600


def demo(folder, *more):
    return subprocess.run(
        [beside("ploti-server"), "demo", "--folder", folder, *more],
        capture_output=True, text=True, check=False, timeout=DEMO_SECONDS, cwd=folder.parent,
    )  # fmt: skip


def check_synced(folder, rows_by_dataset):
    """What the demo synced equals the newest version that it published."""
    for dataset_id, rows in rows_by_dataset.items():
        versions = folders(folder / "server" / "files", dataset_id)
        table = SyncedTable(folder / "florida.duckdb", dataset_id)
        table.check_equals(PublishedVersion(versions[max(versions)]))
        assert (table.rows.num_rows, table.state) == (rows, "ok")


def test_the_demo_publishes_and_syncs_what_it_promises_and_plays_again_in_its_folder(tmp_path):
    folder = tmp_path / "ploti-demo"
    first = demo(folder, "--json")
    assert first.returncode == 0, first.stderr
    summary = json.loads(first.stdout)
    assert summary["states"] >= 25
    assert summary["versions"] >= 25
    assert summary["minor"] >= 1
    assert summary["major"] >= 1
    assert summary["released_holds"] >= 1
    assert set(summary["rows"]) == {f"ds_{name}" for name in DEMO_NAMES}
    check_synced(folder, summary["rows"])

    again = demo(folder)
    assert again.returncode == 0, again.stderr
    assert f"{summary['states']} states, {summary['versions']} versions, " in again.stdout
    assert "every table equals its version" in again.stdout
    check_synced(folder, summary["rows"])


def test_the_demo_refuses_a_folder_that_is_not_its_own(tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "thesis.txt").write_text("years of work")
    refused = demo(folder)
    assert refused.returncode == 1
    (line,) = refused.stderr.strip().splitlines()
    assert str(folder) in line
    assert "--folder" in line
    assert refused.stdout == ""
    assert [file.name for file in folder.iterdir()] == ["thesis.txt"]
    assert (folder / "thesis.txt").read_text() == "years of work"
