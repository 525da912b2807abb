"""Feedback remembers what its alert said: it is kept for longer than the alert."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns; rows from before have none of it."""
    op.add_column("feedback", sa.Column("machines", sa.Text(), nullable=True))
    op.add_column("feedback", sa.Column("onset_ns", sa.BigInteger(), nullable=True))
    op.add_column("feedback", sa.Column("detected_at_ns", sa.BigInteger(), nullable=True))
