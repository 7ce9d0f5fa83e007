"""Record ids (D4.1): a hash of dataset, id epoch, and what first identified the record.

`identified_by` is the key text or the content text. Key text: `type:N:text;` for each key column in declared order, N
in code points, so that a renamed key column keeps its meaning while integer 1 and text "1" are two keys. Content text:
`content`, newline, the canonical row over all own non-volatile columns of the state (D4.2).
"""

import base64
import struct
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from hashlib import sha256
from typing import Final

ID_CHARACTERS: Final = 26
CONTENT_PREFIX: Final = "content\n"
_READERS: Final[Mapping[str, Callable[[str], str]]] = {
    "number": lambda text: repr(struct.unpack(">d", struct.pack(">q", int(text)))[0]),
    "boolean": lambda text: "true" if text == "1" else "false",
    "date": lambda text: (date(1970, 1, 1) + timedelta(days=int(text))).isoformat(),
    "timestamp": lambda text: (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=int(text))).isoformat(),
}
"""How a canonical text of some types is written for a person; the others' is readable as it is."""


def content_text(canonical_row: str) -> str:
    """Give the text that identifies a record by its content."""
    return CONTENT_PREFIX + canonical_row


def identity_hash(identified_by: str) -> bytes:
    """Give the sha256 of what identifies a record."""
    return sha256(identified_by.encode()).digest()


def record_id(dataset_id: str, epoch: int, identified_by: str, ordinal: int) -> str:
    """Give the id of the record that is `ordinal`-th, from 0, among those with equal identity."""
    return record_id_of_hash(dataset_id, epoch, identity_hash(identified_by), ordinal)


def record_id_of_hash(dataset_id: str, epoch: int, identity: bytes, ordinal: int) -> str:
    """Give the id from the identity's hash: base32 of sha256 of four lines, which no value can blur."""
    digest = sha256(f"{dataset_id}\n{epoch}\n{ordinal}\n{identity.hex()}".encode()).digest()
    return "rec_" + base64.b32encode(digest[:20]).decode().lower()[:ID_CHARACTERS]


def key_values(key_text: str) -> tuple[str, ...]:
    """Read a key text's values back, as a person writes them."""
    values, rest = [], key_text
    while rest:
        type_, length, rest = rest.split(":", 2)
        text, rest = rest[: int(length)], rest[int(length) + 1 :]
        values.append(_READERS.get(type_, str)(text))
    return tuple(values)
