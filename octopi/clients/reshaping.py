"""Orders that change where messages are: partitions, replicas, and the partitions of a topic.

An attempt whose answer was lost may have been carried out, so the next one looks first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from octopi.clients.routing import RequestRouter
from octopi.errors import ConnectionLostError, OctopiError, RefusedError, Status
from octopi.identifiers import BrokerId, PartitionId, TopicName
from octopi.limits import GROW_TIMEOUT_S
from octopi.retry import may_pass
from octopi.wire.messages import (
    AddPartitions,
    ClusterDescription,
    DescribeCluster,
    Done,
    GrowTopic,
    MoveReplica,
    MoveTopic,
    TopicDescription,
    TopicInfo,
)

GROW_CALL_TIMEOUT_S: Final = 2 * GROW_TIMEOUT_S
"""How long a client waits until a topic has other partitions."""


async def add_partitions(router: RequestRouter, count: int) -> int:
    """See `Admin.add_partitions`."""
    wanted = (await _describe(router)).partition_count + count
    is_lost = False

    async def attempt() -> None:
        nonlocal is_lost
        if is_lost and (await _describe(router)).partition_count >= wanted:
            return
        try:
            await router.ask_register_once(lambda request: AddPartitions(request, count), Done)
        except ConnectionLostError:
            is_lost = True
            raise

    await router.retry(f"add {count} partitions", attempt)
    return (await _describe(router)).partition_count


async def move_replica(
    router: RequestRouter, partition: int, leaving: int, joining: int, timeout_s: float
) -> None:
    """See `Admin.move_replica`."""

    def question(request: int) -> MoveReplica:
        return MoveReplica(request, PartitionId(partition), BrokerId(leaving), BrokerId(joining))

    is_lost = False

    async def attempt() -> None:
        nonlocal is_lost
        try:
            await router.ask_register_once(question, Done, timeout_s)
        except ConnectionLostError:
            is_lost = True
            raise
        except RefusedError as error:
            if is_lost and error.status == Status.INVALID_OPTION:
                cluster = await _describe(router)
                record = next(one for one in cluster.partitions if one.partition == partition)
                if joining in record.in_sync and leaving not in record.replicas:
                    return
            raise

    what = f"move partition {partition} from broker {leaving} to {joining}"
    await router.retry(what, attempt, timeout_s)


async def grow_topic(
    router: RequestRouter, topic: TopicName, count: int, timeout_s: float
) -> TopicInfo:
    """See `octopi.clients.admin.Admin.grow_topic`."""
    return await _reshape(
        router,
        f"have topic {topic} grow to {count} partitions",
        topic,
        lambda request: GrowTopic(request, topic, count),
        lambda info: len(info.partitions) == count,
        timeout_s,
    )


async def move_topic(
    router: RequestRouter, topic: TopicName, partition: int, timeout_s: float
) -> TopicInfo:
    """See `octopi.clients.admin.Admin.move_topic`."""
    return await _reshape(
        router,
        f"have topic {topic} go on in partition {partition}",
        topic,
        lambda request: MoveTopic(request, topic, PartitionId(partition)),
        lambda info: [one.partition for one in info.partitions] == [partition],
        timeout_s,
    )


async def _reshape(
    router: RequestRouter,
    what: str,
    topic: TopicName,
    order: Callable[[int], GrowTopic | MoveTopic],
    is_done: Callable[[TopicInfo], bool],
    timeout_s: float,
) -> TopicInfo:
    is_lost = is_cancelled = False

    async def attempt() -> TopicInfo:
        nonlocal is_lost, is_cancelled
        if is_lost and is_done(info := await router.describe_once(topic, create=False)):
            return info
        began_at = router.now()
        try:
            answer = await router.ask_register_once(order, TopicDescription, timeout_s)
        except ConnectionLostError:
            is_lost = True
            raise
        except RefusedError as error:
            # Another attempt would hold up the topic's messages again.
            took_s = router.now() - began_at
            is_cancelled = error.status == Status.NOT_READY and took_s >= GROW_TIMEOUT_S
            raise
        router.lookup.remember(answer.topic)
        return answer.topic

    def passes(error: OctopiError) -> bool:
        return may_pass(error) and not is_cancelled

    return await router.retry(what, attempt, timeout_s, passes)


async def _describe(router: RequestRouter) -> ClusterDescription:
    return await router.ask_register("describe the cluster", DescribeCluster, ClusterDescription)
