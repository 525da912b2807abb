"""API tokens: made, kept as hashes, checked in constant time.

A token reads ``wl_ID_SECRET``. The secret has 256 random bits, so one SHA-256 is enough to
keep it (there is nothing to guess); the id finds the row, the hash decides.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from sqlalchemy import select
from sqlalchemy.orm import Session

from serve.store.tables import TokenRow

Scope = Literal["read", "write"]
_IMPLIED: dict[str, frozenset[str]] = {
    "read": frozenset({"read"}),
    "write": frozenset({"read", "write"}),
    # Of tokens made when there was such a scope; it never allowed more than ``write``.
    "admin": frozenset({"read", "write"}),
}
_PREFIX = "wl"


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks. ``scopes`` includes what a scope implies (write > read)."""

    name: str
    scopes: frozenset[str]


ANYBODY = Principal("local", _IMPLIED["write"])
"""The one caller when tokens are off (only this machine can reach the service)."""


def create_token(
    session: Session,
    name: str,
    scopes: Collection[Scope],
    *,
    now_ns: int,
    expires_at_ns: int | None = None,
) -> str:
    """Store a new token's hash; the returned text is shown once and never again."""
    token_id, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
    session.add(
        TokenRow(
            id=token_id,
            name=name,
            scopes=sorted(scopes),
            secret_sha256=digest(secret),
            created_at_ns=now_ns,
            expires_at_ns=expires_at_ns,
        )
    )
    return f"{_PREFIX}_{token_id}_{secret}"


def list_tokens(session: Session) -> list[TokenRow]:
    """All tokens, oldest first; secrets are not known."""
    return list(session.scalars(select(TokenRow).order_by(TokenRow.created_at_ns, TokenRow.id)))


def revoke_token(session: Session, token_id: str) -> bool:
    """Remove a token at once; False if there is none of this id."""
    row = session.get(TokenRow, token_id)
    if row is not None:
        session.delete(row)
    return row is not None


def check_token(session: Session, token: str, *, now_ns: int) -> Principal | None:
    """Whose token it is; None if it is nobody's or over."""
    prefix, _, rest = token.partition("_")
    token_id, _, secret = rest.partition("_")
    row = session.get(TokenRow, token_id) if prefix == _PREFIX and len(token) < 200 else None
    # Compare in any case: the time must not tell whether the id exists.
    expected = row.secret_sha256 if row else digest("")
    matches = hmac.compare_digest(digest(secret), expected)
    if row is None or not matches:
        return None
    if row.expires_at_ns is not None and row.expires_at_ns <= now_ns:
        return None
    granted = frozenset[str]().union(*(_IMPLIED.get(scope, frozenset()) for scope in row.scopes))
    return Principal(row.name, granted)


def digest(secret: str) -> str:
    """SHA-256 of a secret."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
