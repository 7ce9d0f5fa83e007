"""Row queries that gather what one version delivered as deletes and adds, to be judged once more (D4.11).

Tables read: `ledger`, `old_files` and `new_files` (snapshots of a version and of the one that it followed).
"""

from collections.abc import Sequence

from ploti.contract.files import RECORD_ID
from ploti_server.rows.ledger import latest
from ploti_server.rows.match import ROW
from ploti_server.rows.sql import columns_of


def gone_since(version: int) -> str:
    """Give the ids whose record was removed in a version and never came back."""
    gone = f"SELECT DISTINCT r.{RECORD_ID} FROM ledger r WHERE r.version = {version} AND r.what = 'removed'"
    return f"SELECT e.{RECORD_ID} FROM ({latest(gone)}) e WHERE e.what = 'removed' AND e.version = {version}"


def come_with(version: int) -> str:
    """Give the ids that a version brought."""
    return (
        f"SELECT l.{RECORD_ID} FROM ledger l WHERE l.version = {version} AND l.first_version = {version}"
        " AND l.what = 'current'"
    )


def numbered_rows(names: Sequence[str]) -> str:
    """Give a snapshot's ids and own columns with the row numbers that candidates are named by."""
    order = f"ORDER BY n.{RECORD_ID} ASC NULLS LAST"
    return f"SELECT row_number() OVER ({order}) AS {ROW}, {columns_of('n', (RECORD_ID, *names))} FROM new_files n"


def rows_of_ids(ids: str) -> str:
    """Give the row numbers of ids."""
    return f"SELECT n.{ROW} FROM new_rows n JOIN ({ids}) w ON n.{RECORD_ID} = w.{RECORD_ID}"


def found() -> str:
    """Give the pairs that the agent holds for one record: the id that is gone, and the one that came."""
    return (
        f"SELECT p.{RECORD_ID} AS _gone, n.{RECORD_ID} AS _come, p._score FROM by_agent p"
        f" JOIN new_rows n ON p.{ROW} = n.{ROW} ORDER BY p.{RECORD_ID} ASC NULLS LAST"
    )


def kept_records(score: str) -> str:
    """Give the pairs of the records that both versions have, as pairs whose values may differ."""
    return (
        f"SELECT n.{ROW}, n.{RECORD_ID}, 'key' AS _match, {score} AS _score FROM new_rows n"
        f" JOIN old o ON n.{RECORD_ID} = o.{RECORD_ID}"
    )
