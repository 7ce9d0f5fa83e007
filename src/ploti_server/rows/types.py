"""What each type holds, by the exact spellings of text and the kinds of JSON (D2.3 to D2.6).

`hold` is the pinned reading: a value that the type cannot hold is a misfit and retypes the column. `fit` is the
declared reading: it takes every spelling that means a value of the type; what is left becomes null and is counted.
"""

import json
import math
import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ploti.contract.values import ColumnType
from ploti_server.rows.raw import Array, Kind, RawColumn
from ploti_server.rows.text import clean, pc
from ploti_server.rows.zones import UTC_TIMESTAMP, to_utc

ARROW_TYPES: Final[dict[ColumnType, Any]] = {
    "string": pa.string(),
    "integer": pa.int64(),
    "number": pa.float64(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamp": UTC_TIMESTAMP,
    "json": pa.string(),
    "geometry": pa.binary(),
}

INTEGER: Final = r"^-?(0|[1-9][0-9]{0,17})$"
NUMBER: Final = r"^-?(0|[1-9][0-9]{0,17})(\.[0-9]+)?$"
_DAY: Final = r"(000[1-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-9][0-9]{3})-[0-9]{2}-[0-9]{2}"
DATE: Final = rf"^{_DAY}$"
TIMESTAMP: Final = (
    rf"^{_DAY}[T ][0-9]{{2}}:[0-9]{{2}}(:[0-9]{{2}}(\.[0-9]{{1,6}}0*)?)?(Z|[+-][0-9]{{2}}(:?[0-9]{{2}})?)?$"
)
NO_VALUE: Final = (
    r"(?i)^([+-]?(nan|inf|infinity)|\*+|0000-00-00([T ]00:00(:00(\.0+)?)?(Z|[+-]00:?00)?)?)$"
)  # fmt: skip
"""Text that stands for no value in number, date and timestamp columns (D2.5)."""

_ZONED: Final = r":[0-9]{2}(\.[0-9]+)?(Z|[+-][0-9]{2}(:?[0-9]{2})?)$"
_LONG_FRACTION: Final = r"(\.[0-9]{6})0+"
_FIRST_DAY: Final = (date(1, 1, 1) - date(1970, 1, 1)).days
_FIRST_MOMENT: Final = _FIRST_DAY * 86_400_000_000
_LAST_MOMENT: Final = ((date(9999, 12, 31) - date(1970, 1, 1)).days + 1) * 86_400_000_000 - 1

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Held:
    """Values of a type, null where the text is null or does not fit; `misfits` tells the latter."""

    values: Array
    misfits: Mask

    @property
    def whole(self) -> bool:
        """Tell whether every value fits."""
        return not self.misfits.any()


TextReader = Callable[[Array, str], Held]


def hold(column: RawColumn, type_: ColumnType, zone: str) -> Held:
    """Read a column with its pinned type; `zone` is for times without one."""
    readers = _READERS[type_]
    unread = _present(column)
    parts: list[Held] = []
    for kinds, reader in readers:
        if column.kinds & kinds:
            mask = _of_kinds(column, kinds)
            text = column.text if mask is None else pc.if_else(pa.array(mask), column.text, None)
            parts.append(reader(text, zone))
            unread &= False if mask is None else ~mask
    if not parts:
        return Held(pa.nulls(len(column.text), ARROW_TYPES[type_]), unread)
    values = parts[0].values if len(parts) == 1 else pc.coalesce(*(part.values for part in parts))
    misfits = unread
    for part in parts:
        misfits = misfits | part.misfits
    return Held(values, misfits)


def fit(column: RawColumn, type_: ColumnType, zone: str) -> Held:
    """Read a column with the type that the catalog declares for it."""
    held = hold(column, type_, zone)
    if held.whole:
        return held
    places = np.flatnonzero(held.misfits)
    texts = clean(column.text.filter(pa.array(held.misfits)))
    meant = [_meant(text, type_, zone) for text in texts.to_pylist()]
    values = pc.replace_with_mask(held.values, pa.array(held.misfits), pa.array(meant, ARROW_TYPES[type_]))
    misfits = held.misfits.copy()
    misfits[places] = [value is None and text is not None for value, text in zip(meant, texts.to_pylist(), strict=True)]
    return Held(values, misfits)


def _present(column: RawColumn) -> Mask:
    return np.asarray(column.text.is_valid().to_numpy(zero_copy_only=False), dtype=np.bool_).copy()


def _of_kinds(column: RawColumn, kinds: frozenset[Kind]) -> Mask | None:
    """Tell which values are of some kinds; None for all of them."""
    if column.kinds <= kinds:
        return None
    if column.kind_of is None:
        raise ValueError("a column of several kinds has to say the kind of each value")
    return np.isin(column.kind_of, list(kinds)) & _present(column)


def _string(text: Array, _: str) -> Held:
    return Held(clean(text), np.zeros(len(text), dtype=np.bool_))


def _spelled(pattern: str, parse: Callable[[Array, str], Held]) -> TextReader:
    """Read only text of one spelling; what stands for no value is null."""

    def read(text: Array, zone: str) -> Held:
        if _all_match(text, pattern):
            return parse(text, zone)
        text = clean(text)
        fits = pc.fill_null(pc.match_substring_regex(text, pattern), True)
        if pc.all(fits).as_py() is not False:
            return parse(text, zone)
        empty = pc.fill_null(pc.match_substring_regex(text, NO_VALUE), False)
        held = parse(pc.if_else(fits, text, None), zone)
        wrong = ~_mask(fits) & ~_mask(empty)
        return Held(held.values, held.misfits | wrong)

    return read


def _all_match(text: Array, pattern: str) -> bool:
    """Tell whether every text is of a spelling as it stands; such texts need no cleaning (D2.5)."""
    return pc.all(pc.match_substring_regex(text, pattern)).as_py() is not False


def _mask(flags: Array) -> Mask:
    return np.asarray(flags.to_numpy(zero_copy_only=False), dtype=np.bool_)


def _none_wrong(values: Array) -> Held:
    return Held(values, np.zeros(len(values), dtype=np.bool_))


def _integers(text: Array, _: str) -> Held:
    return _none_wrong(pc.cast(text, pa.int64()))


def _numbers(text: Array, _: str) -> Held:
    """Read float64; -0.0 is 0.0, what is not finite is null (D2.5)."""
    values = pc.add(pc.cast(text, pa.float64()), 0.0)
    return _none_wrong(pc.if_else(pc.is_finite(values), values, None))


def _whole_numbers(text: Array, _: str) -> Held:
    """Read integers from numbers with a point or exponent (D2.4)."""
    values = pc.cast(text, pa.float64())
    whole = pc.and_(pc.equal(values, pc.floor(values)), pc.less(pc.abs(values), 2.0**63))
    fits = pc.fill_null(whole, True)
    return Held(pc.cast(pc.if_else(fits, values, None), pa.int64()), ~_mask(fits))


def _booleans(text: Array, _: str) -> Held:
    return _none_wrong(pc.equal(text, "true"))


def _dates(text: Array, zone: str) -> Held:
    try:
        values = pc.cast(text, pa.date32())
    except pa.ArrowInvalid:
        return _one_by_one(text, "date", zone)
    return _none_wrong(values)


def _timestamps(text: Array, zone: str) -> Held:
    zoned = pc.match_substring_regex(text, _ZONED)
    if pc.any(pc.greater(pc.binary_length(text), 25)).as_py():
        text = pc.replace_substring_regex(text, pattern=_LONG_FRACTION, replacement=r"\1")
    try:
        told = pc.cast(pc.if_else(zoned, text, None), UTC_TIMESTAMP)
        shown = pc.cast(pc.if_else(zoned, None, text), pa.timestamp("us"))
    except pa.ArrowInvalid:
        return _one_by_one(text, "timestamp", zone)
    if not (_in_range(told) and _in_range(shown)):
        return _one_by_one(text, "timestamp", zone)
    values = pc.coalesce(told, to_utc(shown, zone))
    return _none_wrong(values) if _in_range(values) else _one_by_one(text, "timestamp", zone)


def _in_range(moments: Array) -> bool:
    """Tell whether times lie in the years 1 to 9999."""
    if moments.null_count == len(moments):
        return True
    ends = pc.min_max(moments.cast(pa.int64())).as_py()
    return bool(ends["min"] >= _FIRST_MOMENT and ends["max"] <= _LAST_MOMENT)


def _one_by_one(text: Array, type_: ColumnType, zone: str) -> Held:
    """Read spelled dates or times where some are no day or hour that exists."""
    read: Callable[[str, str], Any] = _read_date if type_ == "date" else _read_timestamp
    texts: list[Any] = text.to_pylist()
    values = [None if value is None else read(value, zone) for value in texts]
    wrong = [value is None and given is not None for value, given in zip(values, texts, strict=True)]
    return Held(pa.array(values, ARROW_TYPES[type_]), np.array(wrong, dtype=np.bool_))


def _read_date(text: str, _: str) -> date | None:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


def _read_timestamp(text: str, zone: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(re.sub(_LONG_FRACTION, r"\1", text))
        if moment.tzinfo is not None:
            return moment.astimezone(UTC)
        shown = (moment - datetime(1970, 1, 1)) // timedelta(microseconds=1)  # noqa: DTZ001  # a time without a zone
        utc = to_utc(pa.array([shown], pa.timestamp("us")), zone)
        return utc[0].as_py() if _in_range(utc) else None
    except (ValueError, OverflowError):
        return None


def _as_is(text: Array, _: str) -> Held:
    return _none_wrong(text)


def _json_strings(text: Array, _: str) -> Held:
    cleaned = clean(text).to_pylist()
    return _none_wrong(pa.array([None if t is None else json_text(t) for t in cleaned], pa.string()))


def _json_from_text(text: Array, _: str) -> Held:
    """Read JSON that stands in untyped text."""
    texts = clean(text).to_pylist()
    values = [None if value is None else _canonical_json(value) for value in texts]
    wrong = [value is None and given is not None for value, given in zip(values, texts, strict=True)]
    return Held(pa.array(values, pa.string()), np.array(wrong, dtype=np.bool_))


def _canonical_json(text: str) -> str | None:
    try:
        return json_text(json.loads(text))
    except (ValueError, RecursionError):
        return None


def json_text(value: Any) -> str:
    """Write a value as canonical JSON: member names sorted, no spaces, list order kept, NFC, strict (D2.2, D2.5).

    What is not finite is null; U+0000 and lone surrogates are left out of text. Raises `RecursionError` for nesting
    beyond Python's limit.
    """
    try:
        text = _dump(value)
    except ValueError:
        return _dump(_strict(value))
    return text if text.isascii() and "\\u0000" not in text else _dump(_strict(value))


def _dump(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _strict(value: Any) -> Any:
    """Give a value in NFC, without what JSON or a database cannot hold; names before they are sorted."""
    if isinstance(value, dict):
        return {_strict(name): _strict(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_strict(member) for member in value]
    if isinstance(value, str):
        return unicodedata.normalize("NFC", plain_text(value.replace("\0", "")))
    return None if isinstance(value, float) and not math.isfinite(value) else value


def plain_text(text: str) -> str:
    """Give a text that UTF-8 can hold: pairs of surrogates joined, lone ones replaced."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _only_no_value(text: Array, _: str) -> Held:
    """Take text only where it stands for no value."""
    wrong = pc.fill_null(pc.invert(pc.match_substring_regex(clean(text), NO_VALUE)), False)
    return Held(pa.nulls(len(text), pa.float64()), _mask(wrong))


def _kinds(*kinds: Kind) -> frozenset[Kind]:
    return frozenset(kinds)


_ANY_SCALAR: Final = _kinds(Kind.TEXT, Kind.STRING, Kind.INTEGER, Kind.NUMBER, Kind.BOOLEAN)
_DATE_TEXT: Final = _kinds(Kind.TEXT, Kind.STRING)

_READERS: Final[dict[ColumnType, tuple[tuple[frozenset[Kind], TextReader], ...]]] = {
    "string": ((_ANY_SCALAR, _string),),
    "integer": (
        (_kinds(Kind.TEXT), _spelled(INTEGER, _integers)),
        (_kinds(Kind.INTEGER), _integers),
        (_kinds(Kind.NUMBER), _whole_numbers),
    ),
    "number": (
        (_kinds(Kind.TEXT), _spelled(NUMBER, _numbers)),
        (_kinds(Kind.INTEGER, Kind.NUMBER), _numbers),
        (_kinds(Kind.STRING), _only_no_value),
    ),
    "boolean": ((_kinds(Kind.TEXT), _spelled("^(true|false)$", _booleans)), (_kinds(Kind.BOOLEAN), _booleans)),
    "date": ((_DATE_TEXT, _spelled(DATE, _dates)),),
    "timestamp": ((_DATE_TEXT, _spelled(TIMESTAMP, _timestamps)),),
    "json": (
        (_kinds(Kind.TEXT), _json_from_text),
        (_kinds(Kind.STRING), _json_strings),
        (_kinds(Kind.INTEGER, Kind.NUMBER, Kind.BOOLEAN, Kind.NESTED), _as_is),
    ),
}
"""For each type: which kinds it takes, and how their text is read; a value of another kind is a misfit."""


def _meant(text: str | None, type_: ColumnType, zone: str) -> Any:
    """Give the value that a text means where the catalog says what it is; None where it means none."""
    if text is None:
        return None
    match type_:
        case "integer":
            return _meant_integer(text)
        case "number":
            return _meant_number(text)
        case "boolean":
            return _BOOLEANS.get(text.lower())
        case "date":
            moment = _meant_moment(text, zone)
            midnight = moment is not None and re.search(r"[T ]00:00(:00(\.0+)?)?$", text)
            return date.fromisoformat(text[:10]) if midnight else None
        case "timestamp":
            return _meant_moment(text, zone)
        case "json":
            return json_text(text)
        case "string" | "geometry":
            return text if type_ == "string" else None


_BOOLEANS: Final = {
    word: value
    for value, words in ((True, ("true", "t", "yes", "y", "1")), (False, ("false", "f", "no", "n", "0")))
    for word in words
}


def _meant_integer(text: str) -> int | None:
    if not re.fullmatch(r"[+-]?[0-9]{1,19}(\.0+)?", text):
        return None
    value = int(text.partition(".")[0])
    return value if -(2**63) <= value < 2**63 else None


def _meant_number(text: str) -> float | None:
    if not re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", text):
        return None
    value = float(text) + 0.0
    return value if math.isfinite(value) else None


def _meant_moment(text: str, zone: str) -> datetime | None:
    """Read ISO 8601 with or without a time, or epoch milliseconds (D2.6)."""
    if re.fullmatch(r"-?[0-9]{1,15}", text):
        milliseconds = timedelta(milliseconds=int(text))
        return datetime(1970, 1, 1, tzinfo=UTC) + milliseconds if abs(int(text)) < 60_000_000_000_000 else None
    if re.fullmatch(DATE[1:-1], text):
        text += "T00:00:00"
    return _read_timestamp(text, zone) if re.fullmatch(TIMESTAMP[1:-1], text) else None
