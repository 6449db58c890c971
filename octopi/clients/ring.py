"""What the command line asks a broker of a cluster without a register.

It is no part of the clients' public interface: it is for operators.
"""

from __future__ import annotations

from collections.abc import Sequence

from octopi.clients.client import Client
from octopi.clients.options import not_negative
from octopi.identifiers import BrokerId, PartitionId
from octopi.wire.hand_over import (
    ClusterHandedOver,
    HandOverToRegisters,
    HandOverToRing,
    RegistersProgress,
)
from octopi.wire.ring import (
    DescribeRing,
    LeaveProgress,
    Locate,
    Located,
    OrderLeave,
    RingDescription,
)


async def describe_ring(client: Client) -> RingDescription:
    """What the broker that *client* asks knows of the ring.

    Raises:
      RefusedError: WRONG_ENDPOINT, if it belongs to a cluster with a register.
    """
    return await client._router.ask_register("describe the ring", DescribeRing, RingDescription)


async def hand_over_to_ring(client: Client, *, dry_run: bool = False) -> list[str]:
    """Have the brokers of a cluster decide without its register from now on; return their
    addresses.  *dry_run*: only find out whether that is possible.  It may be called again.

    Raises:
      RefusedError: INVALID_OPTION, if something has to be done before.
    """
    answer = await client._router.ask_register(
        "hand the cluster over to its brokers",
        lambda request: HandOverToRing(request, dry_run),
        ClusterHandedOver,
    )
    return answer.brokers


async def hand_over_to_registers(
    client: Client, registers: Sequence[str], *, dry_run: bool = False
) -> RegistersProgress:
    """Have the registers at these addresses decide from now on in a cluster that has none, and
    return how far that is.  *dry_run*: only find out whether it is possible.  It may be called
    again and again: the brokers go on by themselves.

    Raises:
      RefusedError: INVALID_OPTION, if something has to be done before.
    """
    return await client._router.ask_register(
        "hand the cluster over to a register",
        lambda request: HandOverToRegisters(request, list(registers), dry_run),
        RegistersProgress,
    )


async def order_leave(client: Client, broker: int, *, is_taken_back: bool = False) -> LeaveProgress:
    """Have *broker* leave the cluster for good, or take that back, and return how far it is.  It
    may be called again and again: the brokers go on by themselves.

    Raises:
      RefusedError: INVALID_OPTION, if there is no such broker, or no other one; and as
          `describe_ring`.
    """
    not_negative(broker=broker)
    return await client._router.ask_register(
        f"have broker {broker} leave",
        lambda request: OrderLeave(request, BrokerId(broker), is_taken_back),
        LeaveProgress,
    )


async def locate(client: Client, topic: str = "", *, partition: int = 0) -> Located:
    """The broker of the ring that holds *partition*, or, if *topic* is given, the partition that
    would keep the record of that topic.

    Raises:
      RefusedError: UNKNOWN_PARTITION, if there is no such partition; and as `describe_ring`.
    """
    not_negative(partition=partition)
    return await client._router.ask_register(
        "locate on the ring",
        lambda request: Locate(request, topic, PartitionId(partition)),
        Located,
    )
