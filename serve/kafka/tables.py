"""Tables of the checkpoints: how far each partition is stored, and the state of its jobs."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger
from sqlalchemy.orm import Mapped, mapped_column

from serve.store.base import Base, Json


class PartitionRow(Base):
    """One partition as one consumer group has stored it.

    Everything below ``next_offset`` has had its effect. ``epoch`` counts owners: a worker
    whose epoch is not the row's has lost the partition and may store nothing. The jobs'
    states (`JobStateRow`) are of ``snapshot_offset``; ``journal`` lists every call since
    then that led from there to ``next_offset`` (see `serve.kafka.journal`). ``topic_id``
    tells a topic that was deleted and created again. ``reader`` is the state
    of reading at the snapshot (`serve.kafka.reader`).
    """

    __tablename__ = "kafka_partitions"

    consumer_group: Mapped[str] = mapped_column(primary_key=True)
    topic: Mapped[str] = mapped_column(primary_key=True)
    partition: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    topic_id: Mapped[str] = mapped_column(default="")
    epoch: Mapped[int]
    owner: Mapped[str]
    next_offset: Mapped[int | None]
    snapshot_offset: Mapped[int | None]
    journal: Mapped[list[Any]] = mapped_column(Json)
    reader: Mapped[dict[str, Any]] = mapped_column(Json)
    updated_at_ns: Mapped[int] = mapped_column(BigInteger, index=True)


class JobStateRow(Base):
    """A job's state (`detect.snapshot`) at its partition's ``snapshot_offset``."""

    __tablename__ = "kafka_job_states"

    consumer_group: Mapped[str] = mapped_column(primary_key=True)
    topic: Mapped[str] = mapped_column(primary_key=True)
    partition: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    job: Mapped[str] = mapped_column(primary_key=True)
    state: Mapped[bytes]
    updated_at_ns: Mapped[int] = mapped_column(BigInteger, index=True)
