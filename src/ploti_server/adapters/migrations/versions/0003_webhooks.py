"""Keep webhooks and their deliveries."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

NAME = sa.String().with_variant(sa.String(collation="C"), "postgresql")
MOMENT = sa.BigInteger()


def upgrade() -> None:
    op.create_table(
        "webhooks",
        sa.Column("id", NAME, nullable=False),
        sa.Column("workspace_id", NAME, nullable=False),
        sa.Column("subscription_id", NAME, nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("failing_since", MOMENT, nullable=True),
        sa.Column("off_at", MOMENT, nullable=True),
        sa.Column("rest", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["workspace_id"], ["workspaces.id"], name=op.f("fk_webhooks_workspace_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["subscription_id"], ["subscriptions.id"], name=op.f("fk_webhooks_subscription_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_webhooks")),
    )
    op.create_index(op.f("ix_webhooks_workspace_id_created_at"), "webhooks", ["workspace_id", "created_at"])
    op.create_index(op.f("ix_webhooks_subscription_id"), "webhooks", ["subscription_id"])
    op.create_table(
        "deliveries",
        sa.Column("id", NAME, nullable=False),
        sa.Column("webhook_id", NAME, nullable=False),
        sa.Column("subscription_id", NAME, nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("type", NAME, nullable=False),
        sa.Column("dataset_id", NAME, nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("due_at", MOMENT, nullable=True),
        sa.Column("status", NAME, nullable=False),
        sa.Column("end_reason", NAME, nullable=True),
        sa.Column("lease_owner", NAME, nullable=True),
        sa.Column("lease_until", MOMENT, nullable=True),
        sa.Column("rest", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["subscription_id", "number"],
            ["events.subscription_id", "events.number"],
            name=op.f("fk_deliveries_subscription_id"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["webhook_id"], ["webhooks.id"], name=op.f("fk_deliveries_webhook_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_deliveries")),
        sa.UniqueConstraint("webhook_id", "number", name=op.f("uq_deliveries_webhook_id_number")),
    )
    op.create_index(op.f("ix_deliveries_subscription_id_number"), "deliveries", ["subscription_id", "number"])
    op.create_index(
        op.f("ix_deliveries_webhook_id_due_at_number"), "deliveries", ["webhook_id", "due_at", "number"]
    )
    op.create_index(op.f("ix_deliveries_lease_until"), "deliveries", ["lease_until"])
