"""What the command line asks a broker of a cluster without a register.

It is no part of the clients' public interface: it is for operators.
"""

from __future__ import annotations

from octopi.clients.client import Client
from octopi.clients.options import not_negative
from octopi.identifiers import PartitionId
from octopi.wire.ring import DescribeRing, Locate, Located, RingDescription


async def describe_ring(client: Client) -> RingDescription:
    """What the broker that *client* asks knows of the ring.

    Raises:
      RefusedError: WRONG_ENDPOINT, if it belongs to a cluster with a register.
    """
    return await client._router.ask_register("describe the ring", DescribeRing, RingDescription)


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
