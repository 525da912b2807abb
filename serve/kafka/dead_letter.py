"""Where what could not be used goes: a topic, with the reason and the origin in headers."""

from __future__ import annotations

from collections.abc import Sequence

from ingest.samples import Rejected
from serve.kafka.producer import Outgoing, Producer

MOST_A_TURN = 10_000
"""Letters of one call; of what is beyond, the last letter tells the number."""


class DeadLetters:
    """Writes rejects to the dead-letter topic; implements `serve.worker.RejectSink`.

    The value is what was received (its beginning, see ``dead_letter_payload_bytes``), empty if
    it was not kept. Headers: ``reason``, ``origin`` (``topic/partition/offset``, or job and
    machine), ``detail``, ``rows`` (how many the letter stands for). A letter may come twice
    after a crash; its origin tells.
    """

    def __init__(self, producer: Producer, topic: str):
        self._producer = producer
        self._topic = topic

    def write(self, rejected: Sequence[Rejected]) -> None:
        """All of them are safely there when this returns; KafkaError if not."""
        letters = [_letter(one) for one in rejected[:MOST_A_TURN]]
        rest = rejected[MOST_A_TURN:]
        if rest:
            more = f"{len(rest)} further rejects of the same moment are not kept singly"
            rows = sum(one.rows for one in rest)
            letters.append(_letter(Rejected("too_many_rejects", rest[0].origin, more, rows=rows)))
        self._producer.send(self._topic, letters)


def _letter(rejected: Rejected) -> Outgoing:
    headers = (
        ("reason", rejected.reason.encode()),
        ("origin", rejected.origin.encode("utf-8", "replace")),
        ("detail", rejected.detail.encode("utf-8", "replace")),
        ("rows", str(rejected.rows).encode()),
    )
    return Outgoing(rejected.origin.encode("utf-8", "replace"), rejected.payload or b"", headers)
