"""The console's files: what there is, and that nothing else can be had."""

import gzip

import pytest
from trio.testing import MockClock

from octopi.console.static_files import console_file
from octopi.transport.http_front import EmptySite
from octopi.transport.http_requests import Asker, HttpAnswer, HttpRequest
from tests.kit.streams import MemoryStreams
from tests.transport.serving import serving


def asked(path: str, **headers: str) -> HttpRequest:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return HttpRequest("GET", path, {}, named, Asker("test"))


@pytest.mark.parametrize("path", ["/console/", "/console/index.html"])
def test_the_console_is_a_page_that_loads_nothing_from_elsewhere(path: str) -> None:
    answer = console_file(asked(path))
    assert answer.status == 200
    assert answer.content_type == "text/html; charset=utf-8"
    assert answer.body.startswith(b"<!doctype html>")
    policy = dict(answer.headers)["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self';")
    assert "unsafe" not in policy


def test_a_file_that_the_browser_has_is_not_sent_again() -> None:
    tag = dict(console_file(asked("/console/")).headers)["etag"]
    answer = console_file(asked("/console/", if_none_match=tag))
    assert (answer.status, answer.body) == (304, b"")
    assert console_file(asked("/console/", if_none_match='"other"')).status == 200


@pytest.mark.parametrize(
    ("accepted", "compressed"),
    [
        ("gzip", True),
        ("gzip, deflate, br, zstd", True),
        ("br;q=1.0, GZIP;q=0.8, *;q=0.1", True),
        ("br, gzip;q=0", False),
        ("gzip; q=0.000", False),
        ("identity", False),
        ("xgzip", False),
        ("", False),
        (None, False),
    ],
)
def test_text_is_compressed_for_who_takes_gzip(accepted: str | None, compressed: bool) -> None:
    headers = {} if accepted is None else {"accept_encoding": accepted}
    answer = console_file(asked("/console/octopi.js", **headers))
    found = dict(answer.headers)
    plain = console_file(asked("/console/octopi.js"))
    assert found["vary"] == "accept-encoding"
    assert found.get("content-encoding") == ("gzip" if compressed else None)
    body = gzip.decompress(answer.body) if compressed else answer.body
    assert body == plain.body
    assert answer.content_type == "text/javascript; charset=utf-8"
    # A cache must not take one for the other.
    assert (found["etag"] == dict(plain.headers)["etag"]) is not compressed
    for known in (found["etag"], f"W/{found['etag']}", f'"other", {found["etag"]}'):
        again = console_file(asked("/console/octopi.js", if_none_match=known, **headers))
        assert (again.status, again.body) == (304, b"")
        assert dict(again.headers) == found


@pytest.mark.parametrize(
    "path",
    [
        "/console/../__init__.py",
        "/console/../static_files.py",
        "/console/static/../../static_files.py",
        "/console/..%2fstatic_files.py",
        "/console/%2e%2e/static_files.py",
        "/console/..\\static_files.py",
        "/console//etc/passwd",
        "/console//index.html",
        "/console/./index.html",
        "/console/index.html/",
        "/console/index.html%00.js",
        "/console/.index.html",
        "/console/index.html.",
        "/console/a/.b/index.html",
        "/console/index",
        "/console/no-such-file.js",
        "/console/static",
        "/console/index.html\n",
    ],
)
def test_nothing_else_can_be_had(path: str) -> None:
    answer = console_file(asked(path))
    assert answer.status == 404
    assert answer.body == b"the console has no such file\n"


@pytest.mark.parametrize(
    "name",
    [
        "a" * 16_000,
        "a" * 256 + ".js",
        "a/" * 5_000 + "index.html",
        "\0",
        "index.html\0",
        "%00",
        "%ff",
        "\xff\xfe.js",
        "\x80" * 1_000,
        "index.html%0d%0aset-cookie:x",
        "con\x1b[2J.js",
        "~",
        "client",
    ],
    ids=range(13),
)
async def test_any_name_is_answered_with_404_and_no_traceback(
    name: str, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        serving(streams=MemoryStreams(), site=_Console()) as server,
        await server.streams.connect("127.0.0.1", server.port) as stream,
    ):
        head = f"GET /console/{name} HTTP/1.1\r\nHost: test\r\n\r\n"
        await stream.send_all(head.encode("latin-1"))
        answer = b""
        while more := await stream.receive_some():
            answer += more
    assert answer.startswith((b"HTTP/1.1 404 ", b"HTTP/1.1 400 "))
    assert answer.startswith(b"HTTP/1.1 404 ") or not name.isprintable() or not name.isascii()
    assert not [one for one in caplog.records if one.exc_info]


class _Console(EmptySite):
    async def answer(self, request: HttpRequest) -> HttpAnswer:
        return console_file(request)
