"""A node that is a stranger's can't make a terminal obey it, whichever command looks at it."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import attrs
import pytest
import trio

from harness.processes import NodeProcesses
from octopi.identifiers import BrokerId, Epoch, Incarnation, Offset, PartitionId
from octopi.printable import has_controls
from octopi.transport.connection import Connection
from octopi.transport.server import serve
from octopi.wire import messages as m
from octopi.wire.endpoints import CLIENT
from tests.kit.cluster import system_environment

EVIL = "bad\x1b]0;owned\x07\x1b[2J\r\n\x9b31m\x7f\u202eevil\u2028healthy"


@attrs.define
class _EvilSession:
    """Answers what it is asked with texts that are commands for terminals."""

    connection: Connection
    url: str
    refuses: bool

    def handle(self, message: object) -> None:
        request = getattr(message, "request", None)
        if request is not None:
            self.connection.post(
                m.Failure(request, 1, EVIL) if self.refuses else self._answer(message, request)
            )

    def _answer(self, message: object, request: int) -> object:
        place = m.PartitionInfo(
            PartitionId(0),
            Epoch(1),
            BrokerId(1),
            self.url,
            [BrokerId(1), BrokerId(2)],
            [BrokerId(1)],
            [self.url],
            [],
            False,
            Epoch(0),
            [m.ReplicaTroubleAt(BrokerId(1), EVIL)],
        )
        topic = m.TopicInfo(
            getattr(message, "topic", "") or "orders", EVIL, [place], m.TopicOptions()
        )
        match message:
            case m.DescribeTopic():
                return m.TopicDescription(request, topic)
            case m.ListTopics():
                return m.TopicList(request, [topic], False)
            case m.DescribeCluster():
                broker = m.BrokerInfo(BrokerId(1), self.url, Incarnation(1), True, 1, 0, 1, EVIL)
                return m.ClusterDescription(request, EVIL, 1, 1, [broker], [place])
            case m.DescribeLogs():
                log = m.LogInfo(
                    "orders",
                    EVIL,
                    PartitionId(0),
                    Epoch(1),
                    Offset(0),
                    Offset(0),
                    Offset(0),
                    0,
                    EVIL,
                )
                return m.LogList(request, [log], False)
            case _:
                return m.Failure(request, 1, EVIL)

    def token_refreshed(self) -> None:
        pass

    def closed(self) -> None:
        pass


COMMANDS = [
    ["status"],
    ["status", "--json"],
    ["brokers", "list"],
    ["brokers", "list", "--json"],
    ["brokers", "drain", "1"],
    ["partitions", "list"],
    ["partitions", "list", "--json"],
    ["partitions", "recover", "0"],
    ["topics", "list"],
    ["topics", "list", "--json"],
    ["topics", "describe", "orders"],
    ["topics", "describe", "orders", "--json"],
    ["topics", "create", "orders"],
    ["topics", "delete", "--yes", "orders"],
    ["consume", "orders", "-e"],
    ["consume", "orders", "-e", "--debug"],
    ["produce", "orders", "--retry", "0.1"],
]


@pytest.mark.process
@pytest.mark.parametrize("refuses", [False, True], ids=["answers", "refuses"])
async def test_no_command_prints_control_characters_that_a_node_sent(refuses: bool) -> None:
    stop = trio.Event()
    async with trio.open_nursery() as nursery:
        urls: list[str] = []
        serving = partial(
            serve,
            system_environment(nursery),
            "127.0.0.1:0",
            "register",
            "a program",
            {CLIENT: lambda connection, _: _EvilSession(connection, urls[0], refuses)},
            stop=stop,
        )
        urls.append(await nursery.start(serving))
        for command in COMMANDS:
            options = ["--server", urls[0], "--timeout", "2"]
            shown = await trio.to_thread.run_sync(on_terminal, [*command, *options])
            assert shown, command
            assert not any(map(has_controls, lines_of(shown))), (command, shown)
        nursery.cancel_scope.cancel()


def test_consume_prints_no_control_characters_of_messages_to_a_terminal(
    nodes: NodeProcesses, tmp_path: Path
) -> None:
    register = nodes.register("register")
    nodes.broker(register, "broker")
    evil = EVIL.replace("\n", "").encode() + b"\xff\xfe"
    lines = tmp_path / "lines"
    lines.write_bytes(evil + b"\n")
    program = [sys.executable, "-m", "octopi_node"]
    there = ["--server", register.url]
    key = EVIL.replace("\n", "")
    produce = ["produce", "orders", "-f", str(lines), "--key", key, *there]
    subprocess.run([*program, *produce], check=True, capture_output=True)
    consume = ["consume", "orders", "-e", *there]
    for form in ([], ["-f", r"%k %v %h %t\n"], ["--json"]):
        shown = on_terminal([*consume, *form])
        assert "owned" in shown
        assert not any(map(has_controls, lines_of(shown))), shown
    assert evil.decode(errors="replace") in on_terminal([*consume, "--raw"]).replace("\r\n", "\n")
    piped = subprocess.run([*program, *consume], check=True, capture_output=True)
    assert piped.stdout == evil + b"\n"


def lines_of(shown: str) -> list[str]:
    """What stood on each line: the terminal's driver ends them with two characters."""
    return shown.replace("\r\n", "\n").split("\n")


def on_terminal(arguments: list[str]) -> str:
    """All that the program sent to a terminal that knows no colours."""
    ours, theirs = os.openpty()
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "octopi_node", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=theirs,
            env={**os.environ, "TERM": "dumb", "NO_COLOR": "1"},
        )
    finally:
        os.close(theirs)
    said = bytearray()
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # EIO: the last one that had it open is gone
            break
        if not piece:
            break
        said += piece
    os.close(ours)
    process.wait()
    return said.decode(errors="replace")
