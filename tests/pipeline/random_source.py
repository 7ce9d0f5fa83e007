"""A source to which random things happen: its rows, columns, key and shapes, as text, drawn by Hypothesis.

Nothing here knows how the publisher reads or matches. A history is plain data, so that it shrinks and prints well.
"""

import csv
import io
import random
from dataclasses import dataclass, field

from hypothesis import strategies as st

VALUES = {
    "text": ("r", "s", 'Äß, "x"', "a longer text of words"),
    "whole": ("1", "2", "30"),
    "part": ("0.1", "2.5", "-7.25"),
    "day": ("0001-01-01", "2024-02-29", "2026-01-01"),
    "flag": ("true", "false"),
    "time": ("2026-01-01T01:02:03.000004Z", "1999-12-31T23:59:59Z"),
}
KINDS = dict(zip("abcdefgh", ("text", "whole", "part", "day", "flag", "time", "text", "text"), strict=True))
"""Columns that may come and go, with the values they begin with."""

SHAPE = "wkt"
VOLATILE = "read"
GRID = 0.01
WOBBLE = 2e-9
"""Degrees: moved shapes are a grid step apart, and a wobble is far within the tolerance (D3.4)."""


@dataclass(frozen=True)
class History:
    """What a history is made of; `steps` are acts on the source, then what staff do."""

    keyed: bool
    shapes: str | None
    volatile: bool
    agent: str
    stored: str
    twice: bool
    seed: int
    steps: tuple


ACTS = (
    *("add", "change", "remove", "split", "merge", "duplicate", "renumber", "move_shape", "go_back") * 3,
    *("blank", "move_constant", "break_constant", "wobble_shape", "turn_ring", "renumber_all", "add_column") * 2,
    "drop_column", "rename_column", "retype_column", "pin", "drop_key", "null_key", "empty", "nothing",
)  # fmt: skip
STAFF = ("nothing", "nothing", "nothing", "replace", "named", "again", "discard")
HOLD = ("release", "release", "release", "discard", "leave")


@st.composite
def histories(draw, keyed=None, shapes=None):
    """Draw a history of a few states; what is told is not drawn."""
    kinds = {None: [None, None, "point", "square"], True: ["point", "square"], False: [None]}
    act = st.tuples(st.sampled_from(ACTS), st.integers(0, 9_999))
    step = st.tuples(st.lists(act, min_size=1, max_size=4), st.sampled_from(HOLD), st.sampled_from(STAFF))
    return History(
        keyed=draw(st.booleans()) if keyed is None else keyed,
        shapes=draw(st.sampled_from(kinds[shapes])),
        volatile=draw(st.booleans()),
        agent=draw(st.sampled_from(["nobody", "built-in"])),
        stored=draw(st.sampled_from(["memory", "memory", "memory", "sqlite"])),
        twice=draw(st.sampled_from([True, False, False, False])),
        seed=draw(st.integers(0, 9_999)),
        steps=tuple(draw(st.lists(step, min_size=2, max_size=5))),
    )


@dataclass
class State:
    """What a source holds at one moment. `rows` have a text for each column, empty for none."""

    columns: list[str]
    rows: list[dict[str, str]]
    key: tuple[str, ...]

    def text(self, chance=None, known=()):
        """Write the state as CSV; by chance its rows, and the columns that are known already, in another order."""
        rows, columns = list(self.rows), list(self.columns)
        if chance is not None:
            chance.shuffle(rows)
            places = [at for at, name in enumerate(columns) if name in known]
            moved = chance.sample(places, len(places))
            for at, other in zip(places, moved, strict=True):
                columns[at] = self.columns[other]
        out = io.StringIO()
        writer = csv.DictWriter(out, columns, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
        return out.getvalue()


@dataclass
class Source:
    """A source of a history. Every act takes a chance of its own, so that leaving one out changes no other."""

    history: History
    columns: list[str] = field(default_factory=list)
    rows: list[dict[str, str]] = field(default_factory=list)
    key: tuple[str, ...] = ()
    constant: str = "c0"
    past: list[list[dict[str, str]]] = field(default_factory=list)
    made: int = 0

    def __post_init__(self):
        chance = random.Random(self.history.seed)
        shape = [SHAPE] if self.history.shapes else []
        volatile = [VOLATILE] if self.history.volatile else []
        self.columns = ["k", "m", "z", *chance.sample(sorted(KINDS), 3), *volatile, *shape]
        self.key = ("k",) if self.history.keyed else ()
        for _ in range(chance.randrange(2, 8)):
            self.add(chance)

    def state(self, number):
        """Give what the source holds now; a volatile column is new each time."""
        for at, row in enumerate(self.rows):
            row[VOLATILE] = f"{number}-{at % 3}"
        self.past.append([dict(row) for row in self.rows])
        return State(list(self.columns), [dict(row) for row in self.rows], self.key)

    def _one(self, chance):
        return chance.choice(self.rows) if self.rows else {}

    def _fresh_key(self):
        self.made += 1
        return str(100 + self.made)

    def _row(self, chance):
        row = {name: chance.choice(("", *VALUES[kind])) for name, kind in KINDS.items()}
        place = chance.randrange(12) * GRID
        return row | {
            "k": self._fresh_key(),
            "m": f"m{chance.randrange(4)}",
            "z": self.constant,
            SHAPE: self._at(place),
        }

    def _at(self, place, wobble=0.0):
        x, y = round(-80 + place, 6) + wobble, round(28 + place, 6) - wobble
        if self.history.shapes == "point":
            return f"POINT ({x!r} {y!r})"
        far_x, far_y = x + GRID / 2, y + GRID / 2
        corners = [(x, y), (far_x, y), (far_x, far_y), (x, far_y)]
        return _ring(corners)

    def add(self, chance):
        self.rows.append(self._row(chance))

    def change(self, chance):
        name = chance.choice(sorted(KINDS))
        self._one(chance)[name] = chance.choice(VALUES[KINDS[name]])

    def blank(self, chance):
        self._one(chance)[chance.choice([name for name in self.columns if name != "k"])] = ""

    def remove(self, chance):
        if self.rows:
            self.rows.pop(chance.randrange(len(self.rows)))

    def duplicate(self, chance):
        if self.rows:
            self.rows.append(dict(self._one(chance)))

    def renumber(self, chance):
        self._one(chance)["k"] = self._fresh_key()

    def renumber_all(self, chance):
        by = chance.choice((50, 50, -50))
        for row in self.rows:
            row["k"] = str(int(row["k"] or 0) + by)

    def split(self, chance):
        if self.rows:
            half = dict(self._one(chance)) | {"k": self._fresh_key()}
            half[chance.choice(sorted(KINDS))] = ""
            self.rows.append(half)

    def merge(self, chance):
        if len(self.rows) > 1:
            gone = self.rows.pop(chance.randrange(len(self.rows)))
            name = chance.choice(sorted(KINDS))
            self._one(chance)[name] = gone[name]

    def move_constant(self, chance):
        self.constant = f"c{chance.randrange(99)}"
        for row in self.rows:
            row["z"] = self.constant

    def break_constant(self, chance):
        self._one(chance)["z"] = "else"

    def add_column(self, chance):
        if lacking := [name for name in ("k", "m", *KINDS) if name not in self.columns]:
            self.columns.insert(chance.randrange(len(self.columns) + 1), chance.choice(lacking))

    def drop_column(self, chance):
        if len(self.columns) > 3:
            self.columns.remove(chance.choice(self.columns))

    def rename_column(self, chance):
        lacking = [name for name in KINDS if name not in self.columns]
        present = [name for name in KINDS if name in self.columns]
        if lacking and present:
            old, new = chance.choice(present), chance.choice(lacking)
            self.columns[self.columns.index(old)] = new
            for row in self.rows:
                row[new] = row[old]

    def retype_column(self, chance):
        name, values = chance.choice(sorted(KINDS)), VALUES[chance.choice(sorted(VALUES))]
        for row in self.rows:
            row[name] = chance.choice(values)

    def pin(self, chance):
        self.key = chance.choice((("k",), ("m",), ("k", "m"), ("m", "k")))

    def drop_key(self, chance):  # every act takes a chance
        self.key = ()

    def null_key(self, chance):
        self._one(chance)["k"] = ""

    def move_shape(self, chance):
        self._one(chance)[SHAPE] = self._at(chance.randrange(12) * GRID)

    def wobble_shape(self, chance):
        row = self._one(chance)
        if row.get(SHAPE):
            place = round((_corners(row[SHAPE])[0][0] + 80) / GRID) * GRID
            row[SHAPE] = self._at(place, chance.choice((WOBBLE, -WOBBLE)))

    def turn_ring(self, chance):
        row = self._one(chance)
        if row.get(SHAPE, "").startswith("POLYGON"):
            *corners, _ = _corners(row[SHAPE])
            at = chance.randrange(4)
            corners = corners[at:] + corners[:at]
            row[SHAPE] = _ring(corners[::-1] if chance.random() < 0.5 else corners)

    def empty(self, chance):
        if chance.random() < 0.5:
            self.rows.clear()

    def go_back(self, chance):
        if self.past:
            self.rows = [dict(row) for row in chance.choice(self.past)]

    def nothing(self, chance):
        """Let a state come again as it is."""


def _ring(corners):
    return f"POLYGON (({', '.join(f'{x!r} {y!r}' for x, y in (*corners, corners[0]))}))"


def _corners(text):
    return [tuple(map(float, pair.split())) for pair in text[text.rindex("(") + 1 : text.index(")")].split(",")]
