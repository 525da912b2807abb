"""What odd machines have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

PHYSICAL = ("leaf_switch", "rack", "pdu")
FIRST = (*PHYSICAL, "pipeline_stage")
NEVER = frozenset({"data_rank", "rank", "hostname", "uuid"})
MOST_OF_MEMBERS = 0.8
MOST_OF_GROUP = 0.65


@dataclass(frozen=True, slots=True)
class Shared:
    """An attribute value such as ``leaf_switch=sw3`` and the machines that have it.

    ``physical``: it is a piece of hardware, not a part of the job.
    """

    name: str
    machines: frozenset[str]
    physical: bool


def shared_by(
    members: Sequence[str],
    topology: Mapping[str, Mapping[str, Any]],
    machines: Sequence[str],
) -> Shared | None:
    """The attribute value that covers most of ``members`` and is mostly covered by them.

    None when there is none, or when everybody has it (then it explains nothing).
    """
    if len(members) < 2 or not topology:
        return None
    odd = set(members)
    names = {key for m in members for key in topology.get(m, {})} - NEVER
    ranked = [n for n in FIRST if n in names] + sorted(names - set(FIRST))
    best, covered = None, 0.0
    for name in ranked:
        values = sorted({str(topology[m][name]) for m in members if name in topology.get(m, {})})
        for value in values:
            having = frozenset(m for m in machines if str(topology.get(m, {}).get(name)) == value)
            if len(having) < 2 or len(having) == len(machines):
                continue
            both = len(having & odd)
            share = both / len(having)
            # What is odd as a whole explains more than what is odd in part.
            if both >= MOST_OF_MEMBERS * len(odd) and share >= MOST_OF_GROUP and share > covered:
                best, covered = Shared(f"{name}={value}", having, name in PHYSICAL), share
    return best
