"""The Autobahn cases, driven by kosoku, against a listener of ours: see docs/testing.md."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from tests.transport.echoing import echoing

PROGRAM = shutil.which("kosoku", path=str(Path(sys.executable).parent))

LEFT_OUT = {
    "6.*": "which text is UTF-8: nodes take no text at all",
    "12.*": "compression, which nodes never negotiate",
    "13.*": "the same with other parameters",
}

GOOD = {"OK", "NON-STRICT", "INFORMATIONAL"}


@pytest.mark.slow
@pytest.mark.skipif(
    PROGRAM is None and not os.environ.get("OCTOPI_REQUIRE_CONFORMANCE"),
    reason="kosoku is not installed: make conformance",
)
async def test_no_case_of_autobahn_fails(tmp_path: Path) -> None:
    assert PROGRAM is not None
    excluded = [argument for case in LEFT_OUT for argument in ("--exclude", case)]
    async with echoing() as address:
        with trio.fail_after(50):
            ran = await trio.run_process(
                [PROGRAM, *excluded, "-p", "16", "-o", str(tmp_path), address],
                check=False,
                capture_stdout=True,
                stderr=subprocess.STDOUT,
            )
    assert ran.returncode == 0, ran.stdout.decode()
    [results] = json.loads((tmp_path / "index.json").read_text()).values()
    assert len(results) > 150
    bad = {
        case: (one["behavior"], one["behaviorClose"])
        for case, one in results.items()
        if not {one["behavior"], one["behaviorClose"]} <= GOOD
    }
    assert bad == {}


@pytest.mark.parametrize("piece_bytes", [1, 3, 1000])
async def test_the_relay_to_the_listener_changes_only_the_type_of_text_frames(
    piece_bytes: int,
) -> None:
    upgrade = (
        b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    mask = bytes(4)
    text = b"\x81\xfe\x01\x00" + mask + bytes(256)
    parts = b"\x01\x83" + mask + b"abc" + b"\x89\x81" + mask + b"!" + b"\x80\x82" + mask + b"de"
    binary = b"\x82\x81" + mask + b"x"
    async with echoing() as address:
        host, _, port = address.partition(":")
        async with await trio.open_tcp_stream(host, int(port)) as stream:
            await stream.send_all(upgrade)
            sent = text + parts + binary
            for at in range(0, len(sent), piece_bytes):
                await stream.send_all(sent[at : at + piece_bytes])
            expected = b"\x81\x7e\x01\x00" + bytes(256) + b"\x8a\x01!" + b"\x81\x05abcde\x82\x01x"
            heard = b""
            with trio.fail_after(10):
                while not heard.endswith(expected):
                    heard += await stream.receive_some()
            head = heard[: -len(expected)]
            assert head.startswith(b"HTTP/1.1 101")
            assert b"sec-websocket-protocol" not in head.lower()
