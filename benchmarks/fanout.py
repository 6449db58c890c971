"""``python -m benchmarks.fanout``: many WebSocket subscribers of one topic, compared with NATS and
its own WebSocket listener.

Measures deliveries per second, and what an open connection costs in memory.  The systems take turns
in each round.  Each turn starts new servers, so that no memory is left from an earlier round.  The
memory of the servers is measured before anybody subscribes, when all have subscribed, and when all
have received everything.  Prints a table on standard error and JSON on standard output.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import attrs

from benchmarks.machine import machine
from benchmarks.processes import Client, cpu_s
from benchmarks.systems import module_of

SYSTEMS: Final = ("octopi", "nats_core", "nats")

_END: Final = "end-of-the-measurement"


@attrs.define
class FanOut:
    """The figures of one system; a list has an entry for each round."""

    system: str
    title: str
    version: str = ""
    deliveries_per_s: list[float] = attrs.field(factory=list)
    server_cpu_us: list[float] = attrs.field(factory=list)
    """The processor time of all servers per delivery, in microseconds.  Of all figures, other
    programs on the machine change this one least."""
    idle_kib: list[float] = attrs.field(factory=list)
    """The resident memory that all servers took per subscriber, when all had subscribed."""
    busy_kib: list[float] = attrs.field(factory=list)
    """The same when everything was delivered."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.fanout", description=__doc__)
    parser.add_argument("--subscribers", type=int, default=1_000)
    parser.add_argument("--messages", type=int, default=2_000)
    parser.add_argument("--message-bytes", type=int, default=200)
    parser.add_argument("--flush-count", type=int, default=100, help="messages per flush")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--systems", default=",".join(SYSTEMS), help="comma-separated")
    arguments = parser.parse_args()
    results = []
    for name in arguments.systems.split(","):
        why = module_of(name).missing()
        if why is None:
            results.append(FanOut(name, module_of(name).TITLE))
        else:
            print(f"{name} is left out: {why}", file=sys.stderr)
    for number in range(arguments.rounds):
        for result in results:
            _run_once(result, arguments)
            print(f"round {number + 1}: {result.title}", file=sys.stderr)
    print(_table(results), file=sys.stderr)
    json.dump(
        {
            "machine": machine(),
            "parameters": vars(arguments),
            "results": [attrs.asdict(one) for one in results],
        },
        sys.stdout,
        indent=1,
    )
    return 0


def _run_once(result: FanOut, arguments: argparse.Namespace) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="octopi-fanout-", ignore_cleanup_errors=True) as folder,
        module_of(result.system).serving(Path(folder), 1, False) as serving,
    ):
        result.version = serving.version
        before = _resident_kib(serving.pids)
        where = {"address": serving.address, "topic": "fan-out", "end": _END}
        listeners = {"websocket": serving.websocket, "subscribers": arguments.subscribers}
        subscribers = Client(result.system, "subscribe", {**where, **listeners})
        try:
            subscribers.wait_ready()
            result.idle_kib.append((_resident_kib(serving.pids) - before) / arguments.subscribers)
            flushed = {
                "size": arguments.message_bytes,
                "count": arguments.messages,
                "flush_count": arguments.flush_count,
            }
            producer = Client(result.system, "flush", {**where, **flushed})
            try:
                producer.wait_ready()
                began_cpu_s = sum(map(cpu_s, serving.pids.values()))
                for one in (subscribers, producer):
                    one.go()
                wall_s = subscribers.figures()["wall_s"]
                used_cpu_s = sum(map(cpu_s, serving.pids.values())) - began_cpu_s
                result.busy_kib.append(
                    (_resident_kib(serving.pids) - before) / arguments.subscribers
                )
                producer.figures()
            finally:
                producer.close()
        finally:
            subscribers.close()
        deliveries = arguments.messages * arguments.subscribers
        result.deliveries_per_s.append(deliveries / wall_s)
        result.server_cpu_us.append(used_cpu_s / deliveries * 1e6)


def _resident_kib(pids: Mapping[str, int]) -> int:
    """The resident memory of the processes *pids*."""
    total_kib = 0
    for pid in pids.values():
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                total_kib += int(line.split()[1])
    return total_kib


def _table(results: list[FanOut]) -> str:
    """A line for each system.  A ratio above 1 means that Octopi delivers more per second."""
    ours = next((one for one in results if one.system == "octopi"), None)
    lines = [
        f"{'':<24}{'deliveries/s':>14}{'us/each':>9}{'KiB idle':>10}{'KiB busy':>10}{'Octopi':>8}"
    ]
    for one in results:
        rate, cpu_us, idle_kib, busy_kib = map(
            statistics.median,
            (one.deliveries_per_s, one.server_cpu_us, one.idle_kib, one.busy_kib),
        )
        ratio = "" if ours is None else f"{statistics.median(ours.deliveries_per_s) / rate:.2f}x"
        lines.append(
            f"{one.title + ' ' + one.version:<24}{rate:>14,.0f}{cpu_us:>9.2f}"
            f"{idle_kib:>10.1f}{busy_kib:>10.1f}{ratio:>8}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
