"""Keep each event's whole body, ready to be sent, in place of its data alone."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

MARK = "\x01"
"""Stands before each path that the public address goes before."""


def upgrade() -> None:
    connection = op.get_bind()
    op.execute("ALTER TABLE events RENAME COLUMN data TO body")
    events = sa.table(
        "events", *(sa.column(name) for name in ("subscription_id", "number", "type", "timestamp", "body"))
    )
    found = connection.execute(sa.select(events).order_by(events.c.subscription_id, events.c.number)).all()
    changed = (
        sa.update(events)
        .where(events.c.subscription_id == sa.bindparam("of"), events.c.number == sa.bindparam("at"))
        .values(body=sa.bindparam("written"))
    )
    rows = [{"of": row.subscription_id, "at": row.number, "written": body(row)} for row in found]
    if rows:
        connection.execute(changed, rows)


def body(row: sa.Row[Any]) -> str:
    data = json.loads(row.body)
    links = data.pop("links", None)
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=row.timestamp)
    event = {
        "id": f"evt_{row.number:012d}",
        "type": row.type,
        "timestamp": moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z",
        "subscriptionId": row.subscription_id,
        "data": data,
    }
    text = json.dumps(event, ensure_ascii=False, separators=(",", ":"))
    if links is None:
        return text
    marked = json.dumps(links, ensure_ascii=False, separators=(",", ":")).replace('":"/', f'":"{MARK}/')
    return f'{text[:-2]},"links":{marked}}}}}'
