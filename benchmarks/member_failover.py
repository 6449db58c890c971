"""Measures how long the logs of a subscription stand still when one of its members is killed.

Starts a register and one broker as processes, with default settings, and the members of a
subscription of the mode ``failover``, each as a process.  Each log has a producer that sends a
message every few milliseconds.  Repeatedly, one of the members gets SIGKILL, and a new member takes
its place when other members have its logs.

Measured are the time from the kill until the last of its logs is read again, and the longest time
between two messages that are handed out in the logs of the other members.  For comparison, the
longest such time in all logs is measured in a quiet span just before the kill, which shows what the
machine itself adds.

Prints JSON on standard output.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import attrs
import trio

import octopi
from benchmarks.pauses import TOPIC, Stream, longest_gap_s, machine, summary
from harness.processes import node_processes

NAME: Final = "billing"
SPAN_S: Final = 3.0
"""How long logs are watched before a kill, and after all of them are read again."""
_DEADLINE_S: Final = 120.0
_LOOK_S: Final = 0.05


async def belong(url: str) -> None:
    """Be a member, and print for each message its log and the time at which it was handed out."""
    async with (
        octopi.connect(url) as client,
        client.subscription(TOPIC, NAME, mode="failover") as messages,
    ):
        async for message in messages:
            sys.stdout.write(f"{message.partition} {time.monotonic()}\n")
            sys.stdout.flush()


@attrs.define
class Member:
    """A member's process, and what it has printed."""

    process: subprocess.Popen[bytes]
    path: Path
    _read: int = 0
    handed_at: defaultdict[int, list[float]] = attrs.field(factory=lambda: defaultdict(list))
    """The times at which messages were handed out, by log."""

    @classmethod
    def start(cls, directory: Path, number: int, url: str) -> Member:
        path = directory / f"member-{number}"
        command = [sys.executable, "-m", "benchmarks.member_failover", "--be-a-member", url]
        with path.open("wb") as output:
            return cls(subprocess.Popen(command, stdout=output), path)

    def look(self) -> None:
        """Read what the process has printed since the last call."""
        with self.path.open("rb") as file:
            file.seek(self._read)
            written = file.read()
        whole = written[: written.rfind(b"\n") + 1]
        self._read += len(whole)
        for line in whole.splitlines():
            log, at = line.split()
            self.handed_at[int(log)].append(float(at))

    def logs(self, since: float) -> set[int]:
        """The logs of which this member was handed messages at *since* or later."""
        return {log for log, times in self.handed_at.items() if times and times[-1] >= since}


@attrs.define
class Group:
    """All members of the subscription."""

    members: list[Member] = attrs.field(factory=list)

    def logs(self, since: float) -> set[int]:
        """The logs of which messages were handed out at *since* or later."""
        for one in self.members:
            one.look()
        return {log for one in self.members for log in one.logs(since)}

    async def reads(self, logs: set[int], since: float) -> None:
        """Wait until messages of all *logs* were handed out at *since* or later."""
        deadline = time.monotonic() + _DEADLINE_S
        while not self.logs(since) >= logs:
            if time.monotonic() > deadline:
                raise RuntimeError(f"not all logs are read after {_DEADLINE_S:g} s")
            await trio.sleep(_LOOK_S)

    async def is_even(self, count: int) -> None:
        """Wait until each member has *count* logs."""
        deadline = time.monotonic() + _DEADLINE_S
        while True:
            since = time.monotonic()
            await trio.sleep(1.0)
            self.logs(since)
            if [len(one.logs(since)) for one in self.members] == [count] * len(self.members):
                return
            if time.monotonic() > deadline:
                raise RuntimeError(f"the logs are not spread evenly after {_DEADLINE_S:g} s")


async def measure(arguments: argparse.Namespace, directory: Path) -> dict[str, list[float]]:
    figures: defaultdict[str, list[float]] = defaultdict(list)
    share = arguments.logs // arguments.members
    with node_processes(directory) as nodes, ended(group := Group()):
        register = nodes.register()
        nodes.broker(register, "broker-1")
        async with octopi.connect(register.url) as client, trio.open_nursery() as nursery:
            await client.admin.add_partitions(arguments.logs)
            info = await client.create_topic(TOPIC, arguments.logs)
            await client.admin.create_subscription(TOPIC, NAME, mode="failover")
            logs = {int(one.partition) for one in info.partitions}
            for one in info.partitions:
                stream = Stream(one.partition)
                nursery.start_soon(stream.produce, register.url, arguments.interval_ms / 1000)
            for number in range(arguments.members):
                group.members.append(Member.start(directory, number, register.url))
            for kill in range(arguments.kills):
                await group.is_even(share)
                begin = time.monotonic()
                await trio.sleep(SPAN_S)
                group.logs(begin)
                victim = group.members.pop(0)
                lost = victim.logs(begin)
                victim.process.send_signal(signal.SIGKILL)
                killed_at = time.monotonic()
                await trio.to_thread.run_sync(victim.process.wait)
                await group.reads(logs, killed_at)
                await trio.sleep(SPAN_S)
                end = time.monotonic()
                group.logs(end)
                victim.look()
                figures["again"].append(first_again_s(group, lost, killed_at))
                rest = logs - lost
                figures["others"].append(longest_pause_s(group.members, rest, killed_at, end))
                figures["before"].append(
                    longest_pause_s([victim, *group.members], logs, begin, killed_at)
                )
                print(
                    f"{kill + 1}: read again after {figures['again'][-1]:.3f} s, others paused "
                    f"{figures['others'][-1]:.3f} s",
                    file=sys.stderr,
                )
                number = arguments.members + kill
                group.members.append(Member.start(directory, number, register.url))
            nursery.cancel_scope.cancel()
    return figures


def first_again_s(group: Group, logs: set[int], killed_at: float) -> float:
    """The time from the kill until the last of *logs* was read again."""
    return max(
        min(at for one in group.members for at in one.handed_at[log] if at > killed_at) - killed_at
        for log in logs
    )


def longest_pause_s(members: list[Member], logs: set[int], begin: float, end: float) -> float:
    """The longest time between *begin* and *end* in which *members* were handed no message of one
    of *logs*."""
    return max(
        longest_gap_s(sorted(at for one in members for at in one.handed_at[log]), begin, end)
        for log in logs
    )


@contextmanager
def ended(group: Group) -> Iterator[None]:
    """Kill all members at the end of the block."""
    try:
        yield
    finally:
        for one in group.members:
            one.process.kill()
            one.process.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--members", type=int, default=5)
    parser.add_argument("--logs", type=int, default=10, help="a multiple of --members")
    parser.add_argument("--interval-ms", type=float, default=20.0, help="between messages of a log")
    parser.add_argument("--be-a-member", metavar="URL", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.be_a_member:
        trio.run(belong, arguments.be_a_member)
    if arguments.logs % arguments.members:
        parser.error("--logs must be a multiple of --members")
    with tempfile.TemporaryDirectory() as directory:
        figures = trio.run(partial(measure, arguments), Path(directory))
    session_timeout_ms = octopi.model.SubscriptionOptions().session_timeout_ms
    document = {
        "machine": machine(),
        "octopi": octopi.__version__,
        "kills": arguments.kills,
        "members": arguments.members,
        "logs": arguments.logs,
        "session_timeout_s": session_timeout_ms / 1000,
        "logs_of_the_killed_read_again": summary(figures["again"]),
        "longest_pause_of_the_others": summary(figures["others"]),
        "longest_pause_before": summary(figures["before"]),
    }
    print(json.dumps(document, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
