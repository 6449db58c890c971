"""The replica manager of a broker that has just started, without the broker."""

from __future__ import annotations

from typing import Any

import trio

from octopi.environment import Environment
from octopi.limits import CATCH_UP_SLOWDOWN_MAX
from octopi.operating_system import SystemClock, SystemRandomness
from octopi.roles.broker.flusher import Flusher
from octopi.roles.broker.replica_manager import ReplicaManager
from octopi.storage.flush_policy import FlushOptions
from octopi.wire import messages as m
from tests.kit.disk import MemoryDisk
from tests.kit.links import MemoryNet

TOPIC = m.TopicRecord("orders", "0" * 16, [0], m.TopicOptions())


async def started_manager(
    environment: Environment,
    tasks: trio.Nursery,
    *,
    lost_power: bool = False,
    **options: Any,  # noqa: ANN401  # those of `ReplicaManager`
) -> ReplicaManager:
    """The manager of broker 1, which has opened the logs in the directory ``data``."""
    logs = ReplicaManager(
        environment,
        "data",
        Flusher(environment.clock),
        tasks,
        FlushOptions(),
        "test",
        lost_power=lost_power,
        catch_up_slowdown_max=CATCH_UP_SLOWDOWN_MAX,
        **options,
    )
    await logs.open_all(1)
    await logs.set_identity(1, 1)
    return logs


async def started_on(disk: MemoryDisk, tasks: trio.Nursery) -> ReplicaManager:
    """The manager of a broker on *disk* that keeps nothing that it gave up."""
    environment = Environment(SystemClock(), MemoryNet(), disk, SystemRandomness())
    return await started_manager(environment, tasks, keep_retired_s=0.0)
