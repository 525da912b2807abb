"""``/alerts/{alert_id}/picture.png``: the alert as a picture, for messages.

Beside a token, the signature of the link in the alert's ``links`` opens it, and nothing else.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query
from fastapi.security import HTTPAuthorizationCredentials
from starlette.requests import Request
from starlette.responses import Response

from serve.api.auth import Using, bearer, require, services_of
from serve.api.problems import ProblemError, responses
from serve.api.shared import LARGEST_NS, PREFIX, EntityId, tag_of, tagged
from serve.lifecycle import NoSuchAlertError, find_alert
from serve.picture.pictures import BusyError
from serve.store.codec import alert_from_row

router = APIRouter(prefix=PREFIX, tags=["alerts"])

_PNG = "image/png"
_FORM: dict[int | str, dict[str, Any]] = {
    200: {"content": {_PNG: {"schema": {"type": "string", "format": "binary"}}}}
}


def _by_link(
    request: Request,
    alert_id: EntityId,
    credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)],
    expires: Annotated[
        int | None, Query(ge=0, le=LARGEST_NS, description="Of a signed link; seconds.")
    ] = None,
    signature: Annotated[
        str | None, Query(pattern=r"^[0-9a-f]{64}$", description="Of a signed link.")
    ] = None,
) -> bool:
    """Whether a link's signature opened it; a token with the scope read does, too."""
    services = services_of(request)
    signer = services.links.signer
    if (
        signer is not None
        and expires is not None
        and signature is not None
        and signer.opens(alert_id, expires, signature, now_ns=services.database.clock())
    ):
        return True
    require("read")(request, credentials)
    return False


@router.get(
    "/alerts/{alert_id}/picture.png", response_class=Response, responses=responses(404) | _FORM
)
def picture(
    request: Request,
    services: Using,
    by_link: Annotated[bool, Depends(_by_link)],
    alert_id: EntityId,
) -> Response:
    """The machine's strongest metrics over its peers' band, with onset, alert and scores."""
    try:
        with services.database.read() as session:
            row = find_alert(session, alert_id)
            alert, version = alert_from_row(row), row.version
    except NoSuchAlertError:
        raise ProblemError(404, f"There is no alert {alert_id!r}.") from None
    try:
        body = services.pictures.png(
            alert,
            version,
            services.history,
            services.metric_unit,
            now_ns=services.database.clock(),
        )
    except BusyError:
        busy = {"Retry-After": "5"}
        raise ProblemError(503, "Other pictures are being drawn.", headers=busy) from None
    found = tagged(request, body, tag_of(body), _PNG)
    if by_link:
        # Some chat programs let the reader's browser fetch it, from their own page.
        found.headers["Cross-Origin-Resource-Policy"] = "cross-origin"
    return found
