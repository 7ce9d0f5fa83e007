"""The same history in gives the same ids, changes and bytes out, whatever the machine is like (D4.1, D5.4, G13)."""

import csv
import io
import json
import os
import random
import subprocess
import sys

import pytest
from tests.e2e.serving import REPO, source_of, states_of

CHOSEN = {
    "fl_airports": (1, 2, 3, 6, 12),
    "fl_counties": (1, 2, 3, 4),
    "fl_courts": (3, 4, 5, 8),
    "fl_places": (1, 2, 3, 6),
    "sa_building_permits": (1, 2),
}
"""States by their number: keyed points, polygons, nested JSON, no key, and projected points in a larger file."""

TWINS_CATALOG = """
topics: [{id: places-boundaries, name: Places}]
datasets:
  - {id: ds_twins, title: Equal rows, topic: places-boundaries, source: {kind: file, url: twins/latest}}
  - id: ds_numbered
    title: Equal rows with row numbers
    topic: places-boundaries
    source: {kind: file, url: numbered/latest}
    volatile: [row]
"""
TWINS = (
    ("a,1", "b,2", "a,1", "c,3", "c,3", "c,3"),
    ("a,1", "b,2", "c,3", "c,3", "d,4", "d,4"),
    ("a,1", "a,1", "a,1", "c,3", "d,5", "d,4", "d,4", "e,"),
)
"""Rows of three states without a key: equal ones go, come back, and differ."""

VARIANTS = {
    "again": {},
    "rows in another order under another hash seed": {"rows": True, "environment": {"PYTHONHASHSEED": "4242"}},
    "on another day in another zone and locale": {
        "days": 400,
        "environment": {"TZ": "Pacific/Kiritimati", "LC_ALL": "tr_TR.UTF-8", "LANG": "tr_TR.UTF-8"},
    },
    "four threads in another home": {
        "threads": 4,
        "home": "a home's [other] föld%er *",
        "environment": {"OMP_NUM_THREADS": "4", "ARROW_IO_THREADS": "8"},
    },
    "all of it at once in the plain C locale": {
        "rows": True,
        "days": -3000,
        "threads": 3,
        "home": "x" * 100,
        "environment": {
            "PYTHONHASHSEED": "99", "TZ": "America/St_Johns", "LC_ALL": "C", "PYTHONUTF8": "0",
            "PYTHONCOERCECLOCALE": "0", "OMP_NUM_THREADS": "3",
        },
    },
}  # fmt: skip
BASE = {"PYTHONHASHSEED": "0", "TZ": "UTC", "LC_ALL": "C.UTF-8", "OMP_NUM_THREADS": "1"}
TIMEOUT_SECONDS = 240


def imported(folder, rewrite, *, days=0, threads=1, environment=None, home="home", rows=False):
    """Import all histories in a process of their own; gives what each version is made of, by dataset."""
    folder.mkdir(parents=True, exist_ok=True)
    order = {"catalogs": _orders(folder, rewrite), "days": days, "threads": threads}
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("LC_", "LANG", "PLOTI_"))}
    done = subprocess.run(
        [sys.executable, "-m", "tests.e2e.imported", folder / home],
        cwd=REPO, env=kept | BASE | (environment or {}), input=json.dumps(order),
        capture_output=True, text=True, encoding="utf-8", check=False, timeout=TIMEOUT_SECONDS,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def _orders(folder, rewrite):
    """The histories by catalog: real ones, then the equal rows."""
    by_catalog = {}
    for name, numbers in CHOSEN.items():
        states = states_of(name)
        chosen = [states[number - 1] for number in numbers]
        written = [(_rewritten(folder / name, state.file, rewrite), state.fetched_at.isoformat()) for state in chosen]
        by_catalog.setdefault(str(source_of(name) / "catalog.yaml"), {})[f"ds_{name}"] = written
    twins = folder / "twins.yaml"
    twins.write_text(TWINS_CATALOG, encoding="utf-8")
    by_catalog[str(twins)] = {}
    for name in ("twins", "numbered"):
        (folder / name).mkdir(exist_ok=True)
        for number, rows in enumerate(TWINS, 1):
            source = folder / name / f"{number}.source"
            numbered = [f"{at},{row}" if name == "numbered" else row for at, row in enumerate(rows, 1)]
            source.write_text("\n".join(["row,x,y" if name == "numbered" else "x,y", *numbered]) + "\n")
            file = _rewritten(folder / name / "states", source, rewrite)
            by_catalog[str(twins)].setdefault(f"ds_{name}", []).append((file, f"2024-01-0{number}T00:00:00+00:00"))
    return by_catalog


def _rewritten(folder, source, rewrite):
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / source.name
    file.write_bytes(rewrite(source.read_bytes()))
    return str(file)


def as_it_is(content):
    return content


def rows_shuffled(content):
    """The same records in another order: lines of a CSV, members of a JSON list."""
    if content[:1] not in b"[{":
        header, *lines = content.splitlines(keepends=True)
        assert len(lines) + 1 == len(list(csv.reader(io.StringIO(content.decode(), newline=""))))
        lines[-1] = lines[-1].rstrip(b"\r\n") + b"\n"
        return header + b"".join(_shuffled(lines))
    document = json.loads(content)
    if isinstance(document, list):
        return json.dumps(_shuffled(document)).encode()
    return json.dumps(document | {"features": _shuffled(document["features"])}).encode()


def columns_shuffled(content):
    """The same records with their columns, or members, in another order."""
    if content[:1] not in b"[{":
        rows = list(csv.reader(io.StringIO(content.decode(), newline="")))
        order = _shuffled(list(range(len(rows[0]))))
        out = io.StringIO()
        csv.writer(out).writerows([row[at] for at in order] for row in rows)
        return out.getvalue().encode()
    return json.dumps(_members_shuffled(json.loads(content))).encode()


def _members_shuffled(value):
    if isinstance(value, dict):
        return {name: _members_shuffled(value[name]) for name in _shuffled(sorted(value))}
    return [_members_shuffled(each) for each in value] if isinstance(value, list) else value


def _shuffled(values):
    values = list(values)
    random.Random(20240607).shuffle(values)
    return values


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return imported(tmp_path_factory.mktemp("base"), as_it_is)


def test_the_histories_hold_what_the_comparison_needs(base):
    versions = {dataset_id: [v for v in found if "files" in v] for dataset_id, found in base.items()}
    assert {dataset_id: len(found) for dataset_id, found in versions.items()} == {
        "ds_fl_airports": 4, "ds_fl_counties": 4, "ds_fl_courts": 4, "ds_fl_places": 4, "ds_sa_building_permits": 2,
        "ds_twins": 3, "ds_numbered": 3,
    }  # fmt: skip
    paths = [path for found in versions.values() for version in found for path in version["files"]]
    kinds = {path.partition("/")[0] for path in paths if path.endswith(".parquet")}
    assert kinds == {"snapshot", "changes", "backfill", "ledger"}
    held = [version for found in versions.values() for version in found if version["outcome"] == "held"]
    assert held
    for name in ("ds_twins", "ds_numbered"):
        assert [len(version["ids"]) for version in versions[name]] == [6, 6, 8]
        assert [version["counts"] for version in versions[name]][1:] == [
            {"added": 2, "changed": 0, "removed": 2},
            {"added": 4, "changed": 0, "removed": 2},
        ]


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_same_history_gives_the_same_bytes(base, tmp_path, variant):
    given = VARIANTS[variant]
    found = imported(tmp_path, rows_shuffled if given.get("rows") else as_it_is, **given)
    for dataset_id, versions in base.items():
        for at, (version, due) in enumerate(zip(found[dataset_id], versions, strict=True)):
            for part in due:
                assert version[part] == due[part], (dataset_id, at, part)


def test_columns_in_another_order_give_the_same_ids_changes_and_digests(base, tmp_path):
    found = imported(tmp_path, columns_shuffled)
    for dataset_id, versions in base.items():
        for at, (version, due) in enumerate(zip(found[dataset_id], versions, strict=True)):
            for part in due.keys() - {"files", "facts"}:
                assert version[part] == due[part], (dataset_id, at, part)
