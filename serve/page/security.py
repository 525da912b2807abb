"""What keeps the page safe in a browser: its policy, and a guard against other sites."""

from __future__ import annotations

from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types weaklink",
    )
)
"""Everything from here, nothing inline, nobody may frame it."""

PAGE_HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}

_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})


def comes_from_another_site(headers: Headers, allowed_origins: frozenset[str]) -> bool:
    """Whether a browser sent this from another site's page.

    Browsers state it in ``Sec-Fetch-Site`` or at least ``Origin``; other clients send
    neither and are no danger: they hold no signed-in reader's rights.
    """
    origin = headers.get("origin")
    if origin is not None and origin in allowed_origins:
        return False
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site not in ("same-origin", "none")
    if origin is None:
        return False
    return urlsplit(origin).netloc != headers.get("host", "")


class SameSiteGuard:
    """ASGI middleware: refuses state-changing requests that another site's page caused.

    Needed where no token is asked for: a loopback service must not be driven by whatever
    page an engineer happens to have open. ``allowed_origins`` are the configured CORS ones.
    """

    def __init__(self, app: ASGIApp, allowed_origins: tuple[str, ...] = ()):
        self.app = app
        self.allowed_origins = frozenset(allowed_origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 403 as problem details, or pass on."""
        if (
            scope["type"] == "http"
            and scope["method"] not in _SAFE_METHODS
            and comes_from_another_site(Headers(scope=scope), self.allowed_origins)
        ):
            problem = {
                "type": "about:blank",
                "title": "Forbidden",
                "status": 403,
                "detail": "The request was caused by another site's page.",
            }
            response = JSONResponse(problem, 403, media_type="application/problem+json")
            await response(scope, receive, send)
            return
        await self.app(scope, receive, send)
