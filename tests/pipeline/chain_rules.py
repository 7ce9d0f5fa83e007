"""What must hold of any chain of versions, checked from the files and the log alone (I3, I4, I5, I7, I10).

Plain Python over what pyarrow and shapely read; nothing of the publisher is imported. Where a rule depends on what the
source held, it is told the source's own text.
"""

import struct
from collections import Counter, defaultdict
from copy import copy
from dataclasses import dataclass, field
from datetime import UTC, date, datetime

import pyarrow.parquet as pq
import shapely
from tests.e2e.independent import PublishedVersion, folders

SHAPE = "wkt"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
READ = {
    "string": str,
    "integer": int,
    "number": lambda text: float(text) + 0.0,
    "boolean": lambda text: {"true": True, "false": False}[text],
    "date": date.fromisoformat,
    "timestamp": lambda text: datetime.fromisoformat(text.replace("Z", "+00:00")),
}


def canonical(value, type_):
    """A value as record ids and the ledger know it (D5.6)."""
    if type_ == "number":
        return str(struct.unpack(">q", struct.pack(">d", value))[0])
    if type_ == "boolean":
        return "1" if value else "0"
    if type_ == "date":
        return str((value - EPOCH.date()).days)
    if type_ == "timestamp":
        since = value - EPOCH
        return str((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds)
    return str(sorted(corners(shapely.from_wkb(value)))) if type_ == "geometry" else str(value)


def corners(shape):
    """The places that a shape is made of, wherever its ring begins and whichever way it turns (D3.4)."""
    return frozenset(tuple(pair) for pair in shapely.get_coordinates(shape).tolist())


def about(shape):
    """The same places, far coarser than the tolerance and far finer than a move (D3.4)."""
    return frozenset((round(x, 6), round(y, 6)) for x, y in corners(shape))


@dataclass
class Seen:
    """A sent version as the file store has it: rows by record id with all own columns, and how each is described."""

    published: PublishedVersion
    number: int = 0
    rows: dict = field(default_factory=dict)
    types: dict = field(default_factory=dict)
    volatile: frozenset = frozenset()
    key: tuple = ()

    def __post_init__(self):
        manifest, schema = self.published.manifest, self.published.schema
        self.number = manifest["version"]
        self.types = {c["name"]: (c["type"], c.get("geometryType")) for c in schema["columns"]}
        self.volatile = frozenset(manifest["volatileColumns"])
        self.key = tuple(schema["keyColumns"])
        for row in self.published.table("snapshot").to_pylist():
            assert row["_ploti_version"] == self.number
            assert row["_ploti_dataset_id"] == manifest["datasetId"]
            id_ = row["_ploti_record_id"]
            assert id_ not in self.rows, "a record id stands once in a snapshot"
            self.rows[id_] = {name: row[name] for name in self.types}
        assert len(self.rows) == manifest["rowCount"]

    @property
    def described(self):
        return {column["name"]: column for column in self.published.schema["columns"]}

    def renamed(self, moved):
        """The records that a map carries over, by their new ids."""
        other = copy(self)
        other.rows = {moved[id_]: row for id_, row in self.rows.items() if id_ in moved}
        return other

    def text(self, id_, names):
        """Named values that are not null, as the ledger knows them."""
        row = self.rows[id_]
        return tuple((n, canonical(row[n], self.types[n][0])) for n in names if row[n] is not None)

    @property
    def firm(self):
        return sorted(set(self.types) - self.volatile)

    def content(self, id_):
        return self.text(id_, self.firm)

    def usable_keys(self, names=None):
        """Ids by a key that is whole and unique here."""
        names = self.key if names is None else names
        found = defaultdict(list)
        for id_ in self.rows if names else ():
            key = self.text(id_, names)
            if len(key) == len(names):
                found[key].append(id_)
        return {key: ids[0] for key, ids in found.items() if len(ids) == 1}


@dataclass
class Gone:
    """A record that no version has any more: by what it was known last, and which version lacked it first."""

    key: tuple | None
    content: tuple
    since: int
    replaced: bool = False


class Chain:
    """Follows one dataset's log event by event."""

    def __init__(self, files, dataset_id, volatile=()):
        self.files, self.dataset_id, self.volatile = files, dataset_id, set(volatile)
        self.read, self.pending, self.known = 0, None, []
        self.sent, self.again, self.delayed = [], set(), []
        self.gone, self.ever, self.ledger = {}, set(), {}
        self.firsts = {}

    @property
    def last(self):
        return self.sent[-1] if self.sent else None

    def taken_back(self, number):
        """Note that a sent version was released again."""
        assert number == self.last.number
        self.again.add(number)

    def look(self, events, states, current, held):
        """Follow the log to its end; `states` are the source's own by version."""
        for number, type_, data in events[self.read :]:
            self.read += 1
            assert number == self.read, "numbers have no gap (I2)"
            self._event(type_.rpartition(".")[2], data, states)
        assert self.pending is None, "schema_changed is followed by its version's event"
        standing = [seen.number for seen in self.sent if seen.number not in self.again]
        assert current == (standing[-1] if standing else None), "current is the newest that was sent (I5)"
        assert len(held) <= 1
        assert not set(held) & {seen.number for seen in self.sent}
        if held:
            assert self.delayed, "a hold is told"

    def _event(self, type_, data, states):
        if type_ == "added":
            assert not self.sent
            assert data["version"] is None
            return
        if type_ == "delayed":
            assert data["version"] == self._current()
            self.delayed.append(data["reason"])
            return
        if type_ == "schema_changed":
            assert self.pending is None
            self.pending = data
            return
        assert type_ in ("updated", "resync_required"), type_
        told, self.pending = self.pending, None
        seen = Seen(PublishedVersion(folders(self.files, self.dataset_id)[data["version"]]))
        self._check_event(seen, type_, data, told)
        self._check_state(seen, states[seen.number])
        if self.sent:
            self._check_follows(seen, states[seen.number])
        self._remember(seen)

    def _current(self):
        standing = [seen.number for seen in self.sent if seen.number not in self.again]
        return standing[-1] if standing else None

    # events (I5, I10)

    def _check_event(self, seen, type_, data, told):
        manifest, before = seen.published.manifest, self.last
        seen.published.check_files()
        assert manifest["previousVersion"] == (before and before.number), "the chain has no hole (I5)"
        assert before is None or seen.number > before.number
        assert data["schemaVersion"] == manifest["schemaVersion"] == seen.published.schema["schemaVersion"]
        change = self._change(seen)
        assert (told is not None) == (change is not None)
        if told is not None:
            assert told["version"] == seen.number
            assert told["schemaVersion"] == manifest["schemaVersion"]
            self._check_change(told["schemaChange"], change)
        self._check_numbered(seen, change)
        reason = self._reason(seen, change)
        assert type_ == ("updated" if reason is None else "resync_required")
        assert manifest["resyncRequired"] == (reason is not None)
        assert (manifest["counts"] is None) == (reason is not None)
        if reason is None:
            assert (data["previousVersion"], data["counts"]) == (manifest["previousVersion"], manifest["counts"])
        else:
            assert data["reason"] == reason
            assert not seen.published.paths("changes") and not seen.published.paths("backfill")  # noqa: PT018

    def _change(self, seen):
        """What the schema changed since the version before, by the contract's words; None where nothing."""
        if self.last is None:
            return None
        old, new = self.last.described, seen.described
        kept = old.keys() & new.keys()
        change = {
            "added": {name for name in new if name not in old},
            "removed": {name for name in old if name not in new},
            "retyped": {name for name in kept if _retyped(self.last.types[name], seen.types[name])},
            "nullable": {name for name in kept if new[name]["nullable"] and not old[name]["nullable"]},
            "key": self.last.key != seen.key,
        }
        return change if any(change.values()) else None

    def _is_major(self, change):
        return bool(change and (change["removed"] or change["retyped"] or (change["key"] and self.last.key)))

    def _check_change(self, told, change):
        assert {column["name"] for column in told["added"]} == change["added"]
        assert set(told["removed"]) == change["removed"]
        assert {one["name"] for one in told["retyped"]} == change["retyped"]
        assert {one["name"] for one in told["nullabilityChanged"]} == change["nullable"]
        assert told["keyColumnsChanged"] == change["key"]
        assert told["kind"] == ("breaking" if self._is_major(change) else "additive")
        assert told["previousSchemaVersion"] == self.last.published.manifest["schemaVersion"]

    def _check_numbered(self, seen, change):
        version = seen.published.manifest["schemaVersion"]
        if self.last is None:
            assert version == "1.0"
        else:
            major, minor = map(int, self.last.published.manifest["schemaVersion"].split("."))
            if self._is_major(change):
                major, minor = major + 1, 0
            elif change is not None:
                minor += 1
            assert version == f"{major}.{minor}"
        assert seen.published.schema["firstVersion"] == self.firsts.setdefault(version, seen.number)

    def _reason(self, seen, change):
        """Why a version is a resync, the first that applies (page 003)."""
        unavailable = self.last is not None and self.last.number in self.again
        if seen.published.manifest["recordIdsChanged"]:
            return "record_ids_changed"
        if self.last is None:
            return "first_version"
        if change is None:
            return "previous_unavailable" if unavailable else None
        if self._is_major(change) or unavailable:
            return "key_columns_changed" if change["key"] else "schema_changed"
        return None

    # what the source held

    def _check_state(self, seen, state):
        names = [name for name in state.columns if name != SHAPE]
        self.known += [name for name in names if name not in self.known]
        if "geometry" in seen.types:
            self.known += [] if "geometry" in self.known else ["geometry"]
            names = [*names, "geometry"]
        assert list(seen.types) == [name for name in self.known if name in names], "columns, in order (D2.8)"
        assert seen.key == (state.key if set(state.key) <= set(names) else ())
        assert _truth(state, seen.types, names) == _delivered(seen, names)
        for name, column in seen.described.items():
            nulls = any(row[name] is None for row in seen.rows.values())
            before = self.last.described.get(name) if self.last else None
            later = self.last is not None and before is None
            wide = nulls or later or (before is not None and before["nullable"])
            assert column["nullable"] == (wide or (before is None and not seen.rows))

    def check_nothing_new(self, state):
        """A check that made no version found what the last sent one has (D5.1)."""
        last = self.last
        if last is None:
            return
        names = [name for name in state.columns if name != SHAPE]
        names += ["geometry"] if SHAPE in state.columns else []
        assert set(last.types) == set(names)
        assert last.key == (state.key if set(state.key) <= set(names) else ())
        firm = [name for name in names if name not in self.volatile]
        assert _truth(state, last.types, firm) == _delivered(last, firm)

    def check_something_new(self):
        """A state that made a version at once differs from what was sent before it (D5.1)."""
        if len(self.sent) < 2:
            return
        before, seen = self.sent[-2:]
        if before.number in self.again or seen.published.manifest["recordIdsChanged"]:
            return
        firm = [name for name in seen.types if name not in self.volatile]
        same_schema = {n: before.described.get(n) for n in seen.described} == seen.described
        same_schema = same_schema and before.types.keys() == seen.types.keys() and before.key == seen.key
        assert not same_schema or _delivered(before, firm) != _delivered(seen, firm)

    # from version to version (I3, I7)

    def _check_follows(self, seen, state):
        before = self.last
        changes = None
        if not seen.published.manifest["resyncRequired"]:
            seen.published.check_follows(before.published)
            changes = {row["_ploti_record_id"]: row for row in seen.published.table("changes").to_pylist()}
            assert len(changes) == len(seen.published.table("changes")), "one row per record (D5.5)"
        moved = self._moved(before, seen)
        compared = _compared(before, seen)
        self._check_came_back(seen, moved)
        if seen.published.manifest["recordIdsChanged"]:
            self._check_kept(before.renamed(moved), seen, compared)
            return
        kept = self._check_kept(before, seen, compared)
        self._check_returned(seen, state, kept)
        if changes is not None:
            _check_changes(before, seen, changes, compared)

    def _moved(self, before, seen):
        """Which id each carried record has now; with an id map that is what the map says (D4.12)."""
        table = seen.published.table("id-map").to_pylist() if seen.published.paths("id-map") else None
        assert (table is not None) == seen.published.manifest["recordIdsChanged"]
        if table is None:
            return {id_: id_ for id_ in before.rows}
        moved = {row["_ploti_previous_record_id"]: row["_ploti_record_id"] for row in table}
        assert len(moved) == len(set(moved.values())) == len(table), "the map is one to one"
        assert moved.keys() <= before.rows.keys()
        assert set(moved.values()) <= seen.rows.keys()
        lost = before.rows.keys() - moved.keys()
        assert not lost & seen.rows.keys(), "what is carried over stands in the map"
        for id_, now in moved.items():
            if id_ != now:
                assert now not in self.ever, "an id is never used twice"
        return moved

    def _check_came_back(self, seen, moved):
        """An id that was gone names again only what it named before (I7)."""
        keys = {id_: key for key, id_ in seen.usable_keys().items()}
        for id_ in seen.rows.keys() - set(moved.values()):
            if id_ not in self.ever:
                continue
            assert id_ in self.gone, "an id of a record that is there is given to no other"
            gone = self.gone[id_]
            assert not gone.replaced, "a replaced id never comes back"
            if seen.key:
                assert keys.get(id_) == gone.key, "a returning id has its key"
            else:
                assert seen.content(id_) == gone.content, "a returning id has its content"

    def _check_kept(self, old, seen, compared):
        """An unchanged record keeps its id (D4.4); gives the ids that key or content carried."""
        kept = set()
        steady = [name for name in seen.key if _steady(old, seen, name)]
        if seen.key and len(steady) == len(seen.key):
            olds, news = old.usable_keys(seen.key), seen.usable_keys()
            for key in olds.keys() & news.keys():
                assert olds[key] == news[key], "a record of the same key keeps its id"
                kept.add(news[key])
        told_apart = any(_has_value(old, name) and _has_value(seen, name) for name in compared)
        if not told_apart and not (compared and _all_equal(old, seen, compared)):
            return kept
        if not seen.key:
            return kept | _kept_content(old.rows, seen.rows, compared)
        if len(steady) == len(seen.key):
            usable_old, usable_new = set(old.usable_keys(seen.key).values()), set(seen.usable_keys().values())
            loose_old = {id_: row for id_, row in old.rows.items() if id_ not in usable_old}
            loose_new = {id_: row for id_, row in seen.rows.items() if id_ not in usable_new}
            kept |= _kept_content(loose_old, loose_new, compared)
        _check_lone(old, seen, kept, [name for name in compared if name not in seen.key], self.gone)
        return kept

    def _check_returned(self, seen, state, kept):
        """A record that returns takes its old id back, by its key or by its whole content (D4.3, D4.4).

        A content is known by its hash, so noise in a shape makes it another, though the agent may deliver it as before.
        """
        if seen.key:
            last = {}
            for id_, gone in self.gone.items():
                if gone.key is not None and not gone.replaced:
                    last[gone.key] = min(last.get(gone.key, (0, "~")), (-gone.since, id_))
            for key, id_ in seen.usable_keys().items():
                if id_ not in kept and key in last:
                    assert id_ == last[key][1], "a key that returns has the id that it had last"
            return
        waiting = Counter(gone.content for gone in self.gone.values() if not gone.replaced)
        back = Counter(seen.content(id_) for id_ in seen.rows.keys() - kept if id_ in self.gone)
        taken = Counter(_delivered_row(seen.rows[id_], seen.firm) for id_ in kept)
        came = Counter((_exactly(row, seen), _row(row, seen.types, seen.firm)) for row in state.rows)
        for (content, about_it), rows in came.items():
            expected = min(max(0, rows - taken[about_it]), waiting[content])
            assert back[content] >= expected, "content that returns has its id back"

    def _remember(self, seen):
        before = self.last
        if before is not None:
            keys = {id_: key for key, id_ in before.usable_keys().items()}
            moved = self._moved(before, seen) if seen.published.manifest["recordIdsChanged"] else {}
            for id_ in before.rows.keys() - seen.rows.keys():
                self.gone[id_] = Gone(keys.get(id_), before.content(id_), seen.number, replaced=id_ in moved)
        for id_ in seen.rows:
            self.gone.pop(id_, None)
        self.ever |= seen.rows.keys()
        self.sent.append(seen)
        self._check_ledger(seen)

    def _check_ledger(self, seen):
        """The ledger tells of every id that was ever sent, and of no other (D4.3)."""
        for path in sorted(seen.published.folder.glob("ledger/*.parquet")):
            for entry in pq.read_table(path, partitioning=None).to_pylist():
                assert entry["version"] == seen.number
                assert self.ledger.get(entry["_ploti_record_id"], {}).get("version") != seen.number, "one entry each"
                self.ledger[entry["_ploti_record_id"]] = entry
        assert self.ledger.keys() == self.ever
        for id_, entry in self.ledger.items():
            if id_ in seen.rows:
                assert entry["what"] == "current"
            else:
                assert entry["what"] == ("replaced_by" if self.gone[id_].replaced else "removed")


def _retyped(old, new):
    kinds_known = None not in (old[1], new[1])
    return old[0] != new[0] or (kinds_known and old[1] != new[1])


def _steady(old, new, name):
    return name in old.types and name in new.types and not _retyped(old.types[name], new.types[name])


def _has_value(seen, name):
    return any(row[name] is not None for row in seen.rows.values())


def _compared(old, new):
    """Columns of both versions but volatile ones, retyped ones, and those of one value in every row (D4.5)."""
    firm = [n for n in new.types if _steady(old, new, n) and n not in old.volatile | new.volatile]
    if len(old.rows) < 2 or len(new.rows) < 2:
        return firm
    single = [n for n in firm if n != "geometry" and _is_single(old, n) and _is_single(new, n)]
    compared = [n for n in firm if n not in single]
    moved = [n for n in single if _any(old)[n] != _any(new)[n]]
    still = [n for n in single if n not in moved]
    told_apart = any(_has_value(old, n) and _has_value(new, n) for n in compared)
    if not told_apart and (still == firm or any(_has_value(new, n) for n in still)):
        return [n for n in firm if n not in moved]
    return compared


def _any(seen):
    return next(iter(seen.rows.values()))


def _all_equal(old, new, names):
    return len({tuple(row[name] for name in names) for seen in (old, new) for row in seen.rows.values()}) == 1


def _is_single(seen, name):
    return len({row[name] for row in seen.rows.values()}) == 1


def _truth(state, types, names):
    return Counter(_row(row, types, names) for row in state.rows)


def _row(row, types, names):
    return tuple(_value(row, name, types[name][0]) for name in names)


def _value(row, name, type_):
    if name == "geometry":
        return about(shapely.from_wkt(row[SHAPE])) if row[SHAPE] else None
    return READ[type_](row[name]) if row[name] else None


def _exactly(row, seen):
    """A row of the source as the ledger would know it, its shape with all its noise."""
    values = dict(zip(seen.firm, _row(row, seen.types, seen.firm), strict=True))
    if values.get("geometry"):
        values["geometry"] = shapely.to_wkb(shapely.from_wkt(row[SHAPE]))
    return tuple((n, canonical(value, seen.types[n][0])) for n, value in values.items() if value is not None)


def _delivered(seen, names):
    return Counter(_delivered_row(row, names) for row in seen.rows.values())


def _delivered_row(row, names):
    return tuple(about(shapely.from_wkb(row[n])) if n == "geometry" and row[n] is not None else row[n] for n in names)


def _kept_content(old, new, compared):
    """Of equal contents as many keep their ids as both sides have; gives the ids."""
    contents = {"old": defaultdict(set), "new": defaultdict(set)}
    for side, rows in (("old", old), ("new", new)):
        for id_, row in rows.items():
            contents[side][tuple(row[name] for name in compared)].add(id_)
    kept = set()
    for content in contents["old"].keys() & contents["new"].keys():
        had, has = contents["old"][content], contents["new"][content]
        assert len(had & has) == min(len(had), len(has)), "an unchanged record keeps its id (I7)"
        kept |= had & has
    return kept


def _check_lone(old, new, kept, compared, gone):
    """Where one left-over old and one new record alone have the same content, it is one record (D4.4)."""
    old_left = {id_: row for id_, row in old.rows.items() if id_ not in kept}
    new_left = {id_: row for id_, row in new.rows.items() if id_ not in kept and id_ not in gone}

    def by_content(rows):
        found = defaultdict(list)
        for id_, row in rows.items():
            found[tuple(row[name] for name in compared)].append(id_)
        return found

    olds, news = by_content(old_left), by_content(new_left)
    for content in olds.keys() & news.keys():
        if len(olds[content]) == len(news[content]) == 1 and any(value is not None for value in content):
            assert olds[content] == news[content], "one record renumbered keeps its id"


def _check_changes(old, new, changes, compared):
    """What a changed row says of itself is so; what no row tells of did not change (D4.5)."""
    for id_ in old.rows.keys() & new.rows.keys():
        differ = {name for name in compared if old.rows[id_][name] != new.rows[id_][name]}
        change = changes.get(id_)
        assert (change is not None) == bool(differ)
        if change is None:
            continue
        assert change["_ploti_change"] == "changed"
        assert set(change["_ploti_changed_columns"]) == differ
        how, score = change["_ploti_match"], change["_ploti_match_score"]
        assert (score is not None) == (how == "agent")
        if how == "key":
            assert not differ & set(new.key)
        elif how == "content":
            assert differ <= set(new.key)
        else:
            assert how == "agent"
            assert 0.85 <= score <= 1
    for row in changes.values():
        if row["_ploti_change"] != "changed":
            assert row["_ploti_changed_columns"] is row["_ploti_match"] is row["_ploti_match_score"] is None
