"""The outbox of notifications."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables."""
    big_id = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "outbox",
        sa.Column("id", big_id, autoincrement=True, nullable=False),
        sa.Column("receiver", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("job", sa.Text(), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("attempts", sa.BigInteger(), nullable=False),
        sa.Column("created_at_ns", sa.BigInteger(), nullable=False),
        sa.Column("give_up_from_ns", sa.BigInteger(), nullable=False),
        sa.Column("finished_at_ns", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_outbox")),
    )
    op.create_index("uq_outbox_notice", "outbox", ["receiver", "key", "sequence"], unique=True)
    op.create_index("ix_outbox_state", "outbox", ["state", "finished_at_ns"], unique=False)
    op.create_table(
        "outbox_attempts",
        sa.Column("id", big_id, autoincrement=True, nullable=False),
        sa.Column("outbox_id", sa.BigInteger(), nullable=False),
        sa.Column("at_ns", sa.BigInteger(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["outbox_id"],
            ["outbox.id"],
            name=op.f("fk_outbox_attempts_outbox_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_outbox_attempts")),
    )
    op.create_index(
        op.f("ix_outbox_attempts_outbox_id"), "outbox_attempts", ["outbox_id"], unique=False
    )
    op.create_table(
        "outbox_lanes",
        sa.Column("receiver", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("next_at_ns", sa.BigInteger(), nullable=True),
        sa.Column("failures", sa.BigInteger(), nullable=False),
        sa.Column("lease_owner", sa.Text(), nullable=True),
        sa.Column("lease_until_ns", sa.BigInteger(), nullable=False),
        sa.Column("told", sa.Text(), nullable=True),
        sa.Column("told_status", sa.Text(), nullable=False),
        sa.Column("told_sequence", sa.BigInteger(), nullable=False),
        sa.Column("told_at_ns", sa.BigInteger(), nullable=False),
        sa.Column("labels", sa.Text(), nullable=True),
        sa.Column("changed_at_ns", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("receiver", "key", name=op.f("pk_outbox_lanes")),
    )
    op.create_index("ix_outbox_lanes_due", "outbox_lanes", ["receiver", "next_at_ns"])
    op.create_index("ix_outbox_lanes_key", "outbox_lanes", ["key"])
    op.create_index("ix_outbox_lanes_changed", "outbox_lanes", ["changed_at_ns"])
    op.create_table(
        "outbox_receivers",
        sa.Column("receiver", sa.Text(), nullable=False),
        sa.Column("next_slot_ns", sa.BigInteger(), nullable=False),
        sa.Column("paused_until_ns", sa.BigInteger(), nullable=False),
        sa.Column("failures", sa.BigInteger(), nullable=False),
        sa.Column("last_delivered_at_ns", sa.BigInteger(), nullable=True),
        sa.Column("last_error", sa.Text(), nullable=False),
        sa.Column("last_error_at_ns", sa.BigInteger(), nullable=True),
        sa.Column("changed_at_ns", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("receiver", name=op.f("pk_outbox_receivers")),
    )
