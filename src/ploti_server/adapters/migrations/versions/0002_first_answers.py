"""Keep first answers to Idempotency-Keys and, on PostgreSQL, the counts of calls."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

NAME = sa.String().with_variant(sa.String(collation="C"), "postgresql")
MOMENT = sa.BigInteger()
CALL_COUNTS = (
    "CREATE UNLOGGED TABLE call_counts (key_id TEXT NOT NULL, name TEXT NOT NULL, ends BIGINT NOT NULL, "
    "calls INTEGER NOT NULL, CONSTRAINT pk_call_counts PRIMARY KEY (key_id, name))"
)


def upgrade() -> None:
    op.create_table(
        "idempotency",
        sa.Column("workspace_id", NAME, nullable=False),
        sa.Column("route", NAME, nullable=False),
        sa.Column("key", NAME, nullable=False),
        sa.Column("body_hash", NAME, nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("answer", sa.Text(), nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.ForeignKeyConstraint(
            ["workspace_id"], ["workspaces.id"], name=op.f("fk_idempotency_workspace_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("workspace_id", "route", "key", name=op.f("pk_idempotency")),
    )
    op.create_index(op.f("ix_idempotency_workspace_id_created_at"), "idempotency", ["workspace_id", "created_at"])
    if op.get_bind().dialect.name == "postgresql":
        op.execute(CALL_COUNTS)

