"""Keep what was asked of matching agents, and their judgements."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

NAME = sa.String().with_variant(sa.String(collation="C"), "postgresql")
MOMENT = sa.BigInteger()


def upgrade() -> None:
    op.create_table(
        "asks",
        sa.Column("check_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("dataset_id", NAME, nullable=False),
        sa.Column("due_at", MOMENT, nullable=True),
        sa.Column("rest", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["check_id"], ["checks.id"], name=op.f("fk_asks_check_id")),
        sa.ForeignKeyConstraint(["dataset_id"], ["datasets.id"], name=op.f("fk_asks_dataset_id")),
        sa.PrimaryKeyConstraint("check_id", name=op.f("pk_asks")),
    )
    op.create_index(op.f("ix_asks_dataset_id_check_id"), "asks", ["dataset_id", "check_id"])
    op.create_index(op.f("ix_asks_due_at"), "asks", ["due_at"])
