"""Has the faults of a plan happen to real processes.

The plan says when a fault strikes and whom; what the process is doing at that moment is up to the
machine.  A fault that can't strike when its moment comes is skipped, and told: its target is down,
or its files are the last intact copy of something.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from math import isfinite
from typing import Final

import trio

import octopi
from octopi.simulation.faults.actions import (
    Action,
    AtTime,
    BitFlip,
    Cut,
    Kill,
    Pause,
    Reset,
    Stop,
    SwizzleClog,
    When,
    Wipe,
)
from octopi.simulation.faults.damage import Damage
from sim.real.bounds import CopyBounds
from sim.real.clients import RealClients
from sim.real.damage import harm_files
from sim.real.nodes import RealCluster, RealNode
from sim.real.proxy import CLIENT, Way, both_ways
from sim.real.translation import RealFault, RealPlan

_NOTICED_S: Final = 15.0
"""The register has noticed by then that a broker is dead."""
_LOOK_S: Final = 0.02


class RealInjector:
    """The faults of *real*, for the processes of *cluster*."""

    def __init__(
        self, real: RealPlan, cluster: RealCluster, clients: RealClients, say: Callable[[str], None]
    ) -> None:
        self.counts: Counter[str] = Counter()
        """How many faults struck, by kind, and how many were ``skipped``."""
        self.bounds = CopyBounds()
        self.unfit: set[str] = set()
        """Brokers whose files are damaged in a way that they can't notice: an operator has to give
        them an empty disk."""
        self.lost: dict[str, int] = {}
        """Brokers with an empty disk, and the id that each had before."""
        self._real = real
        self._cluster = cluster
        self._clients = clients
        self._say = say
        self._began = 0.0

    async def run(self) -> None:
        """Let all faults strike; return when each has healed, or waits for healing."""
        self._began = trio.current_time()
        async with trio.open_nursery() as nursery:
            for number, chain in enumerate(self._real.chains):
                nursery.start_soon(self._run_chain, number, chain, nursery)

    async def _run_chain(
        self, number: int, chain: Iterable[RealFault], healing: trio.Nursery
    ) -> None:
        randomness = random.Random(f"{self._real.plan.seed}/{number}")
        here = ""
        for one in chain:
            await self._wait_for(one)
            target = self._target(one.fault.target, here, randomness)
            if target:
                here = target
            if one.is_possible:
                healing.start_soon(self._strike, one.fault.action, target, randomness)

    async def _wait_for(self, one: RealFault) -> None:
        match one.fault.place:
            case AtTime(seconds, behind):
                await trio.sleep_until((trio.current_time() if behind else self._began) + seconds)
            case When() as condition:
                while not self._holds(condition):  # noqa: ASYNC110 (it is seen from outside only)
                    await trio.sleep(_LOOK_S)

    def _holds(self, when: When) -> bool:
        places = self._clients.info.partitions if self._clients.info else []
        match when.condition:
            case "acknowledged":
                return self._clients.ledger.counts["acknowledged"] >= when.count
            case "epoch":
                return any(one.epoch >= when.count for one in places)
            case "in_sync":
                return any(len(one.in_sync) <= when.count for one in places)
        return False

    # --- whom --------------------------------------------------------------------------

    def _target(self, who: str, here: str, randomness: random.Random) -> str:
        """One node that *who* denotes, rather one that is up; empty: there is none."""
        if who == "here":
            return here
        found = self._named(who)
        up = [one for one in found if self._cluster.nodes[one].is_running]
        return randomness.choice(up or found) if found else ""

    def _named(self, who: str) -> list[str]:
        cluster = self._cluster
        word, _, number = who.partition("/")
        if word in {"leader", "follower"}:
            return self._in_role(word, int(number) if number else None)
        if word in {"active", "standby"}:
            active = cluster.active_register() if cluster.registers else ""
            return [one for one in cluster.registers if (one == active) == (word == "active")]
        kinds = {
            "any": list(cluster.nodes),
            "broker": cluster.brokers,
            "register": cluster.registers[:1],
        }
        return kinds.get(word, [word] if word in cluster.nodes else [])

    def _in_role(self, word: str, partition: int | None) -> list[str]:
        info = self._clients.info
        if info is None:
            return []
        names = {url: name for name, url in self._cluster.urls.items()}
        hosts = {one.broker: names[one.address] for one in info.brokers if one.address in names}
        found: dict[str, None] = {}
        for place in info.partitions:
            if partition in {None, place.partition}:
                followers = [one for one in place.replicas if one != place.leader]
                leaders = [] if place.leader is None else [place.leader]
                of_role = leaders if word == "leader" else followers
                found |= {hosts[one]: None for one in of_role if one in hosts}
        return list(found)

    def _peers(self, who: str, name: str) -> list[str]:
        if who == "client":
            return [CLIENT]
        found = [*self._cluster.nodes, CLIENT] if who == "others" else self._named(who)
        return [one for one in found if one != name]

    # --- what --------------------------------------------------------------------------

    async def _strike(self, action: Action, name: str, randomness: random.Random) -> None:
        if not name:
            return self._skip(action, "nobody", "there is no such node")
        node = self._cluster.nodes[name]
        if isinstance(action, Kill | Stop | Pause) and not node.is_running:
            return self._skip(action, name, "it is down")
        if isinstance(action, Pause) and node.is_paused:
            return self._skip(action, name, "it is paused")
        if isinstance(action, Wipe | BitFlip | Damage):
            return await self._destroy(node, action, randomness)
        self.counts[type(action).__name__] += 1
        self._say(f"{action} happens to {name}")
        match action:
            case Kill(restart_s):
                await node.kill()
                await self._restart(node, restart_s)
            case Stop(restart_s):
                await node.stop()
                await self._restart(node, restart_s)
            case Pause(seconds):
                node.pause()
                try:
                    await trio.sleep(seconds)
                finally:
                    node.resume()
            case Cut():
                await self._cut(self._ways(name, action), action.seconds, resets=action.resets)
            case Reset():
                self._cluster.network.reset(both_ways([name], self._peers(action.peer, name)))
            case SwizzleClog(seconds):
                await self._swizzle(seconds, randomness)
        return None

    def _skip(self, action: object, name: str, why: str) -> None:
        self.counts["skipped"] += 1
        self._say(f"{action} does not happen to {name}: {why}")

    async def _restart(self, node: RealNode, seconds: float | None) -> None:
        """Start it again later; when all is healed, if it is for good or until then."""
        if seconds is not None and isfinite(seconds):
            await trio.sleep(seconds)
            await node.launch()

    def _ways(self, name: str, cut: Cut) -> list[Way]:
        peers = self._peers(cut.peer, name)
        into = [(one, name) for one in peers]
        out = [(name, one) for one in peers]
        return {"in": into, "out": out, "both": into + out}[cut.way]

    async def _cut(self, ways: Collection[Way], seconds: float, *, resets: bool) -> None:
        self._cluster.network.cut(ways)
        try:
            await trio.sleep(seconds)
        finally:
            if resets:
                self._cluster.network.reset(ways)
            self._cluster.network.heal(ways)

    async def _swizzle(self, seconds: float, randomness: random.Random) -> None:
        names = list(self._cluster.nodes)
        async with trio.open_nursery() as nursery:
            for name in randomness.sample(names, len(names) // 2):
                begin = randomness.uniform(0, seconds / 2)
                end = randomness.uniform(seconds / 2, seconds)
                nursery.start_soon(self._cut_later, name, begin, end)

    async def _cut_later(self, name: str, begin_s: float, end_s: float) -> None:
        await trio.sleep(begin_s)
        await self._cut(self._ways(name, Cut()), end_s - begin_s, resets=False)

    # --- files -------------------------------------------------------------------------

    async def _destroy(
        self, node: RealNode, action: Wipe | BitFlip | Damage, randomness: random.Random
    ) -> None:
        """Kill a broker, and damage its files if others have what it has."""
        self._say(f"{node.name} is killed for {action}")
        await node.kill()
        broker = await self.may_lose(node.name)
        if broker is None:
            self._skip(action, node.name, "the others may lack what it has")
        elif isinstance(action, Wipe):
            self.empty(node, broker)
            self.counts["Wipe"] += 1
        else:
            done, is_noticed = harm_files(action, node.data_dir, randomness)
            if done:
                self._say(f"{node.name} is down: {done}")
                self.counts[type(action).__name__] += 1
                if not is_noticed:
                    self.unfit.add(node.name)
            else:
                self._skip(action, node.name, "it has no such file")
        await self._restart(node, action.restart_s)

    def empty(self, node: RealNode, broker: int) -> None:
        """Give a broker that is down an empty disk; it had the id *broker*."""
        node.empty_disk()
        self.unfit.discard(node.name)
        self.lost.setdefault(node.name, broker)

    async def may_lose(self, name: str) -> int | None:
        """The id of a broker that was just killed, if its copies may be taken away; None: they
        may not."""
        address = self._cluster.urls[name]
        with trio.move_on_after(_NOTICED_S):
            while True:
                info = await self._clients.fresh()
                of_it = [one for one in info.brokers if one.address == address]
                if not any(one.live for one in of_it):
                    break
            broker = max(one.broker for one in of_it) if of_it else None
            if broker is not None and self._spoil(broker, info):
                return broker
        return None

    def _spoil(self, broker: int, info: octopi.ClusterInfo) -> bool:
        dead = {one.broker for one in info.brokers if not one.live}
        return self.bounds.can_spare(broker, info.partitions, dead) and self.bounds.spoil(
            broker, info.partitions
        )
