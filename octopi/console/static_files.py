"""The console's files, as HTTP answers.

Only names that are plain are looked up, and nothing in them is decoded: what could lead out
of the folder is no name.
"""

from __future__ import annotations

import re
import zlib
from importlib.resources import files
from typing import Final

from octopi.transport.http_requests import HttpAnswer, HttpRequest, plain

PREFIX: Final = "/console/"

CONTENT_SECURITY_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "font-src 'self'",
        # The console reads from whichever broker has the log; client/connection.js has why https.
        "connect-src 'self' ws: wss: https:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)

_NAME: Final = re.compile(
    r"(?:[A-Za-z0-9_-][A-Za-z0-9._-]*/)*[A-Za-z0-9_-][A-Za-z0-9._-]*", re.ASCII
)

_CONTENT_TYPES: Final = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "ico": "image/x-icon",
    "js": "text/javascript; charset=utf-8",
    "json": "application/json",
    "map": "application/json",
    "mjs": "text/javascript; charset=utf-8",
    "png": "image/png",
    "svg": "image/svg+xml",
    "ts": "text/plain; charset=utf-8",
    "txt": "text/plain; charset=utf-8",
    "woff2": "font/woff2",
}


def console_file(request: HttpRequest) -> HttpAnswer:
    """The file that *request* asks for, below `PREFIX`."""
    name = request.path.removeprefix(PREFIX) or "index.html"
    content_type = _CONTENT_TYPES.get(name.rpartition(".")[2])
    if _NAME.fullmatch(name) is None or content_type is None:
        return _missing()
    place = files(__package__).joinpath("static", *name.split("/"))
    if not place.is_file():
        return _missing()
    content = place.read_bytes()
    headers = (
        ("content-security-policy", CONTENT_SECURITY_POLICY),
        ("cache-control", "no-cache"),
        ("etag", f'"{zlib.crc32(content):08x}-{len(content)}"'),
    )
    if request.headers.get("if-none-match") == headers[-1][1]:
        return HttpAnswer(304, b"", content_type, headers)
    return HttpAnswer(200, content, content_type, headers)


def _missing() -> HttpAnswer:
    return plain(404, "the console has no such file")
