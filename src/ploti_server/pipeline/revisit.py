"""Asks the matching agent late about records that earlier versions delivered as delete and add (D4.11)."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from ploti.contract.files import RECORD_ID
from ploti_server.domain.datasets import Dataset
from ploti_server.domain.evidence import Evidence
from ploti_server.domain.matching import KeyFacts, Side, own_types, plan_matching
from ploti_server.domain.replacements import ReplacementRefused
from ploti_server.domain.versions import Version
from ploti_server.pipeline.ask import ask
from ploti_server.pipeline.find import NO_SCORE, Found, Search
from ploti_server.pipeline.follow import is_kept, sent_versions
from ploti_server.pipeline.trace import current_ids, open_ledger
from ploti_server.ports import Judgement, Pair, Ports, Tables, Unanswered
from ploti_server.rows import late, match
from ploti_server.rows.match import ROW
from ploti_server.rows.sql import columns_of


@dataclass(frozen=True)
class Find:
    """A record that `version` delivered as a delete of `old_id` and an add; `record_id` is what it carries now."""

    version: int
    old_id: str
    record_id: str
    confidence: float
    explanation: str | None


def revisit(ports: Ports, dataset_id: str) -> tuple[Find, ...]:
    """Judge the deletes and adds of every version whose files are kept; gives what one record was after all.

    Raises `ReplacementRefused` where nobody judges the dataset, or its agent does not answer at once.
    """
    with ports.store.read() as records:
        dataset = records.catalog.dataset(dataset_id)
        sent = sent_versions(records, dataset_id)
    if dataset is None or not ports.agent.judges(dataset):
        raise ReplacementRefused(f"nobody judges the records of {dataset_id}: give it a matching agent in the catalog")
    numbered = {version.number: version for version in sent}
    finds: list[Find] = []
    for version in sent:
        base = numbered.get(version.base or 0)
        if base is not None and all(is_kept(ports, one) for one in (base, version)):
            finds += _found_in(ports, dataset, sent, base, version)
    return tuple(finds)


def _found_in(ports: Ports, dataset: Dataset, sent: tuple[Version, ...], base: Version, version: Version) -> list[Find]:
    judge = _Judge(ports, dataset)
    with open_ledger(ports, sent) as tables:
        tables.keep("late_old", late.gone_since(version.number))
        tables.keep("late_ids", late.come_with(version.number))
        search = Search(tables, dataset, _side(version), _side(base), plan_matching(_side(base), _side(version)))
        left = {name: search.count(name) for name in ("late_old", "late_ids")}
        if not all(left.values()):
            return []
        _open(ports, tables, base, version)
        found = Found(KeyFacts(), "late_new", "late_old", left["late_ids"], left["late_old"])
        asked = ask(search, _with_kept(found), judge)
        if not isinstance(asked, Found) or not asked.by["agent"]:
            return []
        pairs = [row for batch in tables.query(late.found()) for row in batch.to_pylist()]
        now = current_ids(tables, [pair["_come"] for pair in pairs])
    return [
        Find(version.number, pair["_gone"], record_id, pair["_score"], judge.why.get(pair["_gone"]))
        for pair in pairs
        if (record_id := now[pair["_come"]]) is not None
    ]


def _with_kept(found: Found) -> Found:
    return Found(
        found.keys,
        found.left_new,
        found.left_old,
        found.new_count,
        found.old_count,
        compared=(late.kept_records(NO_SCORE),),
    )


def _side(version: Version) -> Side:
    return Side(version.schema, version.row_count, version.facts["nulls"], version.facts["singles"])


def _open(ports: Ports, tables: Tables, base: Version, version: Version) -> None:
    """Leave the tables that `ask` reads: both versions' rows, and those that are asked about as left over."""
    for name, one in (("old_files", base), ("new_files", version)):
        tables.add_files(name, [ports.files.local(f"{one.folder}/{part.path}") for part in one.files_of("snapshot")])
    names = tuple(own_types(version.schema))
    tables.define("old", f"SELECT {columns_of('o', (RECORD_ID, *own_types(base.schema)))} FROM old_files o")
    tables.keep("new_rows", late.numbered_rows(names))
    tables.define("new", f"SELECT {columns_of('n', (ROW, *names))} FROM new_rows n")
    tables.keep("late_new", late.rows_of_ids("SELECT i.* FROM late_ids i"))
    tables.define("touched_old", "SELECT o.* FROM old o")
    tables.define("touched_new", "SELECT n.* FROM new n")
    tables.define("left_old_rows", match.rows_of("old", RECORD_ID, "late_old"))
    tables.define("left_new_rows", match.rows_of("new", ROW, "late_new"))


@dataclass
class _Judge:
    """Asks a dataset's agent, once, and keeps why it held two records for one."""

    ports: Ports
    dataset: Dataset
    why: dict[str, str] = field(default_factory=dict)

    def __call__(self, pairs: Sequence[Pair], evidence: Evidence) -> Sequence[Judgement]:
        try:
            judgements = self.ports.agent.judge(self.dataset, pairs, evidence)
        except Unanswered as trouble:
            raise ReplacementRefused(f"the matching agent cannot answer now: {trouble}") from trouble
        if judgements is None:
            told = f"the matching agent of {self.dataset.id} answers later only: replace ids with `ids replace --map`"
            raise ReplacementRefused(told)
        best = sorted((j for j in judgements if j.same), key=lambda judgement: judgement.confidence)
        self.why |= {j.pair_id.partition("-")[0]: j.explanation for j in best if j.explanation}
        return judgements
