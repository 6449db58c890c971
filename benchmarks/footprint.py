"""Measures what nodes need: memory and processor time when idle, for a connection, a subscriber and
a topic, and with a long log; and how soon a broker that was killed with that log serves again.

Starts a register and one broker as processes, with default settings.  Connections are bare sockets
that only send a greeting.  ``--log-gb 10`` needs 10 GB of disk for a minute or two.  Prints JSON on
standard output.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

import trio

import octopi
from benchmarks.machine import machine
from benchmarks.processes import main_thread_s
from benchmarks.subscribers import Greeting, connected
from harness.processes import NodeProcess, NodeProcesses, node_processes
from octopi.identifiers import Offset, PartitionId
from octopi.wire.codec import encode
from octopi.wire.endpoints import CLIENT
from octopi.wire.messages import PROTOCOL_VERSION, SUBPROTOCOL, Hello, Subscribe

TOPIC: Final = "measured"
IDLE_S: Final = 10.0
SETTLE_S: Final = 15.0
"""How long to wait until new brokers have their replicas."""

REST_S: Final = 2.0
"""How long nodes get to finish what a change of load has caused."""
VALUE: Final = bytes(16 * 1024)
GROUP: Final = 500
TOPICS_AT_A_TIME: Final = 50


class Measurement:
    """The figures of a register and a broker, which are measured one after another."""

    def __init__(self, register: NodeProcess, broker: NodeProcess) -> None:
        self.figures: dict[str, float] = {}
        self._register, self._broker = register, broker

    def idle(self) -> None:
        """Measure memory and processor time without clients."""
        for node in (self._register, self._broker):
            self.figures[f"{node.name}_idle_mb"] = node.rss_bytes() / 1e6
        self._idle_cpu("alone")

    def brokers(self, nodes: NodeProcesses, count: int) -> None:
        """Start *count* more brokers, and measure the processor time of the register and the first
        broker."""
        for number in range(count):
            nodes.broker(self._register, f"broker-{number + 2}")
        time.sleep(SETTLE_S)
        self._idle_cpu(f"with_{count}_more")

    def _idle_cpu(self, when: str) -> None:
        nodes = (self._register, self._broker)
        before = [main_thread_s(node.pid) for node in nodes]
        time.sleep(IDLE_S)
        for node, then in zip(nodes, before, strict=True):
            used_s = main_thread_s(node.pid) - then
            self.figures[f"{node.name}_idle_cpu_us_per_s_{when}"] = used_s / IDLE_S * 1e6

    def connections(self, count: int) -> None:
        """Measure *count* clients that only send a greeting, and *count* that also subscribe."""
        hello = encode(Hello(PROTOCOL_VERSION, "benchmark"))
        partition = trio.run(_make_topic, self._register.url)
        subscribe = Subscribe(1, TOPIC, PartitionId(partition), Offset(0), 1 << 30)
        for what, messages in (
            ("connection", [hello]),
            ("subscriber", [hello, encode(subscribe)]),
        ):
            with ExitStack() as sockets:
                connect = partial(_connect, sockets, self._broker.url, messages, count)
                self._grow(what, count, connect)
            time.sleep(REST_S)

    def topics(self, count: int) -> None:
        """Measure *count* unused topics, and a restart with them."""
        self._grow("topic", count, lambda: trio.run(_create, self._register.url, count))
        self._kill_and_restart(f"with_{count}_topics")

    def long_log(self, log_gb: float) -> None:
        """Measure a log of *log_gb*, and how soon a broker that was killed with it serves again."""
        before = self._broker.rss_bytes()
        trio.run(_fill, self._register.url, int(log_gb * 1e9) // len(VALUE))
        self.figures["broker_growth_over_log_mb"] = (self._broker.rss_bytes() - before) / 1e6
        self.figures["broker_most_mb"] = self._broker.rss_bytes_max() / 1e6
        self._kill_and_restart(f"with_{log_gb:g}_gb")

    def _kill_and_restart(self, when: str) -> None:
        self._broker.kill9()
        began = time.perf_counter()
        self._broker.restart()
        self.figures[f"killed_to_ready_{when}_s"] = time.perf_counter() - began
        trio.run(_fill, self._register.url, 1)
        self.figures[f"killed_to_first_receipt_{when}_s"] = time.perf_counter() - began

    def _grow(self, what: str, count: int, make: Callable[[], None]) -> None:
        nodes = (self._register, self._broker)
        before = {node.name: node.rss_bytes() for node in nodes}
        cpu_before = {node.name: main_thread_s(node.pid) for node in nodes}
        began = time.perf_counter()
        make()
        self.figures[f"{what}s_made_per_s"] = count / (time.perf_counter() - began)
        time.sleep(REST_S)
        for node in nodes:
            grown = node.rss_bytes() - before[node.name]
            self.figures[f"{node.name}_kib_per_{what}"] = grown / count / 1024
            took_s = main_thread_s(node.pid) - cpu_before[node.name]
            self.figures[f"{node.name}_cpu_us_per_{what}"] = took_s / count * 1e6


def _connect(sockets: ExitStack, url: str, messages: list[bytes], count: int) -> None:
    greeting = Greeting(CLIENT.path, SUBPROTOCOL, lambda _: messages)
    for one in connected(url, greeting, count):
        sockets.enter_context(one)


async def _make_topic(register: str) -> int:
    """Create the topic, and return its only partition."""
    async with octopi.connect(register) as client:
        [place] = (await client.create_topic(TOPIC)).partitions
        return place.partition


async def _create(register: str, count: int) -> None:
    async with octopi.connect(register) as client:
        for begin in range(0, count, TOPICS_AT_A_TIME):
            async with trio.open_nursery() as nursery:
                for number in range(begin, min(count, begin + TOPICS_AT_A_TIME)):
                    nursery.start_soon(client.create_topic, f"topic-{number}")


async def _fill(register: str, count: int) -> None:
    async with octopi.connect(register) as client, client.producer() as producer:
        for begin in range(0, count, GROUP):
            await producer.submit_many(TOPIC, [VALUE] * min(GROUP, count - begin))
        await producer.flush()


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.footprint", description=__doc__)
    parser.add_argument("--connections", type=int, default=1000)
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--brokers", type=int, default=3)
    parser.add_argument("--log-gb", type=float, default=10.0)
    arguments = parser.parse_args()
    # Else each start compiles all modules again, as no installation does.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with (
        tempfile.TemporaryDirectory(prefix="octopi-bench-") as folder,
        node_processes(Path(folder)) as nodes,
    ):
        register = nodes.register()
        measurement = Measurement(register, nodes.broker(register, "broker"))
        measurement.idle()
        if arguments.connections:
            measurement.connections(arguments.connections)
        if arguments.topics:
            measurement.topics(arguments.topics)
        if arguments.log_gb:
            measurement.long_log(arguments.log_gb)
        if arguments.brokers:
            measurement.brokers(nodes, arguments.brokers)
        json.dump({"machine": machine(), **measurement.figures}, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
