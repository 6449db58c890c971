"""Runs a simulated cluster: starts its nodes, runs a block, and ends everything.

The caller decides what happens in the block: the search plays a plan, `octopi.testing` runs a test,
and so do benchmarks and the simulator's own tests.
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
"""How long after its end a node that ended by itself is started again (s)."""


class LeftoverTasksError(Exception):
    """Tasks continue after their process has ended, because they are shielded from cancellation."""

    def __init__(self, lives: list[str]) -> None:
        super().__init__(f"tasks go on without their process: {', '.join(lives)}")
        self.lives = lives
        """The processes, each as host and number."""


@asynccontextmanager
async def running_cluster(
    world: World,
    network: Network,
    options: ClusterOptions | None = None,
    *,
    around: Callable[[SimulatedCluster], AbstractContextManager[object]] = nullcontext,
    boot_s: float = inf,
) -> AsyncIterator[SimulatedCluster]:
    """A cluster for a block.  After the block, if it ended without an error, all processes are
    killed for good.

    *around* is called with the cluster before anything runs, and returns a context that lasts until
    all tasks have ended or were given up.  The block begins when the register and all brokers
    serve, or after *boot_s* seconds.

    Raises:
      LeftoverTasksError: if the block ended without an error, and tasks of a process don't end.
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
