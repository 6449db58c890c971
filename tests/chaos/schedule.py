"""What goes wrong when: a schedule of faults, drawn from a seed.

Several lanes at once; a lane takes what it disturbs for itself, so no node is disturbed
twice at a time, and there is always one broker that nothing happens to, except where the
fault is that all lose power.  Without a register nothing happens to a majority of the brokers.
What may be damaged is up to `sim.real.bounds`.  Each fault ends by healing, whatever else
happens.  The seed decides what is tried and for how long; which instant of the cluster it hits is
up to the machine.
"""

from __future__ import annotations

import random
import shutil
import signal
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from pathlib import Path
from typing import Final

import attrs
import trio

from sim.real.bounds import FLUSHED_S, CopyBounds, in_sync_everywhere
from sim.real.ledger import Ledger
from sim.real.proxy import CLIENT, Way, both_ways
from sim.real.records import flipped_logs
from tests.chaos.cluster import REGISTER, ChaosCluster, fill_disk, in_thread
from tests.chaos.damage import damage, keep_copy
from tests.chaos.workload import Workload

KINDS: Final = {
    "kill": "SIGKILL, also again and again while it starts",
    "stop": "SIGTERM",
    "pause": "SIGSTOP and SIGCONT",
    "away": "SIGKILL or SIGTERM, and not started again for long",
    "cut": "links cut in one direction or both",
    "reset": "connections reset, all of a node or a single one",
    "damage": "files of a stopped broker cut, flipped, gone, or older again",
    "power": "one machine loses what was not synced",
    "blackout": "all machines lose what was not synced",
    "full": "a broker's disk is full for a while (needs to mount)",
    "topics": "a topic deleted and made again while a broker is away",
    "forget": "the register loses its directory",
}
"""What ``--kinds`` takes, and what it means."""

RING_KINDS: Final = ("kill", "stop", "pause", "away", "cut", "reset", "topics")
"""Those that may happen to a cluster without a register."""

ALL_BROKERS: Final = -1

_PAUSE_S: Final = (0.2, 2.5)
_SHORT_S: Final = (0.05, 0.9)
"""Less than the register needs to notice."""
_LONG_S: Final = (1.2, 5.0)
_AWAY_S: Final = (8.0, 25.0)
_NOTICED_S: Final = 15.0
"""The register has noticed by then that a broker is dead."""
_STARTED_S: Final = 90.0
"""A node that starts serves by then, also if its register is away for a while."""
_IN_SYNC_S: Final = 60.0

Disturb = Callable[[random.Random, list[str]], Awaitable[None]]


@attrs.frozen
class Fault:
    """One thing that may happen."""

    kind: str
    weight: int
    brokers: int
    """How many it takes; 0: the register; `ALL_BROKERS`: everything."""
    disturb: Disturb

    @property
    def name(self) -> str:
        """What the report calls it."""
        return f"{self.disturb.__name__}{' of the register' if self.brokers == 0 else ''}"


class Schedule:
    """Disturbs a cluster; `run` until cancelled leaves everything healed."""

    def __init__(
        self,
        cluster: ChaosCluster,
        workload: Workload,
        ledger: Ledger,
        seed: int,
        kinds: Collection[str],
        say: Callable[[str], None],
    ) -> None:
        self.counts: dict[str, int] = {}
        self.busy: set[str] = set()
        """The nodes that something happens to now."""
        self.faults: list[str] = []
        """What went wrong where nothing may."""
        self.bounds = CopyBounds()
        self._cluster = cluster
        self._workload = workload
        self._ledger = ledger
        self._seed = seed
        self._say = say
        self._stopping = trio.Event()
        self._alone = trio.Lock()
        """Held while something waits for, or has, the whole cluster."""
        self._remaking = trio.Lock()
        every: tuple[Fault, ...] = (
            Fault("kill", 5, 1, self.kill),
            Fault("kill", 1, 1, self.kill_again_and_again),
            Fault("kill", 2, 0, self.kill),
            Fault("stop", 5, 1, self.stop),
            Fault("stop", 2, 0, self.stop),
            Fault("pause", 4, 1, self.pause),
            Fault("pause", 1, 0, self.pause),
            Fault("away", 2, 1, self.leave_away),
            Fault("away", 1, 0, self.leave_away),
            Fault("cut", 3, 1, self.isolate),
            Fault("cut", 3, 1, self.cut_from_register),
            Fault("cut", 2, 1, self.deafen),
            Fault("cut", 2, 1, self.silence),
            Fault("cut", 2, 2, self.split),
            Fault("reset", 1, 1, self.reset),
            Fault("reset", 3, 1, self.reset_register_link),
            Fault("damage", 6, 1, self.damage),
            Fault("damage", 2, ALL_BROKERS, self.damage_and_start_first),
            Fault("power", 3, 1, self.lose_power),
            Fault("blackout", 2, ALL_BROKERS, self.lose_power_everywhere),
            Fault("full", 2, 1, self.fill),
            Fault("topics", 2, 1, self.remake_topic),
            Fault("forget", 1, ALL_BROKERS, self.forget_register),
        )
        if not cluster.registers:
            of_registers = (self.cut_from_register, self.reset_register_link)
            every = tuple(
                one
                for one in every
                if one.kind in RING_KINDS and one.brokers > 0 and one.disturb not in of_registers
            )
        if len(cluster.registers) > 1:
            # One of them at a time: the others have a majority.
            every = (
                *(one for one in every if one.kind != "forget"),
                Fault("cut", 3, 0, self.isolate),
                Fault("cut", 2, 0, self.deafen),
                Fault("cut", 2, 0, self.silence),
                Fault("reset", 2, 0, self.reset),
            )
        self._faults = [one for one in every if one.kind in kinds]

    async def run(self, seconds: float) -> None:
        """Disturb for so long, then return when everything is healed."""
        lanes = max(2, len(self._cluster.brokers) // 2 + 1)
        async with trio.open_nursery() as nursery:
            for lane in range(lanes):
                nursery.start_soon(self._run_lane, lane)
            await trio.sleep(seconds)
            self._stopping.set()

    async def _run_lane(self, lane: int) -> None:
        turn = 0
        weights = [one.weight for one in self._faults]
        while not self._stopping.is_set():
            turn += 1
            randomness = random.Random(f"{self._seed}/{lane}/{turn}")
            with trio.move_on_after(randomness.uniform(*_PAUSE_S)):
                await self._stopping.wait()
                return
            [fault] = randomness.choices(self._faults, weights)
            async with self._alone:
                names = await self._take(randomness, fault.brokers)
            if not names:
                continue
            self.counts[fault.name] = self.counts.get(fault.name, 0) + 1
            try:
                await fault.disturb(randomness, names)
            finally:
                self.busy.difference_update(names)

    async def _take(self, randomness: random.Random, count: int) -> list[str]:
        if count == ALL_BROKERS:
            with trio.move_on_after(_IN_SYNC_S):
                while self.busy:  # noqa: ASYNC110 (no lane starts anything meanwhile)
                    await trio.sleep(0.05)
            names = [] if self.busy else list(self._cluster.nodes)
        elif count == 0:
            names = [] if self.busy & {*self._cluster.registers} else [self._a_register(randomness)]
        else:
            brokers = self._cluster.brokers
            free = [name for name in brokers if name not in self.busy]
            left_alone = 1 if self._cluster.registers else len(brokers) // 2 + 1
            names = randomness.sample(free, count) if len(free) - count >= left_alone else []
        self.busy.update(names)
        return names

    def _a_register(self, randomness: random.Random) -> str:
        """The register that decides, most of the time; another one otherwise."""
        registers = self._cluster.registers
        if len(registers) == 1:
            return registers[0]
        return randomness.choice((self._cluster.deciding(), randomness.choice(registers)))

    def _tell(self, what: str, names: list[str], seconds: float) -> None:
        self._say(f"{what} {' and '.join(names)} for {seconds:.2f} s")

    def _count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    @staticmethod
    def _duration(randomness: random.Random) -> float:
        return randomness.uniform(*randomness.choice((_SHORT_S, _LONG_S)))

    # --- processes ---------------------------------------------------------------------

    async def kill(self, randomness: random.Random, names: list[str]) -> None:
        """SIGKILL, and start again a while later."""
        node, seconds = self._cluster.nodes[names[0]], self._duration(randomness)
        self._tell("kill", names, seconds)
        await in_thread(node.kill9)
        await trio.sleep(seconds)
        await self._start(names[0])

    async def kill_again_and_again(self, randomness: random.Random, names: list[str]) -> None:
        """SIGKILL also while it starts."""
        node, lives = self._cluster.nodes[names[0]], randomness.randint(2, 4)
        self._say(f"kill {names[0]} {lives} times as it starts")
        await in_thread(node.kill9)
        for _ in range(lives):
            node.launch()
            await trio.sleep(randomness.uniform(0.3, 1.2))
            await in_thread(node.kill9)
        await self._start(names[0])

    async def stop(self, randomness: random.Random, names: list[str]) -> None:
        """SIGTERM, and start again."""
        node, seconds = self._cluster.nodes[names[0]], self._duration(randomness)
        self._tell("stop", names, seconds)
        await in_thread(lambda: node.terminate(40))
        await trio.sleep(seconds)
        await self._start(names[0])

    async def leave_away(self, randomness: random.Random, names: list[str]) -> None:
        """SIGKILL or SIGTERM, and nothing for long: its partitions go on with the others."""
        node, seconds = self._cluster.nodes[names[0]], randomness.uniform(*_AWAY_S)
        self._tell("leave away", names, seconds)
        await in_thread(randomness.choice((node.kill9, lambda: node.terminate(40))))
        with trio.move_on_after(seconds):
            await self._stopping.wait()
        await self._start(names[0])

    async def pause(self, randomness: random.Random, names: list[str]) -> None:
        """SIGSTOP, and SIGCONT a while later: it comes back believing that nothing happened."""
        node, seconds = self._cluster.nodes[names[0]], self._duration(randomness)
        self._tell("pause", names, seconds)
        node.signal(signal.SIGSTOP)
        await trio.sleep(seconds)
        node.signal(signal.SIGCONT)

    async def _start(self, name: str) -> None:
        node = self._cluster.nodes[name]
        node.launch()
        await in_thread(lambda: node.wait_ready(_STARTED_S))
        self._say(f"{name} serves again")

    # --- files and power ---------------------------------------------------------------

    async def damage(self, randomness: random.Random, names: list[str]) -> None:
        """Kill a broker, do something to its files, start it again."""
        [name] = names
        node = self._cluster.nodes[name]
        await in_thread(node.kill9)
        copy = self._older(name)
        if not await self._may_spoil(name):
            if randomness.random() < 0.5:
                await in_thread(lambda: keep_copy(node.data_dir, copy))
            await self._start(name)
            return
        done = [
            damage(randomness, node.data_dir, copy) for _ in range(randomness.choice((1, 1, 2)))
        ]
        self._say(f"damage {name}: {'; '.join(one for one in done if one)}")
        await self._start_spoilt(name)

    async def damage_and_start_first(self, randomness: random.Random, names: list[str]) -> None:
        """Kill all brokers at once, damage some, start those before the others: they must not
        lead with what they have left."""
        brokers = [name for name in names if name not in self._cluster.registers]
        for name in brokers:
            self._cluster.nodes[name].signal(signal.SIGKILL)
        for name in brokers:
            await in_thread(self._cluster.nodes[name].kill9)
        randomness.shuffle(brokers)
        spoilt = []
        for name in brokers[: randomness.randint(1, len(brokers) - 1)]:
            if await self._may_spoil(name):
                spoilt.append(name)
                node = self._cluster.nodes[name]
                done = damage(randomness, node.data_dir, self._older(name))
                self._say(f"damage {name}, with all killed: {done}")
        async with trio.open_nursery() as nursery:
            for name in spoilt:
                nursery.start_soon(self._start_spoilt, name)
            await trio.sleep(randomness.choice((0, 2, 6)))
            for name in brokers:
                if name not in spoilt:
                    nursery.start_soon(self._start, name)

    async def lose_power(self, randomness: random.Random, names: list[str]) -> None:
        """A machine goes dark; the others have everything."""
        [name] = names
        node = self._cluster.nodes[name]
        await in_thread(node.kill9)
        if await self._may_spoil(name):
            changes = node.lose_power(randomness)
            self._say(f"{name} loses power: {len(changes)} files changed")
            await self._start_spoilt(name)
        else:
            await self._start(name)

    async def lose_power_everywhere(self, randomness: random.Random, names: list[str]) -> None:
        """All machines go dark at once, the register's sometimes with them; they come back in
        any order."""
        if not self.bounds.all_intact:
            self._count("spared")
            return
        registers = self._cluster.registers
        dark = [name for name in names if name not in registers or randomness.random() < 0.5]
        for name in dark:
            self._cluster.nodes[name].signal(signal.SIGKILL)
        await trio.sleep(0.5)  # what was acknowledged is noted
        logs = self._workload.unflushed_logs()
        self._ledger.may_be_lost(logs, trio.current_time() - FLUSHED_S)
        changes = {name: len(self._cluster.nodes[name].lose_power(randomness)) for name in dark}
        self._say(f"all lose power; files changed: {changes}")
        randomness.shuffle(dark)
        for name in registers:  # brokers don't serve before they have joined
            if name in dark:
                dark.remove(name)
                await self._start(name)
        for name in dark:
            self._cluster.nodes[name].launch()
            await trio.sleep(randomness.uniform(0, 1.5))
        for name in dark:
            node = self._cluster.nodes[name]
            await in_thread(partial(node.wait_ready, _STARTED_S))
        self._say("all serve again")

    async def fill(self, randomness: random.Random, names: list[str]) -> None:
        """A broker's disk is full for a while."""
        [name] = names
        node, seconds = self._cluster.nodes[name], self._duration(randomness)
        self._tell("fill the disk of", names, seconds)
        filler = fill_disk(node.data_dir)
        try:
            if randomness.random() < 0.3:  # it starts with it, too
                await in_thread(node.kill9)
                node.launch()
            await trio.sleep(seconds)
        finally:
            filler.unlink(missing_ok=True)
        if randomness.random() < 0.5 or not node.is_running:
            if node.is_running:
                await in_thread(node.kill9)
            await self._start(name)

    def _older(self, name: str) -> Path:
        """Where the files of a broker are as they were at some earlier stop."""
        return self._cluster.nodes[name].data_dir.with_name(f"{name}.older")

    async def _may_spoil(self, name: str) -> bool:
        """Whether the copies of *name*, which was just killed, may be taken away."""
        with trio.move_on_after(_NOTICED_S):
            while True:
                info = await self._workload.cluster_info()
                if info is not None and not any(
                    one.live for one in info.brokers if one.broker == self._cluster.ids[name]
                ):
                    if self.bounds.spoil(self._cluster.ids[name], info.partitions):
                        return True
                    break
                await trio.sleep(0.1)
        self._count("spared")
        self._say(f"{name} is spared: the others may lack what it has")
        return False

    async def _start_spoilt(self, name: str) -> None:
        """Start a broker whose files lack something; where it refuses to, replace its disk."""
        node = self._cluster.nodes[name]
        node.launch()
        try:
            await in_thread(lambda: node.wait_ready(_STARTED_S))
        except AssertionError:
            if node.is_running:
                self.faults.append(f"{name} neither serves nor ends after its damage")
                await in_thread(node.kill9)
            self._count("disks replaced")
            self._say(f"{name} does not start: {last_line(node.log())}; its disk is replaced")
            await self._replace_disk(name)
        await self._comes_in_sync(name)
        is_sound = await self._copy_flipped_anew(name)
        is_in_sync = is_sound and await self._comes_in_sync(name)
        if is_in_sync:
            self.bounds.trust(self._cluster.ids[name])
        self._say(f"{name} is {'' if is_in_sync else 'not '}in sync")

    async def _copy_flipped_anew(self, name: str) -> bool:
        """Do what an operator does who was told by `verify` of flipped bits: have the logs copied
        anew from others, once others have them.  Return whether no flipped bit is left.

        What was flushed is not read again at a start, so a flipped bit shows only when it is
        read, or to `verify`; and meanwhile the broker is in sync, may be the only one that is,
        and then has the only copy of newer messages.
        """
        node = self._cluster.nodes[name]
        while flipped := await trio.to_thread.run_sync(flipped_logs, node.data_dir):
            was_stopping = self._stopping.is_set()
            if await self._others_have_all(name):
                await in_thread(node.kill9)
                if await self._may_spoil(name):  # others may have fallen behind before the kill
                    self._count("flipped logs removed")
                    self._say(f"{name} has flipped bits in {flipped}: they are removed")
                    for directory in flipped:
                        await in_thread(partial(shutil.rmtree, directory))
                await self._start(name)
                await self._comes_in_sync(name)
            elif was_stopping:  # nothing else is disturbed any more
                self.faults.append(f"{name} has flipped bits in {flipped}, and no other has all")
                return False
        return True

    async def _others_have_all(self, name: str) -> bool:
        """Wait until live brokers have intact copies of all that *name* is in sync in."""
        broker = self._cluster.ids[name]
        with trio.move_on_after(_IN_SYNC_S):
            while True:
                info = await self._workload.cluster_info()
                if info is not None:
                    dead = {one.broker for one in info.brokers if not one.live}
                    if self.bounds.can_spare(broker, info.partitions, dead):
                        return True
                await trio.sleep(0.2)
        return False

    async def _comes_in_sync(self, name: str) -> bool:
        broker = self._cluster.ids[name]
        with trio.move_on_after(_IN_SYNC_S):
            while True:
                info = await self._workload.cluster_info()
                if (
                    info is not None
                    and any(one.live for one in info.brokers if one.broker == broker)
                    and in_sync_everywhere(broker, info.partitions)
                ):
                    return True
                await trio.sleep(0.2)
        return False

    async def _replace_disk(self, name: str) -> None:
        """What an operator does: an empty broker takes the replicas of the lost one."""
        old = self._cluster.ids[name]
        await in_thread(lambda: _empty(self._cluster.nodes[name].data_dir))
        # With an older copy it would be the former broker again, and the new one would be away.
        await in_thread(partial(shutil.rmtree, self._older(name), ignore_errors=True))
        await self._start(name)
        self._cluster.ids[name] = await self._workload.replace_broker(old, self._cluster.urls[name])
        self.bounds.trust(old)
        self._say(f"{name} is broker {self._cluster.ids[name]} now, broker {old} is forgotten")

    # --- topics and the register -------------------------------------------------------

    async def remake_topic(self, randomness: random.Random, names: list[str]) -> None:
        """A topic is deleted, and made again, while a broker that holds it is away.  It may be
        the only one in sync, and then that has to wait for it; so it comes back after a while."""
        [name] = names
        remade = trio.Event()

        async def come_back() -> None:
            with trio.move_on_after(_AWAY_S[1]):
                await remade.wait()
            await self._start(name)

        async with self._remaking:
            self._say(f"{name} is away while a topic is made again")
            await in_thread(self._cluster.nodes[name].kill9)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(come_back)
                await self._workload.remake_topic()
                remade.set()

    async def forget_register(self, randomness: random.Random, names: list[str]) -> None:
        """The register's directory is gone; it learns from the brokers, which all run."""
        if not self.bounds.all_intact:
            self._count("spared")
            return
        node = self._cluster.nodes[REGISTER]
        self._say("the register loses its directory")
        await in_thread(node.kill9)
        await in_thread(lambda: _empty(node.data_dir))
        await self._start(REGISTER)
        with trio.move_on_after(_IN_SYNC_S):  # it has to meet them before any may be missing
            while True:
                info = await self._workload.cluster_info()
                live = sum(one.live for one in info.brokers) if info is not None else 0
                if live == len(self._cluster.brokers):
                    return
                await trio.sleep(0.2)

    # --- network -----------------------------------------------------------------------

    async def isolate(self, randomness: random.Random, names: list[str]) -> None:
        """Nothing gets to a broker or from it."""
        await self._cut("isolate", randomness, names, both_ways(names, self._everybody()))

    async def cut_from_register(self, randomness: random.Random, names: list[str]) -> None:
        """A broker and the register don't hear each other, everybody else does."""
        await self._cut(
            "cut from the register", randomness, names, both_ways(names, self._registers())
        )

    async def deafen(self, randomness: random.Random, names: list[str]) -> None:
        """A broker sends and hears nothing."""
        ways = [(one, names[0]) for one in self._everybody() if one != names[0]]
        await self._cut("deafen", randomness, names, ways)

    async def silence(self, randomness: random.Random, names: list[str]) -> None:
        """A broker hears and sends nothing."""
        ways = [(names[0], one) for one in self._everybody() if one != names[0]]
        await self._cut("silence", randomness, names, ways)

    async def split(self, randomness: random.Random, names: list[str]) -> None:
        """Two brokers don't hear each other, everybody else does."""
        await self._cut("split", randomness, names, both_ways(names, names))

    async def reset(self, randomness: random.Random, names: list[str]) -> None:
        """All connections of a broker break."""
        self._say(f"reset {names[0]}")
        self._cluster.network.reset(both_ways(names, self._everybody()))
        await trio.lowlevel.checkpoint()

    async def reset_register_link(self, randomness: random.Random, names: list[str]) -> None:
        """One connection breaks, that of a broker to the register, up to three times."""
        for _ in range(randomness.randint(1, 3)):
            self._say(f"reset the link of {names[0]} to the register")
            self._cluster.network.reset(both_ways(names, self._registers()))
            await trio.sleep(randomness.uniform(0.05, 0.8))

    async def _cut(
        self, what: str, randomness: random.Random, names: list[str], ways: list[Way]
    ) -> None:
        seconds, resets = self._duration(randomness), randomness.random() < 0.5
        self._tell(what, names, seconds)
        self._cluster.network.cut(ways)
        try:
            await trio.sleep(seconds)
        finally:
            if resets:
                self._cluster.network.reset(ways)
            self._cluster.network.heal(ways)
            self._say(f"heal {' and '.join(names)}{', with resets' if resets else ''}")

    def _registers(self) -> list[str]:
        return self._cluster.registers

    def _everybody(self) -> list[str]:
        return [*self._cluster.nodes, CLIENT]


def last_line(log: str) -> str:
    """The last words of a node that ended."""
    return (log.splitlines() or ["nothing"])[-1][:300]


def _empty(data_dir: Path) -> None:
    for path in data_dir.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
