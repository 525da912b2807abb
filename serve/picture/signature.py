"""Signed addresses of pictures: chat services fetch images without a bearer token.

The signature is HMAC-SHA256 (RFC 2104) over a purpose, the alert's id and the time of expiry. It
opens one alert's picture until then, and nothing else.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field
from urllib.parse import urlencode

_PURPOSE = "weaklink alert picture 1"
_SECOND = 1_000_000_000


@dataclass(frozen=True, slots=True)
class PictureSigner:
    """Signs with ``key`` for ``valid_ns`` nanoseconds."""

    key: bytes = field(repr=False)
    valid_ns: int

    def query(self, alert_id: str, at_ns: int) -> str:
        """The query of an address made at ``at_ns``; the same for the same alert and time."""
        expires = (at_ns + self.valid_ns) // _SECOND
        return urlencode({"expires": expires, "signature": self._sign(alert_id, expires)})

    def opens(self, alert_id: str, expires: int, signature: str, *, now_ns: int) -> bool:
        """Whether the signature is ours and not over; ``expires`` in seconds since the epoch."""
        # Compare in any case: the time must not tell which of the two is wrong.
        ours = hmac.compare_digest(self._sign(alert_id, expires).encode(), signature.encode())
        return ours and now_ns < expires * _SECOND

    def _sign(self, alert_id: str, expires: int) -> str:
        signed = "\0".join((_PURPOSE, alert_id, str(expires)))
        return hmac.new(self.key, signed.encode("utf-8", "replace"), hashlib.sha256).hexdigest()
