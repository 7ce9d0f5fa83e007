"""Row queries for replaced record ids, their ledger entries and the id map (D4.12).

Tables read: `carried` (`_ploti_row`, `_ploti_record_id`: found records under the ids that they had), `named`
(`_ploti_record_id`, `_ploti_target`), `fresh` (new ids), `renamed` (`_ploti_row`, `_ploti_previous_record_id`,
`_ploti_record_id`, `ordinal`), `identities_again` (like `identities`, for every row whose id is new), `row_ids`.
"""

from typing import Final

import pyarrow as pa

from ploti.contract.files import PREVIOUS_RECORD_ID, RECORD_ID
from ploti_server.rows.ledger import latest
from ploti_server.rows.match import ROW
from ploti_server.rows.sql import staged_schema

NAMED_SCHEMA: Final = staged_schema({RECORD_ID: pa.string(), "_ploti_target": pa.string()})
NO_TEXT: Final = "CAST(NULL AS VARCHAR)"


def rows_named(left_new: str) -> str:
    """Give the rows whose ids are named, and the left-over ones."""
    named = f"SELECT c.{ROW} FROM carried c JOIN named n ON c.{RECORD_ID} = n.{RECORD_ID}"
    return f"{named} UNION SELECT f.{ROW} FROM {left_new} f"


def rows_to_number(left_new: str) -> str:
    """Give the rows that get new ids: left-over ones, and those whose ids are named without a target."""
    new = f"SELECT c.{ROW} FROM carried c JOIN named n ON c.{RECORD_ID} = n.{RECORD_ID} WHERE n._ploti_target IS NULL"
    return f"{new} UNION SELECT f.{ROW} FROM {left_new} f"


def identities_by_key(identities: str, by_key: str) -> str:
    """Give identities that are made from chosen columns, with the key text that the ledger finds records by."""
    return f"SELECT i.{ROW}, i.key_text, k.identity FROM {identities} i JOIN {by_key} k ON i.{ROW} = k.{ROW}"


def renamed() -> str:
    """Give the rows whose id moves: from the one that their record had to a new one, or to the one named."""
    anew = (
        f"SELECT c.{ROW}, c.{RECORD_ID} AS {PREVIOUS_RECORD_ID}, f.{RECORD_ID}, f.ordinal"
        f" FROM carried c JOIN fresh f ON c.{ROW} = f.{ROW}"
    )
    return (
        f"{anew} UNION ALL SELECT c.{ROW}, c.{RECORD_ID}, n._ploti_target, CAST(NULL AS BIGINT)"
        f" FROM carried c JOIN named n ON c.{RECORD_ID} = n.{RECORD_ID} WHERE n._ploti_target IS NOT NULL"
    )


def added_rows() -> str:
    """Give new ids of rows that no record was found for."""
    return (
        f"SELECT f.{ROW}, f.{RECORD_ID}, f.ordinal FROM fresh f LEFT JOIN carried c ON f.{ROW} = c.{ROW}"
        f" WHERE c.{ROW} IS NULL"
    )


def final_ids() -> str:
    """Give every row's id after the replacement."""
    return (
        f"SELECT c.{ROW}, COALESCE(n.{RECORD_ID}, c.{RECORD_ID}) AS {RECORD_ID} FROM carried c"
        f" LEFT JOIN renamed n ON c.{ROW} = n.{ROW} UNION ALL SELECT a.{ROW}, a.{RECORD_ID} FROM added_rows a"
    )


def repeated_ids() -> str:
    """Count the ids that more than one row would carry."""
    return (
        f"SELECT count(*) AS found FROM (SELECT r.{RECORD_ID} FROM row_ids r GROUP BY r.{RECORD_ID}"
        " HAVING count(*) > 1) d"
    )


def not_renamed(pairs: str) -> str:
    """Give the pairs of a table whose row keeps its id."""
    return (
        f"SELECT p.{ROW}, p.{RECORD_ID} FROM {pairs} p LEFT JOIN renamed n ON p.{ROW} = n.{ROW} WHERE n.{ROW} IS NULL"
    )


def entries(version: int) -> str:
    """Give the ledger's entries of `renamed`: the new id's, and the old one's that says what replaced it (D4.3)."""
    number = f"CAST({version} AS BIGINT)"
    known = latest(f"SELECT n.{RECORD_ID} FROM renamed n")
    before = latest(f"SELECT n.{PREVIOUS_RECORD_ID} AS {RECORD_ID} FROM renamed n")
    return (
        f"SELECT n.{RECORD_ID}, {number} AS version, 'current' AS what, {NO_TEXT} AS replaced_by, i.key_text,"
        " CASE WHEN i.key_text IS NULL THEN i.identity END AS content_hash,"
        f" COALESCE(h.ordinal, n.ordinal) AS ordinal, COALESCE(h.first_version, {number}) AS first_version"
        f" FROM renamed n JOIN identities_again i ON n.{ROW} = i.{ROW}"
        f" LEFT JOIN ({known}) h ON n.{RECORD_ID} = h.{RECORD_ID}"
        f" UNION ALL SELECT n.{PREVIOUS_RECORD_ID}, {number}, 'replaced_by', n.{RECORD_ID}, {NO_TEXT},"
        f" CAST(NULL AS BLOB), h.ordinal, h.first_version FROM renamed n"
        f" JOIN ({before}) h ON n.{PREVIOUS_RECORD_ID} = h.{RECORD_ID}"
    )


def id_map(found: str) -> str:
    """Give the id map: each record carried from the version before, one that kept its id too (D4.12)."""
    return (
        f"SELECT p.{RECORD_ID} AS {PREVIOUS_RECORD_ID}, r.{RECORD_ID} FROM ({found}) p"
        f" JOIN row_ids r ON p.{ROW} = r.{ROW}"
    )
