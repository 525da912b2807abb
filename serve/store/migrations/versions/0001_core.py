"""The life cycle, the event log, the history and the service's own tables.

Further areas' tables come in files of their own, one after the other.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "alerts",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("job", sa.Text(), nullable=False),
        sa.Column("machine", sa.Text(), nullable=True),
        sa.Column("verdict", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("detected_at_ns", sa.BigInteger(), nullable=False),
        sa.Column("event_at_ns", sa.BigInteger(), nullable=False),
        sa.Column("event_ordinal", sa.BigInteger(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("episode", sa.BigInteger(), nullable=False),
        sa.Column("created_at_ns", sa.BigInteger(), nullable=False),
        sa.Column("changed_at_ns", sa.BigInteger(), nullable=False),
        sa.Column("acknowledged_at_ns", sa.BigInteger(), nullable=True),
        sa.Column("acknowledged_by", sa.Text(), nullable=True),
        sa.Column("resolved_at_ns", sa.BigInteger(), nullable=True),
        sa.Column("resolved_by", sa.Text(), nullable=True),
        sa.Column("resolve_due_ns", sa.BigInteger(), nullable=True),
        sa.Column("page_reason", sa.Text(), nullable=False),
        sa.Column("settled", sa.Boolean(), nullable=False),
        sa.Column("paged_at_ns", sa.BigInteger(), nullable=True),
        sa.Column("told_machines", sa.Text(), nullable=True),
        sa.Column("notices", sa.BigInteger(), nullable=False),
        sa.Column("storm_id", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_alerts")),
    )
    op.create_index("ix_alerts_changed", "alerts", ["changed_at_ns"], unique=False)
    op.create_index("ix_alerts_due", "alerts", ["resolve_due_ns"], unique=False)
    op.create_index("ix_alerts_job", "alerts", ["job", "detected_at_ns"], unique=False)
    op.create_index("ix_alerts_order", "alerts", ["detected_at_ns", "id"], unique=False)
    op.create_index("ix_alerts_settled", "alerts", ["settled", "status"], unique=False)
    op.create_index("ix_alerts_status", "alerts", ["status", "detected_at_ns"], unique=False)
    op.create_table(
        "events",
        sa.Column(
            "id",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("at_ns", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("job", sa.Text(), nullable=False),
        sa.Column("alert_id", sa.Text(), nullable=True),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_events")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_events_alert", "events", ["alert_id", "id"], unique=False)
    op.create_index("ix_events_at", "events", ["at_ns"], unique=False)
    op.create_table(
        "feedback",
        sa.Column(
            "id",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("alert_id", sa.Text(), nullable=False),
        sa.Column("job", sa.Text(), nullable=False),
        sa.Column("verdict", sa.Text(), nullable=False),
        sa.Column("machine", sa.Text(), nullable=True),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("author", sa.Text(), nullable=False),
        sa.Column("at_ns", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_feedback")),
    )
    op.create_index(op.f("ix_feedback_alert_id"), "feedback", ["alert_id"], unique=False)
    op.create_index("ix_feedback_at", "feedback", ["at_ns"], unique=False)
    op.create_table(
        "history",
        sa.Column(
            "id",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("job", sa.Text(), nullable=False),
        sa.Column("series", sa.Text(), nullable=False),
        sa.Column("start_ns", sa.BigInteger(), nullable=False),
        sa.Column("end_ns", sa.BigInteger(), nullable=False),
        sa.Column("written_at_ns", sa.BigInteger(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_history")),
    )
    op.create_index("ix_history_end", "history", ["end_ns"], unique=False)
    op.create_index("ix_history_series", "history", ["job", "series", "end_ns"], unique=False)
    op.create_index(op.f("ix_history_written_at_ns"), "history", ["written_at_ns"], unique=False)
    op.create_table(
        "jobs",
        sa.Column("job", sa.Text(), nullable=False),
        sa.Column("worker", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("updated_at_ns", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("job", name=op.f("pk_jobs")),
    )
    op.create_index(op.f("ix_jobs_updated_at_ns"), "jobs", ["updated_at_ns"], unique=False)
    op.create_table(
        "offenders",
        sa.Column("machine", sa.Text(), nullable=False),
        sa.Column("incidents", sa.BigInteger(), nullable=False),
        sa.Column("first_at_ns", sa.BigInteger(), nullable=False),
        sa.Column("last_at_ns", sa.BigInteger(), nullable=False),
        sa.Column("last_alert_id", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("machine", name=op.f("pk_offenders")),
    )
    op.create_index(op.f("ix_offenders_last_at_ns"), "offenders", ["last_at_ns"], unique=False)
    op.create_table(
        "service_state",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.Column("at_ns", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_service_state")),
    )
    op.create_table(
        "silences",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("job", sa.Text(), nullable=False),
        sa.Column("machine", sa.Text(), nullable=False),
        sa.Column("starts_at_ns", sa.BigInteger(), nullable=False),
        sa.Column("ends_at_ns", sa.BigInteger(), nullable=False),
        sa.Column("comment", sa.Text(), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("created_at_ns", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_silences")),
    )
    op.create_index("ix_silences_end", "silences", ["ends_at_ns"], unique=False)
    op.create_table(
        "storms",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("job", sa.Text(), nullable=False),
        sa.Column("started_at_ns", sa.BigInteger(), nullable=False),
        sa.Column("last_at_ns", sa.BigInteger(), nullable=False),
        sa.Column("alerts", sa.BigInteger(), nullable=False),
        sa.Column("told_alerts", sa.BigInteger(), nullable=False),
        sa.Column("told_at_ns", sa.BigInteger(), nullable=False),
        sa.Column("notices", sa.BigInteger(), nullable=False),
        sa.Column("resolved_at_ns", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_storms")),
    )
    op.create_index("ix_storms_job", "storms", ["job", "last_at_ns"], unique=False)
    op.create_index(op.f("ix_storms_last_at_ns"), "storms", ["last_at_ns"], unique=False)
    op.create_table(
        "tokens",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("scopes", sa.Text(), nullable=False),
        sa.Column("secret_sha256", sa.Text(), nullable=False),
        sa.Column("created_at_ns", sa.BigInteger(), nullable=False),
        sa.Column("expires_at_ns", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tokens")),
    )
    op.create_table(
        "workers",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("started_at_ns", sa.BigInteger(), nullable=False),
        sa.Column("beat_at_ns", sa.BigInteger(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_workers")),
    )
    op.create_index(op.f("ix_workers_beat_at_ns"), "workers", ["beat_at_ns"], unique=False)
    op.create_table(
        "alert_aliases",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("alert_id", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["alert_id"], ["alerts.id"], name=op.f("fk_alert_aliases_alert_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_alert_aliases")),
    )
    op.create_index(op.f("ix_alert_aliases_alert_id"), "alert_aliases", ["alert_id"], unique=False)
    op.create_table(
        "alert_machines",
        sa.Column("alert_id", sa.Text(), nullable=False),
        sa.Column("machine", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["alert_id"], ["alerts.id"], name=op.f("fk_alert_machines_alert_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("alert_id", "machine", name=op.f("pk_alert_machines")),
    )
    op.create_index("ix_alert_machines_machine", "alert_machines", ["machine"], unique=False)
