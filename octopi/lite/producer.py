"""The producer of Octopi Lite."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

from octopi.clients.client import Client, connect
from octopi.clients.producing.producer import Producer
from octopi.environment import Clock, Environment
from octopi.errors import ClosedError, InvalidOptionError, OctopiError
from octopi.limits import LITE_ATTEMPT_S, LITE_PARTITIONS
from octopi.lite.errors import BrokerDisconnectError, LeaderNotFoundError
from octopi.lite.numbers import number_at, padded
from octopi.lite.topic import LiteTopic, clock_of


class LiteProducer:
    """Adds messages to partitions; made by `mount_producer`."""

    def __init__(self, client: Client, producer: Producer, topic: LiteTopic, clock: Clock) -> None:
        self._clock = clock
        self._client = client
        self._producer = producer
        self._topic = topic
        self._is_mounted = True

    async def add_message(self, partition_id: int, data: bytes) -> int:
        """Add a message of up to 256 bytes; return its number.

        It waits for `LITE_ATTEMPT_S`, and all replicas in sync have the message then.  The leader
        is looked up anew whenever it has moved, and a repetition stores nothing twice.

        Raises:
          InvalidPartitionIdError, InvalidOptionError: if there is no such partition, or *data* is
              too long.
          LeaderNotFoundError, BrokerDisconnectError: if it was not acknowledged in that time.  The
              producer goes on trying, so adding the message again may store it twice.
          ClosedError: after `unmount`.
        """
        return await self.add_message_timeout(partition_id, data, LITE_ATTEMPT_S)

    async def add_message_timeout(self, partition_id: int, data: bytes, timeout_s: float) -> int:
        """`add_message` that waits for *timeout_s*: an election that takes less is not noticed.

        Raises:
          OctopiError: as `add_message`.
        """
        value, place = padded(data), self._topic.place(partition_id)
        if timeout_s <= 0:
            raise InvalidOptionError(f"the time-out is {timeout_s:g} s: it must be above 0")
        self._require_mounted()
        with self._clock.timeout(timeout_s):
            receipt = await self._producer.send(self._topic.name, value, partition=place)
            return number_at(receipt.offset)
        with self._clock.timeout(LITE_ATTEMPT_S):
            await self.get_leader_ip(partition_id)
        raise BrokerDisconnectError(
            f"partition {partition_id} did not acknowledge the message within {timeout_s:g} s; it "
            "may be stored later"
        )

    async def get_leader_ip(self, partition_id: int) -> str:
        """The address of the broker that leads the partition, as ``host:port``.

        Raises:
          InvalidPartitionIdError: if there is no such partition.
          LeaderNotFoundError: while no broker leads it.
          ClosedError: after `unmount`.
        """
        self._require_mounted()
        found = await self._topic.describe(self._client, partition_id)
        if found.leader is None:
            raise LeaderNotFoundError(
                f"no broker leads partition {partition_id} now: see `octopi-node status`"
            )
        return urlsplit(found.leader_address).netloc

    async def unmount(self) -> OctopiError | None:
        """Wait until what was added is settled, and close the connections; the error if something
        could not be delivered.  The second time nothing happens."""
        if not self._is_mounted:
            return None
        self._is_mounted = False
        try:
            await self._producer.flush()
        except OctopiError as error:
            return error
        finally:
            self._producer.close()
        return None

    def _require_mounted(self) -> None:
        if not self._is_mounted:
            raise ClosedError("the producer of Lite was unmounted: mount another one")


@asynccontextmanager
async def mount_producer(
    servers: str | Sequence[str],
    *,
    topic: str = "lite",
    partitions: int = LITE_PARTITIONS,
    environment: Environment | None = None,
    **options: Any,  # noqa: ANN401  # those of `octopi.connect`
) -> AsyncIterator[LiteProducer]:
    """A producer for a block; *servers*, *environment* and *options* are those of
    `octopi.connect`.

    A *topic* that doesn't exist is created with so many *partitions*.  The end of the block
    unmounts the producer, and raises what `LiteProducer.unmount` returns.

    Raises:
      UnreachableError: if no server answers.
      OctopiError: if the topic can't be created.
    """
    async with connect(servers, environment=environment, **options) as client:
        mounted = await LiteTopic.mounted(client, topic, partitions)
        async with client.producer(linger_s=0, create_topics=False) as producer:
            lite = LiteProducer(client, producer, mounted, clock_of(environment))
            yield lite
            error = await lite.unmount()
            if error is not None:
                raise error
