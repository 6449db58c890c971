"""Members of durable subscriptions, and the brokers below them, are killed at random."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Final, cast

import attrs
import trio

import octopi
from harness.processes import NodeProcess, NodeProcesses, node_processes
from octopi.retry import may_pass
from tests.chaos.subscriptions.history import Failure, History
from tests.chaos.subscriptions.member import QUEUE_OPTIONS, Mode

TOPIC: Final = "orders"
MODES: Final = ("exclusive", "failover", "shared", "key_shared")
PARTITIONS: Final = 4

_MEMBERS: Final = {"exclusive": 2, "failover": 3, "shared": 3, "key_shared": 3}
MOVED: Final = "leader moved"
_MOVE_S: Final = 0.5
"""A change of the leader that is planned is over within this time."""
_KEYS: Final = 50
_SEND_PAUSE_S: Final = 0.01
_FAULT_PAUSE_S: Final = (1.0, 6.0)
_PAUSED_S: Final = 14.0
"""Longer than the session timeout, so that the member is replaced meanwhile."""
_STOPPED_S: Final = (0.2, 4.0)
_IN_SYNC_S: Final = 60.0
_END_S: Final = 120.0
_LOOK_S: Final = 0.2


@attrs.frozen
class Report:
    """What came of a run."""

    faults: list[str]
    lines: list[str]

    def __str__(self) -> str:
        return "\n".join([*self.lines, *(f"FAULT {one}" for one in self.faults)])


@attrs.define
class _Member:
    """A place for a member; a process that was killed is followed by another one."""

    mode: str
    name: str
    """Its own, of a static member; empty: none."""
    directory: Path
    files: list[Path] = attrs.field(factory=list)
    process: subprocess.Popen[bytes] | None = None

    def start(self, url: str) -> None:
        number = len(self.files)
        self.files.append(self.directory / f"{number}.jsonl")
        command = [sys.executable, "-m", "tests.chaos.subscriptions.member", url, TOPIC, self.mode]
        with (self.directory / f"{number}.err").open("wb") as errors:
            self.process = subprocess.Popen(
                [*command, self.name, str(self.files[-1])], stderr=errors, start_new_session=True
            )

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def has_ended(self) -> bool:
        return self.process is not None and self.process.poll() is not None

    def errors(self) -> str:
        """What its last process said when it ended by itself."""
        return (self.directory / f"{len(self.files) - 1}.err").read_text()

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()


class _Run:
    """One run."""

    def __init__(
        self, nodes: NodeProcesses, modes: list[str], seed: int, say: Callable[[str], None]
    ) -> None:
        self.failures: list[Failure] = []
        self.faults: list[str] = []
        self.acknowledged: list[str] = []
        self._randomness = random.Random(seed)
        self._say = say
        self._register = nodes.register()
        self._brokers = [nodes.broker(self._register, f"broker-{one}") for one in (1, 2, 3)]
        self._stopping = trio.Event()
        self.members = list(_places(nodes.directory, modes))

    # --- the cluster -------------------------------------------------------------------

    async def prepare(self) -> None:
        """Make topic and subscriptions, and start the members."""
        async with octopi.connect(self._register.url) as client:
            await client.create_topic(TOPIC, PARTITIONS)
            for mode in sorted({one.mode for one in self.members}):
                options = QUEUE_OPTIONS if mode in {"shared", "key_shared"} else {}
                await client.admin.create_subscription(
                    TOPIC, mode, mode=cast(Mode, mode), **options
                )
        for one in self.members:
            one.start(self._register.url)

    async def produce(self) -> None:
        """Send messages of different keys until the run stops."""
        numbers = count()
        while not self._stopping.is_set():
            try:
                async with (
                    octopi.connect(self._register.url) as client,
                    client.producer() as producer,
                ):
                    while not self._stopping.is_set():
                        value = f"m{next(numbers)}"
                        key = f"k{self._randomness.randrange(_KEYS)}"
                        await producer.send(TOPIC, value.encode(), key=key.encode())
                        self.acknowledged.append(value)
                        await trio.sleep(_SEND_PAUSE_S)
            except octopi.OctopiError as error:
                if not may_pass(error):
                    self.faults.append(f"the producer can't send: {error!r}")
                    return

    async def fail(self, seconds: float) -> None:
        """Kill and pause until *seconds* have passed; then leave all of them running."""
        acts = [self._kill_member, self._kill_member, self._kill_broker, self._stop_broker]
        acts += [self._pause_member]
        with trio.move_on_after(seconds):
            while True:
                await trio.sleep(self._randomness.uniform(*_FAULT_PAUSE_S))
                with trio.CancelScope(shield=True):
                    await self._randomness.choice(acts)()
                    self._look_at_members()

    def _look_at_members(self) -> None:
        for one in self.members:
            if one.has_ended:
                self.faults.append(f"a member of {one.mode} ended by itself: {one.errors()[-500:]}")
                one.start(self._register.url)

    async def _kill_member(self) -> None:
        member = self._randomness.choice(self.members)
        self._say(f"kill a member of {member.mode}")
        begin = time.monotonic()
        pid = member.pid
        member.kill()
        self.failures.append(Failure("member killed", begin, time.monotonic(), pid))
        await trio.sleep(self._randomness.uniform(*_STOPPED_S))
        member.start(self._register.url)

    async def _pause_member(self) -> None:
        member = self._randomness.choice(self.members)
        self._say(f"pause a member of {member.mode}")
        begin = time.monotonic()
        assert member.process is not None
        member.process.send_signal(signal.SIGSTOP)
        await trio.sleep(_PAUSED_S)
        member.process.send_signal(signal.SIGCONT)
        self.failures.append(Failure("member paused", begin, time.monotonic(), member.pid))

    async def _kill_broker(self) -> None:
        await self._end_broker("broker killed", NodeProcess.kill9)

    async def _stop_broker(self) -> None:
        await self._end_broker("broker stopped", NodeProcess.terminate)

    async def _end_broker(self, what: str, end: Callable[[NodeProcess], object]) -> None:
        broker = self._randomness.choice(self._brokers)
        self._say(f"{what}: {broker.name}")
        begin = time.monotonic()
        await trio.to_thread.run_sync(end, broker)
        await trio.sleep(self._randomness.uniform(*_STOPPED_S))
        await trio.to_thread.run_sync(broker.restart)
        with trio.move_on_after(_IN_SYNC_S) as slow:
            while not await self._all_in_sync():  # noqa: ASYNC110 - the register tells nobody
                await trio.sleep(_LOOK_S)
        if slow.cancelled_caught:
            self.faults.append(f"{broker.name} did not get in sync within {_IN_SYNC_S:g} s")
        self.failures.append(Failure(what, begin, time.monotonic()))

    async def _all_in_sync(self) -> bool:
        try:
            async with octopi.connect(self._register.url) as client:
                info = await client.admin.describe_cluster()
        except octopi.OctopiError as error:
            if not may_pass(error):
                raise
            return False
        return all(len(one.in_sync) == len(self._brokers) for one in info.partitions)

    # --- the end -----------------------------------------------------------------------

    async def finish(self) -> None:
        """Stop producing, and wait until each subscription is at the end."""
        self._stopping.set()
        with trio.move_on_after(_END_S) as slow:
            while lag := await self._lag():
                self._say(f"{lag} B are left")
                await trio.sleep(1.0)
        if slow.cancelled_caught:
            self.faults.append(f"the subscriptions are not at the end after {_END_S:g} s")

    async def _lag(self) -> int:
        try:
            async with octopi.connect(self._register.url) as client:
                return sum(
                    [
                        (await client.admin.describe_subscription(TOPIC, mode)).lag_bytes
                        for mode in sorted({one.mode for one in self.members})
                    ]
                )
        except octopi.OctopiError as error:
            if not may_pass(error):
                raise
            return 1

    def judge(self) -> Report:
        """Compare what members said with what was sent."""
        self.failures += _moves(self._register.log())
        lines = [f"{len(self.acknowledged)} messages acknowledged"]
        for mode in sorted({one.mode for one in self.members}):
            files = [file for one in self.members if one.mode == mode for file in one.files]
            history = History.read(mode, [one for one in files if one.exists()])
            self.faults += history.judge(self.acknowledged, self.failures)
            causes = ", ".join(f"{n} {c}" for c, n in history.causes(self.failures).most_common())
            confirmed = len(history.confirmations) + len(history.settlements)
            lines.append(
                f"{mode}: {len(history.deliveries)} deliveries, {confirmed} "
                f"confirmations, fenced {len(history.fences)} times; again: {causes or 'none'}"
            )
        kinds = [one.what for one in self.failures]
        kinds = [one for one in kinds if one != MOVED]
        counted = ", ".join(f"{kinds.count(one)} x {one}" for one in sorted(set(kinds)))
        return Report(self.faults, [*lines, f"failures: {counted}"])


def _moves(register_log: str) -> Iterator[Failure]:
    """Changes of leaders that the register decided by itself: open messages of queues are dealt
    anew.  Where members are killed, others have their logs at once."""
    behind_s = time.time() - time.monotonic()
    for line in register_log.splitlines():
        if '"leader appointed"' in line:
            at = datetime.fromisoformat(json.loads(line)["timestamp"]).timestamp() - behind_s
            yield Failure(MOVED, at - _MOVE_S, at + _MOVE_S)


def _places(directory: Path, modes: list[str]) -> Iterator[_Member]:
    for mode in modes:
        for number in range(_MEMBERS[mode]):
            place = directory / f"{mode}-{number}"
            place.mkdir()
            yield _Member(mode, f"member-{number}" if number == 0 else "", place)


async def run_chaos(
    directory: Path, *, modes: list[str], seconds: float, seed: int, say: Callable[[str], None]
) -> Report:
    """Disturb members and brokers for *seconds*, with all files in *directory*."""
    with node_processes(directory) as nodes:
        run = await trio.to_thread.run_sync(_Run, nodes, modes, seed, say)
        with _ended(run.members):
            await run.prepare()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(run.produce)
                await run.fail(seconds)
                await run.finish()
                nursery.cancel_scope.cancel()
    return run.judge()


@contextmanager
def _ended(members: list[_Member]) -> Iterator[None]:
    """No member lives on behind the block."""
    try:
        yield
    finally:
        for one in members:
            if one.process is not None:
                one.kill()
