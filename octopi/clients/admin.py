"""What operators ask.  Where something must not be done twice, an attempt whose answer was lost may
have been carried out, so the next one looks first.
"""

from __future__ import annotations

from octopi.clients.options import not_negative
from octopi.clients.routing import RequestRouter
from octopi.errors import ConnectionLostError, RefusedError, Status
from octopi.limits import DRAIN_TIMEOUT_S, MOVE_TIMEOUT_S
from octopi.wire.messages import (
    AddPartitions,
    ClusterDescription,
    DescribeCluster,
    Done,
    DrainBroker,
    MoveReplica,
    PartitionRecovery,
    RecoverPartition,
    RemoveBroker,
)


class Operating:
    """What a client can have done to the cluster itself; `octopi.clients.client.Client` is one."""

    _router: RequestRouter

    async def drain_broker(self, broker: int, *, timeout_s: float = DRAIN_TIMEOUT_S) -> None:
        """Have other in-sync replicas lead what *broker* leads; it leads nothing before it
        joins anew.  Return when it leads nothing.

        Raises:
          RefusedError: INVALID_OPTION, if there is no such broker; NOT_READY, if nobody
              else could lead for *timeout_s*: it keeps only those leaderships then.
        """
        not_negative(broker=broker)
        await self._router.retry(
            f"drain broker {broker}",
            lambda: self._router.ask_register_once(
                lambda request: DrainBroker(request, broker), Done, timeout_s
            ),
            timeout_s,
        )

    async def remove_broker(self, broker: int) -> None:
        """Have the cluster forget *broker*, which is away for good.  Its id is never given again.

        Raises:
          RefusedError: INVALID_OPTION, if there is no such broker; BROKER_IN_USE, if it runs or
              holds replicas.
        """
        not_negative(broker=broker)
        what = f"remove broker {broker}"
        await self._router.ask_register(what, lambda request: RemoveBroker(request, broker), Done)

    async def add_partitions(self, count: int) -> int:
        """Have *count* more partitions, for topics that are created from now on; return how
        many there are then.

        Raises:
          RefusedError: INVALID_OPTION, if there would be too many.
        """
        not_negative(count=count)
        return await add_partitions(self._router, count)

    async def move_replica(
        self, partition: int, leaving: int, joining: int, *, timeout_s: float = MOVE_TIMEOUT_S
    ) -> None:
        """Have the broker *joining* hold a replica in the place of the broker *leaving*.
        Return when it is in sync and the other one's replica is gone.

        Cancelled or timed out, both may hold one; asked again, the register takes it up
        where it is.

        Raises:
          RefusedError: UNKNOWN_PARTITION, if the partition lies on no broker; INVALID_OPTION,
              if *leaving* holds no replica or there is no broker *joining*; NO_BROKER, if that
              is away, or NOT_READY, if it isn't in sync in time.
        """
        not_negative(partition=partition, leaving=leaving, joining=joining)
        await move_replica(self._router, partition, leaving, joining, timeout_s)

    async def recover_partition(
        self, partition: int, *, accept_loss: bool = False, empty_on: int | None = None
    ) -> PartitionRecovery:
        """What the replicas of a partition without a leader hold, and what is known to be lost if
        the best of those that answer leads.  With *accept_loss* it does, and messages that were
        acknowledged may be lost.

        *empty_on*: no replica will ever be back; with *accept_loss* the partition begins again on
        this broker, and all messages that its topics have there are lost.

        Raises:
          RefusedError: UNKNOWN_PARTITION, if the partition lies on no broker; INVALID_OPTION,
              while a replica that is in sync runs, or with *empty_on* any replica, or if there is
              no such broker; NO_BROKER, with *accept_loss*, if none runs, or *empty_on* doesn't.
          NotReadyError: if waiting will do.
        """
        not_negative(partition=partition)
        return await self._router.ask_register(
            f"recover partition {partition}",
            lambda request: RecoverPartition(request, partition, accept_loss, empty_on),
            PartitionRecovery,
        )


async def add_partitions(router: RequestRouter, count: int) -> int:
    """See `Operating.add_partitions`."""
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
    """See `Operating.move_replica`."""

    def question(request: int) -> MoveReplica:
        return MoveReplica(request, partition, leaving, joining)

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


async def _describe(router: RequestRouter) -> ClusterDescription:
    return await router.ask_register("describe the cluster", DescribeCluster, ClusterDescription)
