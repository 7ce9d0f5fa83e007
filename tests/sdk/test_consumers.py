"""The suite for consumers: the example passes every story, and consumers that break a rule are found."""

import importlib.util
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ploti
from ploti.testing.consumers import STORIES, check_consumer

EXAMPLE = Path(__file__).parents[2] / "examples" / "follow_events.py"
SPEC = importlib.util.spec_from_file_location("follow_events", EXAMPLE)
example = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(example)
ONCE = ploti.Retries(attempts=2, first_wait=0, longest_wait=0)


class Parquets:
    """The example, or a worse one, with a folder as its store."""

    def __init__(self, folder, follower):
        self.folder, self.follower = folder, follower

    def run(self, url, api_key, subscription_id):
        with ploti.Client(api_key, url, retries=ONCE) as client:
            self.follower(client, subscription_id, self.folder).run()

    def rows(self, dataset_id):
        path = self.folder / f"{dataset_id}.parquet"
        if not path.exists():
            return None
        lines = pq.ParquetFile(path).read().to_pylist()
        return {
            line["_ploti_record_id"]: {name: value for name, value in line.items() if not name.startswith("_ploti_")}
            for line in lines
        }


QUICK = ("leaves_and_returns", "expired_cursor")
"""Those that each run of the tests tells; all of them are a goal."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.goals) for name in STORIES]
)
def test_the_example_keeps_every_rule(name, tmp_path):
    check_consumer(STORIES[name], Parquets(tmp_path / "held", example.Follower))


class NeverDeletes(example.Follower):
    def apply(self, dataset, version, changes):
        table = self.table(dataset)
        put = changes.filter(pa.compute.equal(changes["_ploti_op"], "upsert")).select(table.column_names)
        kept = table.filter(pa.compute.invert(pa.compute.is_in(table[example.ID], put[example.ID])))
        self.write(dataset, version, pa.concat_tables([kept, put.cast(table.schema)]))


class AppliesAnything(example.Follower):
    def update(self, dataset, version, *, follows):
        super().update(dataset, version, follows=True)


class LoadsOnTop(example.Follower):
    def load(self, dataset, version):
        table = self.versions.read(dataset, version)
        if self.held(dataset) is not None:
            old = self.table(dataset)
            old = old.filter(pa.compute.invert(pa.compute.is_in(old[example.ID], table[example.ID])))
            table = pa.concat_tables([table, old], promote_options="permissive")
        self.write(dataset, version, table)


class ForgetsTrouble(example.Follower):
    def store(self, *, cursor=None, behind=None):
        super().store(cursor=cursor)


class StopsAtTrouble(example.Follower):
    def attempt(self, dataset, step):
        step()


class IgnoresConstants(example.Follower):
    def constants(self, dataset, version):
        return {}


WORSE = [
    (NeverDeletes, "changes"),
    (AppliesAnything, "another_previous"),
    (LoadsOnTop, "ids_replaced"),
    pytest.param(ForgetsTrouble, "rebuilding", marks=pytest.mark.goals),
    pytest.param(StopsAtTrouble, "refused_before_leaving", marks=pytest.mark.goals),
    pytest.param(IgnoresConstants, "constants_of_every_type", marks=pytest.mark.goals),
]


@pytest.mark.parametrize(("worse", "name"), WORSE)
def test_a_consumer_that_breaks_a_rule_is_found(worse, name, tmp_path):
    with pytest.raises((AssertionError, ploti.PlotiError)):
        check_consumer(STORIES[name], Parquets(tmp_path / "held", worse))
