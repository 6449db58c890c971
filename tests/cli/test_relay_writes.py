"""Nothing between a producer and a consumer of a topic in memory writes a file: what the processes
ask the system for, as strace sees it."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
import trio

import octopi
from harness.processes import NodeProcess, NodeProcesses
from octopi.cli.free_ports import free_port

pytestmark = pytest.mark.process

MESSAGES: Final = 40
CALLS: Final = (
    "write,writev,pwrite64,pwritev,pwritev2,fsync,fdatasync,sync_file_range,syncfs,ftruncate,"
    "fallocate,rename,renameat,renameat2,io_uring_enter,sendto,sendmsg"
)
_CALL: Final = re.compile(r"\d+ +(?P<at>\d+\.\d+) (?P<name>\w+)\((?:\d+<(?P<target>[^>]*)>)?")
_SOCKET: Final = ("socket:", "pipe:", "anon_inode:", "/dev/")


@pytest.fixture(scope="module", autouse=True)
def _strace() -> None:
    if shutil.which("strace") is None:
        if os.environ.get("CI"):
            pytest.fail("CI has to install strace")
        pytest.skip("this needs strace (Debian: apt-get install strace)")


def traced(node: NodeProcess) -> Path:
    """Have *node* run under strace when it is launched; return where the calls will be."""
    calls = node.log_file.with_suffix(".calls")
    command = node.command

    def under_strace(*arguments: str) -> list[str]:
        look = ["strace", "-f", "-ttt", "-y", "-q", "--seccomp-bpf", "-e", f"trace={CALLS}"]
        return [*look, "-o", str(calls), *command(*arguments)]

    node.command = under_strace
    return calls


@contextmanager
def ended(*nodes: NodeProcess) -> Iterator[None]:
    """Have *nodes* end by themselves behind the block, so that strace has told everything.  A node
    whose strace is killed would go on, with calls that fail."""
    processes = [one._running() for one in nodes]
    try:
        yield
        for one in processes:
            assert one.stdin is not None
            one.stdin.close()
        for node in nodes:
            node.wait()
    finally:
        for one in processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(one.pid, signal.SIGKILL)  # of a session of its own


def calls_in(path: Path, begin: float, end: float) -> tuple[int, Counter[str]]:
    """How much was sent to sockets in that time, and the calls that concern files."""
    sent, files = 0, Counter[str]()
    for line in path.read_text(errors="replace").splitlines():
        call = _CALL.match(line)
        if call is None or not begin <= float(call["at"]) <= end:
            continue
        target = call["target"] or ""
        if target.startswith(_SOCKET):
            sent += target.startswith("socket:")
        else:
            files[f"{call['name']} {target}"] += 1
    return sent, files


async def produce_and_consume(entrance: str, others: list[str]) -> tuple[float, float]:
    """Send messages at *entrance*, and read all of them at it and the *others*; return when that
    began and ended, without the connecting and the first message."""
    begun = ended = 0.0
    with trio.fail_after(90):
        async with trio.open_nursery() as nursery:
            got = {url: [trio.Event(), trio.Event()] for url in (entrance, *others)}

            async def consume(url: str) -> None:
                async with (
                    octopi.connect(url) as client,
                    client.consumer("prices", start="earliest") as consumer,
                ):
                    await anext(consumer)
                    got[url][0].set()
                    for number in range(MESSAGES):
                        assert (await anext(consumer)).value == b"%d" % number
                    got[url][1].set()

            async with octopi.connect(entrance) as client, client.producer() as producer:
                await producer.send("prices", b"first")
                for url in got:
                    nursery.start_soon(consume, url)
                for events in got.values():
                    await events[0].wait()
                begun = time.time()
                for number in range(MESSAGES):
                    await producer.send("prices", b"%d" % number)
                for events in got.values():
                    await events[1].wait()
                ended = time.time()
    return begun, ended


def test_no_relay_writes_a_file_between_a_producer_and_consumers(nodes: NodeProcesses) -> None:
    listens = [f"127.0.0.1:{free_port()}" for _ in range(3)]
    peers = ",".join(f"{number}=ws://{one}" for number, one in enumerate(listens, 1))
    relays = [
        nodes.node(
            f"relay-{number}", "broker", "--listen", listen, "--id", str(number),
            "--relay-peers", peers, "--partitions", "1",
        )
        for number, listen in enumerate(listens, 1)
    ]  # fmt: skip
    traces = [traced(one) for one in relays]
    for one in relays:
        one.launch()
    with ended(*relays):
        for one in relays:
            one.wait_ready()
        others = [one.url for one in relays[1:]]
        begin, end = trio.run(produce_and_consume, relays[0].url, others)
    for path in traces:
        sent, files = calls_in(path, begin, end)
        assert files == Counter(), path.name
        assert sent >= MESSAGES, "strace sees what is sent"


def test_a_topic_in_logs_is_seen_to_be_written(nodes: NodeProcesses) -> None:
    """The trace would notice."""
    register = nodes.register()
    broker = nodes.node("broker-1", "broker", "--register", register.url)
    path = traced(broker)
    broker.launch()

    async def run() -> tuple[float, float]:
        async with octopi.connect(broker.url) as client:
            await client.create_topic("prices")
        return await produce_and_consume(broker.url, [])

    with ended(broker):
        broker.wait_ready()
        begin, end = trio.run(run)
    _, files = calls_in(path, begin, end)
    assert files.total() >= MESSAGES, files
