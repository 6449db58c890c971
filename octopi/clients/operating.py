"""What operators ask that must not be done twice: an attempt whose answer was lost may have been
carried out, so the next one looks first.
"""

from __future__ import annotations

from octopi.clients.questions import Questions
from octopi.errors import ConnectionLostError, RefusedError, Status
from octopi.wire.messages import (
    AddPartitions,
    ClusterDescription,
    DescribeCluster,
    Done,
    MoveReplica,
)


async def add_partitions(questions: Questions, count: int) -> int:
    """See `octopi.clients.client.Client.add_partitions`."""
    wanted = (await _describe(questions)).partition_count + count
    is_lost = False

    async def attempt() -> None:
        nonlocal is_lost
        if is_lost and (await _describe(questions)).partition_count >= wanted:
            return
        try:
            await questions.register_once(lambda request: AddPartitions(request, count), Done)
        except ConnectionLostError:
            is_lost = True
            raise

    await questions.retry(f"add {count} partitions", attempt)
    return (await _describe(questions)).partition_count


async def move_replica(
    questions: Questions, partition: int, leaving: int, joining: int, timeout_s: float
) -> None:
    """See `octopi.clients.client.Client.move_replica`."""

    def question(request: int) -> MoveReplica:
        return MoveReplica(request, partition, leaving, joining)

    is_lost = False

    async def attempt() -> None:
        nonlocal is_lost
        try:
            await questions.register_once(question, Done, timeout_s)
        except ConnectionLostError:
            is_lost = True
            raise
        except RefusedError as error:
            if is_lost and error.status == Status.INVALID_OPTION:
                cluster = await _describe(questions)
                record = next(one for one in cluster.partitions if one.partition == partition)
                if joining in record.in_sync and leaving not in record.replicas:
                    return
            raise

    what = f"move partition {partition} from broker {leaving} to {joining}"
    await questions.retry(what, attempt, timeout_s)


async def _describe(questions: Questions) -> ClusterDescription:
    return await questions.register("describe the cluster", DescribeCluster, ClusterDescription)
