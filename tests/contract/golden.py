"""The golden vectors of canonical rows, record hashes and digest, as Python values (D2.11, D5.6)."""

import json
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path

DOCUMENT = json.loads((Path(__file__).parent / "golden_digest.json").read_text())
DIGEST = DOCUMENT["digest"]


def _identity(value):
    return value


READ = {
    "string": _identity,
    "json": _identity,
    "boolean": _identity,
    "integer": int,
    "number": lambda text: float.fromhex(text) if "x" in text else float(text),
    "date": date.fromisoformat,
    "timestamp": datetime.fromisoformat,
    "geometry": bytes.fromhex,
}


@dataclass(frozen=True)
class Golden:
    """One record: what it holds, its canonical row, its hash."""

    name: str
    columns: dict
    values: dict
    record_id: str
    row: str
    hash: bytes


def _read(entry):
    values = {
        name: None if text is None else READ[entry["columns"][name]](text) for name, text in entry["values"].items()
    }
    return Golden(
        entry["name"], entry["columns"], values, entry["record_id"], entry["row"], bytes.fromhex(entry["hash"])
    )


RECORDS = tuple(_read(entry) for entry in DOCUMENT["records"])
