"""The page's own files: read once, served from memory under an address that their content names.

Nothing is looked up on disk by what a request says, so there is no path to walk out of.
"""

from __future__ import annotations

import hashlib
import mimetypes
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

from starlette.requests import Request
from starlette.responses import Response

_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


class Assets:
    """Static files of the page (``page/…``) and of the shared views (``view/…``)."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self._add("page", files("serve.page") / "static")
        self._add("view", files("replay.view") / "static")
        digest = hashlib.sha256()
        for name in sorted(self.files):
            digest.update(name.encode() + b"\0" + self.files[name] + b"\0")
        self.version = digest.hexdigest()[:12]

    def _add(self, prefix: str, folder: Traversable) -> None:
        for entry in folder.iterdir():
            name = f"{prefix}/{entry.name}"
            if entry.is_dir():
                self._add(name, entry)
            else:
                self.files[name] = entry.read_bytes()

    def respond(self, request: Request, version: str, name: str) -> Response:
        """The file, for ever cacheable under its version; 404 for any other name."""
        body = self.files.get(name)
        if body is None or version != self.version:
            return Response("no such file\n", 404, media_type="text/plain")
        suffix = name[name.rfind(".") :]
        kind = _TYPES.get(suffix) or mimetypes.guess_type(name)[0] or "text/plain"
        headers = {"Cache-Control": "public, max-age=31536000, immutable"}
        return Response(b"" if request.method == "HEAD" else body, media_type=kind, headers=headers)


@cache
def page_assets() -> Assets:
    """The files as they are when first asked for; they belong to the code and do not change."""
    return Assets()
