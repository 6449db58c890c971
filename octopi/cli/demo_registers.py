"""The demonstration of a cluster with registers: its leader is killed, and with it, of several
registers, the active one.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Final

import octopi
from octopi.cli.demo_cluster import DemoCluster
from octopi.cli.demonstration import TOPIC, DemoLoad, Trial, say, until
from octopi.cli.node_processes import NodeProcesses

_KILL_AT: Final = 0.25
_RESTART_AT: Final = 0.5
"""The killed broker is started again when this part of the stream is acknowledged."""


class RegisterTrial(Trial):
    """A cluster with registers: the leader is killed, and the active one of several registers."""

    def __init__(self, nodes: NodeProcesses, register_count: int) -> None:
        self.cluster: DemoCluster = DemoCluster(nodes, register_count)
        self.killed = (
            "the leader" if register_count == 1 else "the leader and of the active register"
        )
        self._victim: int | None = None

    def members(self, brokers: str) -> str:
        count = self.cluster.register_count
        return f"{'a register' if count == 1 else f'{count} registers'} and {brokers}"

    async def create_topic(self, client: octopi.Client) -> octopi.PartitionInfo:
        (place,) = (await client.create_topic(TOPIC)).partitions
        self._victim = place.leader
        return place

    async def kill(self, load: DemoLoad) -> None:
        victim = self._victim
        assert victim is not None, "a topic that was just created has a leader"
        await load.acknowledged(_KILL_AT)
        register = await self._active_register() if self.cluster.register_count > 1 else None
        async with load.pause_told():
            also = None if register is None else partial(self._kill_register, register)
            await load.kill_leader(victim, also)
            await load.acknowledged(_RESTART_AT)
        if register is not None:
            await self._restart_register(register)
        await load.restart(victim)

    async def _active_register(self, *, but: int | None = None) -> int:
        """The number of the active register, when *but* one isn't it any more."""
        probe = partial(self.cluster.active_register, but=but)
        return await until("an active register", probe)

    async def _kill_register(self, victim: int) -> None:
        """Kill the active register; return when another one is active."""
        killed_at = time.perf_counter()
        await self.cluster.kill_register(victim)
        say("killed", f"register {victim}, the active one, at the same time")
        active = await self._active_register(but=victim)
        say("active", f"register {active}, after {time.perf_counter() - killed_at:.2f} s")

    async def _restart_register(self, victim: int) -> None:
        began = time.perf_counter()
        await self.cluster.start_register(victim)
        says = (
            f"register {victim}: serves again {time.perf_counter() - began:.2f} s after its start"
        )
        say("restarted", says)
