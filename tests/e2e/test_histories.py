"""Every real history ends as `expected.json` beside it says, and every version follows from the one before."""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.e2e.independent import PublishedVersion, folders
from tests.empty_store import put_empty_home

from ploti_server.adapters.agents import NobodyJudges
from ploti_server.app import build_ports
from ploti_server.domain.catalog import parse_catalog
from ploti_server.domain.settings import Settings
from ploti_server.pipeline.check import take_state
from ploti_server.pipeline.history import history_states
from ploti_server.pipeline.release import release_held
from ploti_server.worker import new_owner, work_one

SHARED = Path(__file__).parents[2].parent / "shared"
HISTORIES = [
    (folder, dataset_id)
    for folder in (SHARED / "demo", SHARED / "data" / "main")
    for dataset_id in json.loads((folder / "expected.json").read_text())["datasets"]
]
NAMES = [dataset_id for _, dataset_id in HISTORIES]

BY_THE_DECISIONS = {
    ("ds_fl_counties", "003-2020-06-15.geojson"): ("released", []),
    ("ds_fl_counties", "004-2023-01-01.geojson"): ("held", ["schema_review"]),
}
"""Where `expected.json` is not what the decisions say, without releasing holds. State 003 of the counties holds a ring
of no area: repaired within its dimension (D3.2) the shape stays a MultiPolygon, so that nothing is retyped; the
expectation keeps a line beside the polygons, of another kind than in state 002. State 004 then loses the column that
003 brought."""

MATCHED_BY_THE_DECISIONS = {
    ("ds_toronto_short_term_rentals", "009-2024-12-28.csv"): {
        "counts": {"added": 2641, "changed": 136, "removed": 2238}, "contentMatched": 119,
    },
}  # fmt: skip
"""Registration STR-2305-GKTDVT, in the source until state 007, returns in 009: the ledger gives it its old id by key
(D4.3) before contents are compared (D4.4). The expectation, which knows no ledger, takes it for STR-2307-HKGHHX, which
leaves in 009 with the same content."""


@dataclass
class History:
    """One dataset's states, what they must end as, and a publisher of its own."""

    ports: object
    dataset_id: str
    folder: Path
    expected: dict

    def check_all(self, *, release: bool, extra=lambda checked: None):
        owner = new_owner()
        for state in history_states(str(self.folder), None, self.folder):
            check = take_state(self.ports, self.dataset_id, state)
            checked = work_one(self.ports, owner, check.id)
            version = self.version(checked.version)
            if release and checked.outcome == "held":
                version = release_held(self.ports, self.dataset_id)
            yield state.file.name, checked, version

    def version(self, number):
        with self.ports.store.read() as records:
            return number and records.versions.get(self.dataset_id, number)


@pytest.fixture
def history(request, tmp_path):
    source, dataset_id = request.param
    ports = build_ports(Settings.of(home=put_empty_home(tmp_path / "home")), agent=NobodyJudges())
    catalog = parse_catalog((source / "catalog.yaml").read_text(), source / "catalog.yaml")
    dataset = next(d for d in catalog.datasets if d.id == dataset_id)
    with ports.store.write() as records:
        records.catalog.put_topics(catalog.topics)
        records.catalog.put_dataset(dataset)
    expected = json.loads((source / "expected.json").read_text())["datasets"][dataset_id]
    return History(ports, dataset_id, source / dataset_id.removeprefix("ds_"), expected)


@pytest.mark.parametrize("history", HISTORIES, ids=NAMES, indirect=True)
def test_each_state_ends_as_expected_when_every_hold_is_released(history, tmp_path, record_property):
    told, published = [], []
    for (name, checked, version), expected in zip(
        history.check_all(release=True), history.expected["states"], strict=True
    ):
        facts = checked.facts
        told.append(
            {
                "file": name,
                "outcome": checked.outcome,
                "reasons": list(dict.fromkeys(hold["reason"] for hold in facts.get("holds", []))),
                "rows": facts.get("rows"),
                "schemaChange": _schema_change(checked, version),
                "schemaVersion": version.schema_version if version else None,
                "resync": None if checked.outcome in ("unchanged", "failed") else version.resync_reason is not None,
                "counts": _counts(checked, version),
                "contentMatched": facts.get("matched", {}).get("content"),
            }
        )
        due = expected["detail"] | expected | MATCHED_BY_THE_DECISIONS.get((history.dataset_id, name), {})
        assert told[-1] == {key: due.get(key) for key in told[-1]}
        if checked.outcome in ("released", "held"):
            published.append(version.number)
            if version.resync_reason is None:
                assert _moved_constants(history, version) == sorted(expected["detail"]["movedConstants"])
    followed = _check_chain(tmp_path / "home" / "files", history.dataset_id, published)
    record_property("figure", f"{history.dataset_id}: {followed} versions follow exactly from the one before")


def _schema_change(checked, version):
    if checked.outcome in ("unchanged", "failed"):
        return None
    if version.previous_version is None:
        return "FIRST"
    change = version.schema_change
    return change and {"breaking": "MAJOR", "additive": "MINOR"}[change.kind]


def _counts(checked, version):
    if checked.outcome in ("unchanged", "failed") or version.counts is None:
        return None
    return {"added": version.counts.added, "changed": version.counts.changed, "removed": version.counts.removed}


def _moved_constants(history, version):
    manifest = history.ports.files.local(f"{version.folder}/manifest.json")
    return sorted(json.loads(manifest.read_bytes())["constants"])


def _check_chain(files, dataset_id, numbers):
    versions = {number: PublishedVersion(folder) for number, folder in folders(files, dataset_id).items()}
    assert sorted(versions) == numbers
    followed = 0
    for before, number in zip([None, *numbers], numbers, strict=False):
        versions[number].check_files()
        if not versions[number].manifest["resyncRequired"]:
            versions[number].check_follows(versions[before])
            followed += 1
    return followed


@pytest.mark.parametrize("history", HISTORIES, ids=NAMES, indirect=True)
def test_each_state_ends_as_expected_when_no_hold_is_ended(history):
    for (name, checked, _), expected in zip(
        history.check_all(release=False), history.expected["no_release"], strict=True
    ):
        reasons = list(dict.fromkeys(hold["reason"] for hold in checked.facts.get("holds", [])))
        outcome, why = BY_THE_DECISIONS.get((history.dataset_id, name), (expected["outcome"], expected["reasons"]))
        assert (name, checked.outcome, reasons) == (expected["file"], outcome, why)
