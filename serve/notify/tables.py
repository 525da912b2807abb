"""Tables of the outbox. Times are nanoseconds since the epoch.

A *lane* is one incident at one receiver: it holds the order, the lease, the back-off and what
the receiver knows. Whoever holds a lane's lease is the only one who delivers in it.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from serve.store.base import Base, BigId, Json


class OutboxRow(Base):
    """One notice for one receiver.

    ``state`` is ``pending``, or for good ``sent``, ``superseded`` (a newer one spoke for it),
    ``suppressed`` (``reason`` says why) or ``dead`` (given up; can be replayed).
    """

    __tablename__ = "outbox"
    __table_args__ = (
        Index("uq_outbox_notice", "receiver", "key", "sequence", unique=True),
        Index("ix_outbox_state", "state", "finished_at_ns"),
    )

    id: Mapped[int] = mapped_column(BigId, primary_key=True, autoincrement=True)
    receiver: Mapped[str]
    key: Mapped[str]
    sequence: Mapped[int]
    kind: Mapped[str]
    job: Mapped[str]
    note: Mapped[dict[str, Any]] = mapped_column(Json)
    state: Mapped[str] = mapped_column(default="pending")
    reason: Mapped[str] = mapped_column(default="")
    attempts: Mapped[int] = mapped_column(default=0)
    created_at_ns: Mapped[int]
    give_up_from_ns: Mapped[int]
    finished_at_ns: Mapped[int | None]


class OutboxAttemptRow(Base):
    """One attempt to deliver, for whoever asks why nobody was called."""

    __tablename__ = "outbox_attempts"

    id: Mapped[int] = mapped_column(BigId, primary_key=True, autoincrement=True)
    outbox_id: Mapped[int] = mapped_column(
        ForeignKey("outbox.id", ondelete="CASCADE"), type_=BigInteger, index=True
    )
    at_ns: Mapped[int]
    outcome: Mapped[str]
    detail: Mapped[str]


class LaneRow(Base):
    """One incident at one receiver.

    ``next_at_ns`` is when something is to be done (None: nothing is). ``told`` is the note
    that the receiver accepted last, ``told_status`` where that left the incident and
    ``labels`` what the receiver knows it by.
    """

    __tablename__ = "outbox_lanes"
    __table_args__ = (
        Index("ix_outbox_lanes_due", "receiver", "next_at_ns"),
        Index("ix_outbox_lanes_key", "key"),
        Index("ix_outbox_lanes_changed", "changed_at_ns"),
    )

    receiver: Mapped[str] = mapped_column(primary_key=True)
    key: Mapped[str] = mapped_column(primary_key=True)
    next_at_ns: Mapped[int | None]
    failures: Mapped[int] = mapped_column(default=0)
    lease_owner: Mapped[str | None]
    lease_until_ns: Mapped[int] = mapped_column(default=0)
    told: Mapped[dict[str, Any] | None] = mapped_column(Json)
    told_status: Mapped[str] = mapped_column(default="")
    told_sequence: Mapped[int] = mapped_column(default=0)
    told_at_ns: Mapped[int] = mapped_column(default=0)
    labels: Mapped[dict[str, Any] | None] = mapped_column(Json)
    changed_at_ns: Mapped[int]


class ReceiverRow(Base):
    """A receiver as all processes see it: how fast it is written to and whether it answers.

    ``next_slot_ns`` is the theoretical arrival time of the rate limit (`serve.notify.pace`).
    """

    __tablename__ = "outbox_receivers"

    receiver: Mapped[str] = mapped_column(primary_key=True)
    next_slot_ns: Mapped[int] = mapped_column(default=0)
    paused_until_ns: Mapped[int] = mapped_column(default=0)
    failures: Mapped[int] = mapped_column(default=0)
    last_delivered_at_ns: Mapped[int | None]
    last_error: Mapped[str] = mapped_column(default="")
    last_error_at_ns: Mapped[int | None]
    changed_at_ns: Mapped[int] = mapped_column(default=0)
