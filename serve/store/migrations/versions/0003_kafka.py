"""Checkpoints of Kafka's partitions."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "kafka_partitions",
        sa.Column("consumer_group", sa.Text(), nullable=False),
        sa.Column("topic", sa.Text(), nullable=False),
        sa.Column("partition", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("topic_id", sa.Text(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("next_offset", sa.BigInteger(), nullable=True),
        sa.Column("snapshot_offset", sa.BigInteger(), nullable=True),
        sa.Column("journal", sa.Text(), nullable=False),
        sa.Column("reader", sa.Text(), nullable=False),
        sa.Column("updated_at_ns", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint(
            "consumer_group", "topic", "partition", name=op.f("pk_kafka_partitions")
        ),
    )
    op.create_index(
        op.f("ix_kafka_partitions_updated_at_ns"), "kafka_partitions", ["updated_at_ns"]
    )
    op.create_table(
        "kafka_job_states",
        sa.Column("consumer_group", sa.Text(), nullable=False),
        sa.Column("topic", sa.Text(), nullable=False),
        sa.Column("partition", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("job", sa.Text(), nullable=False),
        sa.Column("state", sa.LargeBinary(), nullable=False),
        sa.Column("updated_at_ns", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint(
            "consumer_group", "topic", "partition", "job", name=op.f("pk_kafka_job_states")
        ),
    )
    op.create_index(
        op.f("ix_kafka_job_states_updated_at_ns"), "kafka_job_states", ["updated_at_ns"]
    )
