"""Real histories in which staff replace ids and release versions again between the states (I3, I5, I7)."""

import random

import pytest
from tests.e2e.serving import DEMO_NAMES, Publisher, states_of

from ploti_server.domain.replacements import Replacement
from ploti_server.domain.versions import VersionStatus
from ploti_server.pipeline.act import release_again, replace_ids
from ploti_server.pipeline.release import release_held
from ploti_server.worker import work_through

pytestmark = pytest.mark.goals
HISTORIES = (
    *DEMO_NAMES, "sa_building_permits", "vt_rutland_zoning", "toronto_short_term_rentals", "toronto_awarded_contracts",
    "calfire_incidents",
)  # fmt: skip


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", HISTORIES)
def test_ids_survive_whatever_staff_do_between_the_states(name, seed, tmp_path):
    chance = random.Random(seed)
    publisher = Publisher(tmp_path / "home", (name,))
    acts = {"all": 0, "named": 0, "again": 0, "none": 0}
    last = None
    for state in states_of(name):
        last = _follow(publisher, name, last, publisher.publish(name, state))
        act = chance.choice(sorted(acts)) if last else "none"
        acts[act] += 1
        if act == "all":
            last = _replaced(publisher, name, last, Replacement())
        elif act == "named":
            held = sorted(publisher.published(name, last).rows())
            if not held:
                continue
            named = dict.fromkeys(chance.sample(held, min(len(held), 5)))
            last = _replaced(publisher, name, last, Replacement(named))
        elif act == "again":
            last = _again(publisher, name, last)
    print(f"{name}: {acts}")


def _follow(publisher, name, last, number):
    """Check that a version follows from the one before; gives the newest number."""
    if number is None:
        return last
    version = publisher.published(name, number)
    version.check_files()
    assert version.manifest["previousVersion"] == last
    if last is not None and not version.manifest["resyncRequired"]:
        version.check_follows(publisher.published(name, last))
    return number


def _replaced(publisher, name, last, replacement):
    number = _build(publisher, name, replace_ids(publisher.ports, f"ds_{name}", replacement))
    if number == last:
        assert not publisher.published(name, last).rows()
        return last
    old, new = publisher.published(name, last), publisher.published(name, number)
    _follow(publisher, name, last, number)
    rows = new.table("id-map").to_pylist()
    moved = {row["_ploti_previous_record_id"]: row["_ploti_record_id"] for row in rows}
    assert len(moved) == len(set(moved.values())) == len(rows)
    assert moved.keys() == old.rows().keys()
    assert {moved[id_]: row for id_, row in old.rows().items()} == new.rows()
    changed = {id_ for id_, now in moved.items() if id_ != now}
    assert changed == (moved.keys() if replacement.named is None else replacement.named.keys())
    return number


def _again(publisher, name, last):
    number = _build(publisher, name, release_again(publisher.ports, f"ds_{name}", last))
    _follow(publisher, name, last, number)
    assert publisher.published(name, number).rows() == publisher.published(name, last).rows()
    assert publisher.published(name, number).manifest["resyncRequired"]
    with publisher.ports.store.read() as records:
        assert records.versions.get(f"ds_{name}", last).status is VersionStatus.RELEASED_AGAIN
    return number


def _build(publisher, name, checks):
    for check in checks:
        done = work_through(publisher.ports, publisher.owner, check.id)
        if done.outcome == "held":
            return release_held(publisher.ports, f"ds_{name}").number
    return done.version
