"""Lay the first tables."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

NAME = sa.String().with_variant(sa.String(collation="C"), "postgresql")
MOMENT = sa.BigInteger()


def upgrade() -> None:
    op.create_table(
        "datasets",
        sa.Column("id", NAME, nullable=False),
        sa.Column("rest", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_datasets")),
    )
    op.create_table(
        "secrets",
        sa.Column("name", NAME, nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_secrets")),
    )
    op.create_table(
        "topics",
        sa.Column("id", NAME, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_topics")),
    )
    op.create_table(
        "workspaces",
        sa.Column("id", NAME, nullable=False),
        sa.Column("name", NAME, nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("rest", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_workspaces")),
        sa.UniqueConstraint("name", name=op.f("uq_workspaces_name")),
    )
    op.create_table(
        "api_keys",
        sa.Column("id", NAME, nullable=False),
        sa.Column("workspace_id", NAME, nullable=False),
        sa.Column("key_hash", NAME, nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("rest", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["workspace_id"], ["workspaces.id"], name=op.f("fk_api_keys_workspace_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_api_keys")),
        sa.UniqueConstraint("key_hash", name=op.f("uq_api_keys_key_hash")),
    )
    op.create_index(
        op.f("ix_api_keys_workspace_id_created_at"), "api_keys", ["workspace_id", "created_at"], unique=False
    )
    op.create_table(
        "checks",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("dataset_id", NAME, nullable=False),
        sa.Column("status", NAME, nullable=False),
        sa.Column("fetched_at", MOMENT, nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("due_at", MOMENT, nullable=True),
        sa.Column("lease_owner", NAME, nullable=True),
        sa.Column("lease_until", MOMENT, nullable=True),
        sa.Column("rest", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["dataset_id"], ["datasets.id"], name=op.f("fk_checks_dataset_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_checks")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_checks_dataset_id_id"), "checks", ["dataset_id", "id"], unique=False)
    op.create_index(op.f("ix_checks_status_id"), "checks", ["status", "id"], unique=False)
    op.create_table(
        "members",
        sa.Column("workspace_id", NAME, nullable=False),
        sa.Column("name", NAME, nullable=False),
        sa.Column("role", NAME, nullable=False),
        sa.Column("left_at", MOMENT, nullable=True),
        sa.ForeignKeyConstraint(
            ["workspace_id"], ["workspaces.id"], name=op.f("fk_members_workspace_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("workspace_id", "name", name=op.f("pk_members")),
    )
    op.create_table(
        "refreshes",
        sa.Column("dataset_id", NAME, nullable=False),
        sa.Column("last_checked_at", MOMENT, nullable=True),
        sa.Column("next_check_by", MOMENT, nullable=True),
        sa.Column("stale_for", MOMENT, nullable=True),
        sa.ForeignKeyConstraint(["dataset_id"], ["datasets.id"], name=op.f("fk_refreshes_dataset_id")),
        sa.PrimaryKeyConstraint("dataset_id", name=op.f("pk_refreshes")),
    )
    op.create_table(
        "subscriptions",
        sa.Column("id", NAME, nullable=False),
        sa.Column("workspace_id", NAME, nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("rest", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["workspace_id"], ["workspaces.id"], name=op.f("fk_subscriptions_workspace_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_subscriptions")),
    )
    op.create_index(
        op.f("ix_subscriptions_workspace_id_created_at"), "subscriptions", ["workspace_id", "created_at"], unique=False
    )
    op.create_table(
        "versions",
        sa.Column("dataset_id", NAME, nullable=False),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("status", NAME, nullable=False),
        sa.Column("schemas", sa.Text(), nullable=False),
        sa.Column("rest", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["dataset_id"], ["datasets.id"], name=op.f("fk_versions_dataset_id")),
        sa.PrimaryKeyConstraint("dataset_id", "number", name=op.f("pk_versions")),
    )
    op.create_index(
        op.f("ix_versions_dataset_id_status_number"), "versions", ["dataset_id", "status", "number"], unique=False
    )
    op.create_index(
        op.f("ix_versions_status_dataset_id_number"), "versions", ["status", "dataset_id", "number"], unique=False
    )
    op.create_table(
        "counters",
        sa.Column("subscription_id", NAME, nullable=False),
        sa.Column("newest", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["subscription_id"], ["subscriptions.id"], name=op.f("fk_counters_subscription_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("subscription_id", name=op.f("pk_counters")),
    )
    op.create_table(
        "events",
        sa.Column("subscription_id", NAME, nullable=False),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("type", NAME, nullable=False),
        sa.Column("dataset_id", NAME, nullable=False),
        sa.Column("timestamp", MOMENT, nullable=False),
        sa.Column("data", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["subscription_id"], ["subscriptions.id"], name=op.f("fk_events_subscription_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("subscription_id", "number", name=op.f("pk_events")),
    )
    op.create_table(
        "joined",
        sa.Column("subscription_id", NAME, nullable=False),
        sa.Column("dataset_id", NAME, nullable=False),
        sa.ForeignKeyConstraint(["dataset_id"], ["datasets.id"], name=op.f("fk_joined_dataset_id")),
        sa.ForeignKeyConstraint(
            ["subscription_id"], ["subscriptions.id"], name=op.f("fk_joined_subscription_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("subscription_id", "dataset_id", name=op.f("pk_joined")),
    )
    op.create_index(
        op.f("ix_joined_dataset_id_subscription_id"), "joined", ["dataset_id", "subscription_id"], unique=False
    )
