"""What goes wrong when: a schedule of faults, drawn from a seed.

Several lanes at once; a lane takes what it disturbs for itself, so no node is disturbed
twice at a time, and there is always one broker that nothing happens to.  Each fault ends by
healing, whatever else happens.  The seed decides what is tried and for how long; which
instant of the cluster it hits is up to the machine.
"""

from __future__ import annotations

import random
import signal
from collections.abc import Awaitable, Callable
from typing import Final

import trio

from tests.chaos.cluster import REGISTER, ChaosCluster, in_thread
from tests.chaos.proxy import CLIENT, Way, both_ways

_PAUSE_S: Final = (0.2, 2.5)
_SHORT_S: Final = (0.05, 0.9)
"""Less than the register needs to notice."""
_LONG_S: Final = (1.2, 5.0)

Disturb = Callable[[random.Random, list[str]], Awaitable[None]]


class Schedule:
    """Disturbs a cluster; `run` until cancelled leaves everything healed."""

    def __init__(self, cluster: ChaosCluster, seed: int, say: Callable[[str], None]) -> None:
        self.counts: dict[str, int] = {}
        self.busy: set[str] = set()
        """The nodes that something happens to now."""
        self._cluster = cluster
        self._seed = seed
        self._say = say
        self._stopping = trio.Event()
        self._faults: tuple[tuple[int, int, Disturb], ...] = (
            # Weight, brokers that it takes (0: the register).
            (6, 1, self.kill),
            (4, 1, self.pause),
            (2, 1, self.restart),
            (3, 1, self.isolate),
            (3, 1, self.cut_from_register),
            (2, 1, self.deafen),
            (2, 1, self.silence),
            (2, 2, self.split),
            (2, 1, self.reset),
            (1, 1, self.kill_again_and_again),
            (2, 0, self.kill),
            (1, 0, self.pause),
            (1, 0, self.restart),
        )

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
        weights = [weight for weight, _, _ in self._faults]
        while not self._stopping.is_set():
            turn += 1
            chance = random.Random(f"{self._seed}/{lane}/{turn}")
            with trio.move_on_after(chance.uniform(*_PAUSE_S)):
                await self._stopping.wait()
                return
            [(_, count, disturb)] = chance.choices(self._faults, weights)
            names = self._take(chance, count)
            if not names:
                continue
            kind = f"{disturb.__name__} {'a register' if count == 0 else 'a broker'}"
            self.counts[kind] = self.counts.get(kind, 0) + 1
            try:
                await disturb(chance, names)
            finally:
                self.busy.difference_update(names)

    def _take(self, chance: random.Random, count: int) -> list[str]:
        if count == 0:
            names = [] if REGISTER in self.busy else [REGISTER]
        else:
            free = [name for name in self._cluster.brokers if name not in self.busy]
            # One is left alone.
            names = chance.sample(free, count) if len(free) > count else []
        self.busy.update(names)
        return names

    def _tell(self, what: str, names: list[str], seconds: float) -> None:
        self._say(f"{what} {' and '.join(names)} for {seconds:.2f} s")

    @staticmethod
    def _duration(chance: random.Random) -> float:
        return chance.uniform(*chance.choice((_SHORT_S, _LONG_S)))

    # --- processes ---------------------------------------------------------------------

    async def kill(self, chance: random.Random, names: list[str]) -> None:
        """SIGKILL, and start again a while later."""
        node, seconds = self._cluster.nodes[names[0]], self._duration(chance)
        self._tell("kill", names, seconds)
        await in_thread(node.kill9)
        await trio.sleep(seconds)
        await in_thread(node.restart)
        self._say(f"{names[0]} serves again")

    async def kill_again_and_again(self, chance: random.Random, names: list[str]) -> None:
        """SIGKILL also while it starts."""
        node, lives = self._cluster.nodes[names[0]], chance.randint(2, 4)
        self._say(f"kill {names[0]} {lives} times as it starts")
        await in_thread(node.kill9)
        for _ in range(lives):
            node.launch()
            await trio.sleep(chance.uniform(0.3, 1.2))
            await in_thread(node.kill9)
        await in_thread(node.restart)
        self._say(f"{names[0]} serves again")

    async def pause(self, chance: random.Random, names: list[str]) -> None:
        """SIGSTOP, and SIGCONT a while later: it comes back believing that nothing happened."""
        node, seconds = self._cluster.nodes[names[0]], self._duration(chance)
        self._tell("pause", names, seconds)
        node.signal(signal.SIGSTOP)
        await trio.sleep(seconds)
        node.signal(signal.SIGCONT)

    async def restart(self, chance: random.Random, names: list[str]) -> None:
        """SIGTERM, and start again."""
        node, seconds = self._cluster.nodes[names[0]], chance.uniform(*_SHORT_S)
        self._tell("restart", names, seconds)
        await in_thread(lambda: node.terminate(40))
        await trio.sleep(seconds)
        await in_thread(node.restart)
        self._say(f"{names[0]} serves again")

    # --- network -----------------------------------------------------------------------

    async def isolate(self, chance: random.Random, names: list[str]) -> None:
        """Nothing gets to a broker or from it."""
        await self._cut("isolate", chance, names, both_ways(names, self._everybody()))

    async def cut_from_register(self, chance: random.Random, names: list[str]) -> None:
        """A broker and the register don't hear each other, everybody else does."""
        await self._cut("cut from the register", chance, names, both_ways(names, [REGISTER]))

    async def deafen(self, chance: random.Random, names: list[str]) -> None:
        """A broker sends and hears nothing."""
        ways = [(one, names[0]) for one in self._everybody() if one != names[0]]
        await self._cut("deafen", chance, names, ways)

    async def silence(self, chance: random.Random, names: list[str]) -> None:
        """A broker hears and sends nothing."""
        ways = [(names[0], one) for one in self._everybody() if one != names[0]]
        await self._cut("silence", chance, names, ways)

    async def split(self, chance: random.Random, names: list[str]) -> None:
        """Two brokers don't hear each other, everybody else does."""
        await self._cut("split", chance, names, both_ways(names, names))

    async def reset(self, chance: random.Random, names: list[str]) -> None:
        """All connections of a broker break."""
        self._say(f"reset {names[0]}")
        self._cluster.network.reset(both_ways(names, self._everybody()))
        await trio.lowlevel.checkpoint()

    async def _cut(
        self, what: str, chance: random.Random, names: list[str], ways: list[Way]
    ) -> None:
        seconds, resets = self._duration(chance), chance.random() < 0.5
        self._tell(what, names, seconds)
        self._cluster.network.cut(ways)
        try:
            await trio.sleep(seconds)
        finally:
            if resets:
                self._cluster.network.reset(ways)
            self._cluster.network.heal(ways)
            self._say(f"heal {' and '.join(names)}{', with resets' if resets else ''}")

    def _everybody(self) -> list[str]:
        return [*self._cluster.nodes, CLIENT]
