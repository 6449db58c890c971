"""The console's files, as HTTP answers.

There are those files that the folder had when one was asked for first.  A name is looked up
among theirs, and never given to the file system, whatever it holds.  Browsers that take gzip get
text compressed, and nothing if they have the file already.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterator
from functools import cache, lru_cache
from importlib.resources import files
from importlib.resources.abc import Traversable
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
        # The console reads from whichever broker has the log; client/connection.js has why http.
        "connect-src 'self' ws: wss: http: https:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
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

_COMPRESSIBLE: Final = ("text/", "application/json", "image/svg")
_WEIGHT_ZERO: Final = re.compile(r"q=0(\.0*)?")


def console_file(request: HttpRequest) -> HttpAnswer:
    """The file that *request* asks for, below `PREFIX`."""
    name = request.path.removeprefix(PREFIX) or "index.html"
    place = _places().get(name)
    if place is None:
        return plain(404, "the console has no such file")
    content_type = _CONTENT_TYPES[name.rpartition(".")[2]]
    content = place.read_bytes()
    tag = f"{zlib.crc32(content):08x}-{len(content)}"
    headers = [
        ("content-security-policy", CONTENT_SECURITY_POLICY),
        ("cache-control", "no-cache"),
    ]
    if content_type.startswith(_COMPRESSIBLE):
        headers.append(("vary", "accept-encoding"))
        if _takes_gzip(request.headers.get("accept-encoding", "")):
            content, tag = _gzipped(content), f"{tag}-gzip"
            headers.append(("content-encoding", "gzip"))
    headers.append(("etag", f'"{tag}"'))
    if _has(request.headers.get("if-none-match", ""), tag):
        return HttpAnswer(304, b"", content_type, tuple(headers))
    return HttpAnswer(200, content, content_type, tuple(headers))


def _takes_gzip(accepted: str) -> bool:
    """Whether an ``Accept-Encoding`` has gzip by its name, and not with the weight 0."""
    for one in accepted.lower().split(","):
        coding, _, parameter = one.partition(";")
        if coding.strip() == "gzip":
            return not _WEIGHT_ZERO.fullmatch(parameter.replace(" ", ""))
    return False


def _has(known: str, tag: str) -> bool:
    """Whether an ``If-None-Match`` has *tag*, from which a proxy may have made a weak one."""
    return any(one.strip().removeprefix("W/") == f'"{tag}"' for one in known.split(","))


@lru_cache(maxsize=256)
def _gzipped(content: bytes) -> bytes:
    return gzip.compress(content, compresslevel=9, mtime=0)


@cache
def _places() -> dict[str, Traversable]:
    """The files by their names, with slashes."""
    return dict(_below(files(__package__).joinpath("static"), ""))


def _below(folder: Traversable, prefix: str) -> Iterator[tuple[str, Traversable]]:
    for place in folder.iterdir():
        if place.is_dir():
            yield from _below(place, f"{prefix}{place.name}/")
        elif place.name.rpartition(".")[2] in _CONTENT_TYPES:
            yield f"{prefix}{place.name}", place
