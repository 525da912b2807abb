"""JSON as real producers write it, and what the quick parsers do not tell."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

_PIECE = 32_768
"""Octets looked at together: they and what is made of them stay in the CPU's nearest cache."""


class TwiceAKeyError(ValueError):
    """An object has a key twice: which of the two values holds is anybody's guess."""


def parse(message: bytes) -> Any:
    """Any JSON, with Python's ``NaN`` and ``Infinity``, which JSON does not have.

    Raises ValueError (`TwiceAKeyError` among them) or RecursionError.
    """
    content = json.loads(message, object_pairs_hook=_unique)
    if b"\\u" in message:
        # Half a surrogate pair is a text that cannot be written anywhere again.
        json.dumps(content, ensure_ascii=False).encode("utf-8")
    return content


def with_twice_a_key(messages: Sequence[bytes], present: int) -> set[int]:
    """Indices of the valid messages in which a row has a key twice.

    ``present`` is how many values that are not null were read from all. Every key ends in
    ``":``, so as many of these as values (or only as many colons) means that no key stood twice.
    A text may contain them, too: only if the numbers differ are the messages looked at one by
    one.
    """
    if _count(messages, _colons) == present:
        return set()
    keys = _count(messages, _keys)
    if keys == present or keys == present + sum(message.count(b"null") for message in messages):
        return set()
    found = set()
    for index, message in enumerate(messages):
        try:
            parse(message)
        except TwiceAKeyError:
            found.add(index)
    return found


def _count(messages: Sequence[bytes], of: Callable[[NDArray[np.uint8]], int]) -> int:
    """The sum over all messages, of which none begins or ends in the middle of a key."""
    total = sum(map(len, messages))
    step = max(1, _PIECE * len(messages) // max(total, 1))
    pieces = (b"".join(messages[at : at + step]) for at in range(0, len(messages), step))
    return sum(of(np.frombuffer(piece, np.uint8)) for piece in pieces)


def _colons(octets: NDArray[np.uint8]) -> int:
    return int(np.count_nonzero(octets == ord(":")))


def _keys(octets: NDArray[np.uint8]) -> int:
    return int(np.count_nonzero((octets[:-1] == ord('"')) & (octets[1:] == ord(":"))))


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise TwiceAKeyError("a key stands twice in a row")
    return found
