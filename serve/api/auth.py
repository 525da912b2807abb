"""Who asks, and what they may do.

A token comes as ``Authorization: Bearer …``. Where tokens are off (a service that only its
own machine can reach), everybody may do everything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from fastapi import Depends
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.requests import Request

from serve.api.problems import ProblemError
from serve.services import Services
from serve.tokens import ANYBODY, Principal, Scope, check_token, digest

bearer = HTTPBearer(auto_error=False, description="A token of `weaklink tokens create`.")
_CHALLENGE = {"WWW-Authenticate": 'Bearer realm="weaklink"'}


def services_of(request: Request) -> Services:
    """The services of the app that answers."""
    services: Services = request.app.state.services
    return services


def _principal(services: Services, credentials: HTTPAuthorizationCredentials | None) -> Principal:
    if not services.config.auth_on:
        return ANYBODY
    if credentials is None:
        raise ProblemError(401, "A bearer token is needed.", headers=_CHALLENGE)
    with services.database.read() as session:
        now_ns = services.database.clock()
        principal = check_token(session, credentials.credentials, now_ns=now_ns)
    if principal is None:
        raise ProblemError(401, "The token is not valid.", headers=_CHALLENGE)
    services.verified_tokens.add(digest(credentials.credentials))
    return principal


def require(scope: Scope) -> Callable[..., Principal]:
    """A dependency: who asks, if their token has the scope; else 401 or 403."""

    def check(
        request: Request,
        credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)],
    ) -> Principal:
        principal = _principal(services_of(request), credentials)
        if scope not in principal.scopes:
            raise ProblemError(403, f"The token lacks the scope {scope!r}.")
        return principal

    return check


Reader = Annotated[Principal, Depends(require("read"))]
Writer = Annotated[Principal, Depends(require("write"))]
Using = Annotated[Services, Depends(services_of)]
"""The services, as a route's parameter."""
