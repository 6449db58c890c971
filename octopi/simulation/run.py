"""How every run of a simulated cluster goes: its nodes start, something happens, all is ended.

What happens is the caller's: the search plays a plan, `octopi.testing` runs a test, benchmarks and
tests of the simulator do what they are about.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from math import inf
from typing import Final

import trio

from octopi.clients.background import background_tasks
from octopi.simulation.cluster import ClusterOptions, SimulatedCluster
from octopi.simulation.kernel.world import World
from octopi.simulation.network.message_links import FrameNet
from octopi.simulation.network.network import Network, Tier
from octopi.simulation.network.streams import WebSocketTier

TIERS: Final[dict[str, Tier]] = {"message": FrameNet, "websocket": WebSocketTier}
"""What connections carry: whole messages, or the bytes of WebSockets."""

RESTART_S: Final = 0.5
"""What supervises the nodes starts one that ended by itself again after this (seconds)."""


class LeftoverTasksError(Exception):
    """Tasks go on although their process has ended: they are shielded from being cancelled."""

    def __init__(self, lives: list[str]) -> None:
        super().__init__(f"tasks go on without their process: {', '.join(lives)}")
        self.lives = lives
        """The processes: the host and the number of its life."""


@asynccontextmanager
async def running_cluster(
    world: World,
    network: Network,
    options: ClusterOptions | None = None,
    *,
    around: Callable[[SimulatedCluster], AbstractContextManager[object]] = nullcontext,
    boot_s: float = inf,
) -> AsyncIterator[SimulatedCluster]:
    """A cluster for a block; behind it, if it ended well, all processes are killed for good.

    *around* is called with it before anything runs, and gives a context that lasts until all tasks
    have ended or were given up.  The block begins when the register and all
    brokers serve, or after *boot_s* seconds.

    Raises:
      LeftoverTasksError: if the block ended well and tasks of a process don't.
    """
    async with background_tasks() as nursery:
        cluster = SimulatedCluster(world, network, nursery, options)
        with around(cluster):
            cluster.start()
            with trio.move_on_after(boot_s):
                await cluster.wait_serving()
            yield cluster
            late = await cluster.end()
            if late:
                raise LeftoverTasksError(late)
