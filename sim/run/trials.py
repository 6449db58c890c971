"""What a healed cluster has to survive, according to its plan: brokers that die or stop once more,
disks that are full, the loss of the register, and a power failure."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from octopi.limits import REPLICA_LAG_S_MAX
from octopi.simulation.cluster import Node
from octopi.simulation.disk.faults import Delay, DiskFault
from octopi.simulation.faults.injector import Injector
from octopi.simulation.kernel.host import ProcessLife
from sim.run.client_log import ClientLog
from sim.run.healing import Healer
from sim.run.workload import Workload

Until = Callable[[str, Callable[[], str]], Awaitable[None]]
"""Waits until a function returns an empty text; the first argument begins the text of the
`Violation` that it raises if that takes too long."""

_FLUSHING_S: Final = 1.0
"""How long a flush takes, at most, when all disks work."""
_FULL_S: Final = 3.0
"""How long a disk is full: a broker notices it in this time, and the register reacts."""
_HANG_S: Final = REPLICA_LAG_S_MAX + 1.0
"""How long brokers hang beside one whose disk is full: it finds that they lag."""
_PROCESSED_S: Final = 0.5
"""How long members may take for a message until then."""
_DECIDING_S: Final = 0.7
"""How long the register hangs when a broker stops: not so long that brokers give it up."""
_DEVICE_S: Final = 0.15
"""How long the device of a broker takes that stops: its proposal waits for that."""
_DELAYS_COUNT: Final = 20
_HEARD_S: Final = 0.05
"""How long after that another broker dies: the one that stops has heard that it shall; or how long
before."""


class Trials:
    """The trials of one run."""

    def __init__(
        self,
        client_log: ClientLog,
        injector: Injector,
        workload: Workload,
        healer: Healer,
        until: Until,
    ) -> None:
        self._client_log = client_log
        self._plan = client_log.plan
        self._cluster = client_log.cluster
        self._world = client_log.cluster.world
        self._injector = injector
        self._workload = workload
        self._healer = healer
        self._until = until

    async def run(self) -> None:
        """Put the cluster to all trials of the plan.

        Raises:
          Violation: "liveness", if it doesn't go on.
        """
        plan, is_whole = self._plan, not self._healer.cut_off
        if plan.kills_each:
            await self._kill_each()
        if plan.stops_each:
            await self._stop_each()
        if plan.spoils_disks:
            await self._spoil_disks()
        if plan.without_register and is_whole:
            await self._do_without_register()
        if plan.loses_all and plan.loses_power and is_whole:
            await self._lose_power()

    async def _kill_each(self) -> None:
        """Kill one broker after the other, and check that the others go on without it.

        Raises:
          Violation: "liveness", if they don't.
        """
        healer, cluster = self._healer, self._cluster
        for name in [node.name for node in cluster.brokers if node.name != healer.cut_off]:
            if not healer.survivors(name):
                continue  # without it, a partition would have too few replicas in sync
            cluster.nodes[name].host.kill()
            healer.prove_again()
            await self._until(f"new messages are not taken without {name}", healer.unproven)
            cluster.boot(name)
            await self._until_well(name)

    async def _stop_each(self) -> None:
        """Ask one broker after the other to stop; while the register hangs, another one dies.  That
        one comes back, and the cluster has to go on without the one that stopped.  In half of the
        cases the other one dies first: a leader has decided to go on without it when it is asked to
        stop, and its device delays the proposal.

        Raises:
          Violation: "liveness", if it doesn't.
        """
        healer, cluster = self._healer, self._cluster
        for node in [one for one in cluster.brokers if one.name != healer.cut_off]:
            name = node.name
            others = [one for one in cluster.brokers if one.host.is_up and one is not node]
            if not (others and healer.survivors(name)):
                continue  # without it, a partition would have too few replicas in sync
            self._hang([one for one in cluster.registers if one.host.is_up], _DECIDING_S)
            dead = self._world.random("dies", name).choice(others)
            if self._world.random("dies first", name).random() < 0.5:
                node.host.disk.inject(DiskFault("sync", Delay(_DEVICE_S), times=_DELAYS_COUNT))
                dead.host.kill()
                await self._world.sleep(_HEARD_S)
                cluster.stop(name)
            else:
                cluster.stop(name)
                await self._world.sleep(_HEARD_S)
                dead.host.kill()
            await self._world.sleep(_DECIDING_S)
            node.host.disk.heal()
            cluster.boot(dead.name)
            healer.prove_again()
            await self._until(f"{name} doesn't stop", partial(_running, node))
            await self._until(f"new messages are not taken without {name}", healer.unproven)
            cluster.boot(name)
            await self._until_well(name)

    async def _spoil_disks(self) -> None:
        """Make the disk of one broker after the other full, or have it fail; then make all disks
        full, and free all but that of a leader.  Check that other brokers take messages instead.

        Raises:
          Violation: "liveness", if they don't.
        """
        healer, cluster, injector = self._healer, self._cluster, self._injector
        hosts = [node.name for node in cluster.brokers if node.name != healer.cut_off]
        for name in [*hosts, ""]:
            if not all(map(healer.survivors, [name] if name else hosts)):
                continue  # without it, a partition would have too few replicas in sync
            led = healer.led_by(name)
            fails = led and self._world.random("spoil", name).random() < 0.5
            healer.prove_again()
            dead = ""
            if fails:
                injector.fail_append(name, led[0])
            elif name:
                if self._plan.others_hang:
                    dead = await self._hang_beside(name)
                injector.fill(name)
            else:
                name = self._world.random("spoil").choice(healer.leaders())
                for one in sorted(hosts, key=lambda one: one == name):  # its own comes last
                    injector.fill(one)
                    await self._world.sleep(_FULL_S)
                    healer.prove_again()
                for one in hosts:
                    if one != name:
                        injector.make_room(one)
            what = f"the disk of {name} {'has failed' if fails else 'is full'}"
            await self._until(f"new messages are not taken while {what}", healer.unproven)
            injector.make_room(name)
            if dead:
                cluster.boot(dead)
            if fails:
                if cluster.nodes[name].host.is_up:  # a bug may have ended it
                    cluster.nodes[name].host.kill()
                cluster.boot(name)
            await self._until_well(name)

    async def _hang_beside(self, name: str) -> str:
        """Have all brokers but *name* hang for longer than followers may lag, when each log has
        just got a message, and return a moment later: members of subscriptions have processed it.
        One of them dies in the end; return its host, or an empty text if all were down.

        Raises:
          Violation: "liveness", if the message is not taken.
        """
        await self._until("new messages are not taken before brokers hang", self._healer.unproven)
        others = [one for one in self._cluster.brokers if one.host.is_up and one.name != name]
        self._hang(others, _HANG_S)
        if others:
            self._world.after(_HANG_S, others[-1].host.kill)
        await self._world.sleep(_PROCESSED_S)
        self._healer.prove_again()
        return others[-1].name if others else ""

    def _hang(self, nodes: list[Node], seconds: float) -> None:
        for node in nodes:
            if (life := node.host.life) is not None and not life.is_paused:
                node.host.pause()
                self._world.after(seconds, partial(_resume, node, life))

    async def _until_well(self, name: str) -> None:
        """Wait until *name* serves, all replicas are in sync, and all partitions are served."""
        healer = self._healer
        await self._until(f"{name} doesn't serve again", healer.not_serving)
        await self._until(f"replicas are not in sync after {name}", healer.out_of_sync)
        healer.ask_who_serves()
        await self._until(f"partitions are not served after {name}", healer.unserved)

    async def _do_without_register(self) -> None:
        """Move replicas and leaders while producers have nothing to send; then stop the register,
        and check that each producer finds the new leaders without it.

        Raises:
          Violation: "liveness", if a producer doesn't, or replicas don't move.
        """
        self._healer.move_all()
        await self._until("replicas don't move", self._healer.unmoving)
        await self._until("replicas are not in sync when they have moved", self._healer.out_of_sync)
        # A decision that replicas have not heard of would only take effect when it is back.
        await self._until("replicas don't hear of a decision", self._healer.untold)
        registers = [one for one in self._cluster.registers if one.host.is_up]
        for one in registers:
            one.host.kill()
        self._client_log.all_well.set()
        await self._until("producers get no receipts without the register", self._workload.unheard)
        for one in registers:
            self._cluster.boot(one.name)
        await self._until("the register doesn't serve again", self._healer.not_serving)

    async def _lose_power(self) -> None:
        """Cut the power of all machines when everything has been flushed, and check that they serve
        again.

        Raises:
          Violation: "liveness", if they don't.
        """
        healer = self._healer
        await self._world.sleep(self._plan.flush_interval_s + _FLUSHING_S)
        await self._until("replicas differ at rest", healer.differing)
        self._client_log.flushed_end = {log: healer.end(log) for log in self._client_log.logs}
        if self._injector.lose_all_power():
            await self._until_well("the power failure")


def _running(node: Node) -> str:
    return node.name if node.host.is_up else ""


def _resume(node: Node, life: ProcessLife) -> None:
    if node.host.life is life and life.is_paused:
        node.host.resume()
