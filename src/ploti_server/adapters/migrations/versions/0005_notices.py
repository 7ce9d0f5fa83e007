"""Keep notices to the operator until they are sent."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

ROW_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
MOMENT = sa.BigInteger()


def upgrade() -> None:
    op.create_table(
        "notices",
        sa.Column("id", ROW_ID, autoincrement=True, nullable=False),
        sa.Column("due_at", MOMENT, nullable=False),
        sa.Column("rest", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_notices")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_notices_due_at"), "notices", ["due_at"])
