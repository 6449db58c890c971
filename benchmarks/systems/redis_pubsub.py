"""Redis without streams: it forwards messages and stores none; on the servers of
`benchmarks.systems.redis_memory`."""

from __future__ import annotations

import time
from typing import Any, Final

from benchmarks.client import Gate, age_s, spread, stamped
from benchmarks.systems import redis
from benchmarks.workloads import Workload

TITLE: Final = "Redis, no log"
KINDS: Final = frozenset({"latency"})
SERVED_BY: Final = "redis_memory"
DIFFERS: Final = "It acknowledges nothing to the producer but that the server has read the message."
missing = redis.missing


def runs(workload: Workload) -> bool:
    """Whether it takes part: where it is named."""
    return "redis_pubsub" in workload.systems


def run(role: str, access: Gate, parameters: dict[str, Any]) -> dict[str, float] | None:
    """Run a client process in *role*; return its figures, if it has any."""
    import redis

    host, _, port = parameters.pop("address").partition(":")
    with redis.Redis(host, int(port), decode_responses=False) as connection:
        if role == "receive":
            return _receive(access, connection, **parameters)
        _pace(access, connection, **parameters)
        return None


def _pace(access: Gate, connection: Any, topic: str, size: int, count: int, rate: int) -> None:
    access.wait()
    begin = time.perf_counter()
    for number in range(count):
        wait_s = begin + number / rate - time.perf_counter()
        if wait_s > 0:
            time.sleep(wait_s)
        connection.publish(topic, stamped(size))


def _receive(access: Gate, connection: Any, topic: str, size: int, count: int) -> dict[str, float]:
    latencies: list[float] = []
    with connection.pubsub(ignore_subscribe_messages=True) as subscription:
        subscription.subscribe(topic)
        access.wait()
        while len(latencies) < count:
            message = subscription.get_message(timeout=1.0)
            if message is not None:
                latencies.append(age_s(message["data"]))
    return spread(latencies)
