"""The consumers of Octopi Lite: a group that shares the partitions of a topic.

Messages are fetched, so brokers send nothing that nobody asked for.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from typing import Any

import attrs
import trio

from octopi.clients.client import Client, connect
from octopi.clients.options import within
from octopi.environment import Clock, Environment
from octopi.errors import (
    ClosedError,
    ConnectionLostError,
    HistoryLostError,
    InvalidOptionError,
    OctopiError,
    OffsetInsideRecordError,
    OffsetOutOfRangeError,
    RefusedError,
)
from octopi.identifiers import PartitionId, TopicName
from octopi.limits import (
    FETCH_BYTES_DEFAULT,
    FETCH_WAIT_S_MAX,
    LITE_ATTEMPT_S,
    LITE_MEMBERS_MAX,
    LITE_PARTITIONS,
    LITE_POLL_MESSAGES_MAX,
    WAITING_FETCHES_MAX,
)
from octopi.lite.errors import NotLiteError
from octopi.lite.manifest import deal
from octopi.lite.numbers import RECORD_BYTES, number_at, offset_of, value_of
from octopi.lite.topic import LiteTopic, clock_of
from octopi.record import Message


@attrs.frozen
class ConsumerRecord:
    """What a poll has read of one partition."""

    partition_id: int
    messages: list[bytes]
    """Each of 256 bytes."""
    last: int
    """The number of the last message."""


class ConsumerGroup:
    """Members that read the partitions of a topic, each with its own connections; made by
    `mount_consumer_group`."""

    def __init__(self, members: Sequence[Client], topic: LiteTopic, clock: Clock) -> None:
        self._members = members
        self._clock = clock
        self._topic = topic
        self._next: dict[int, int] = {}
        """By partition: the number of the message that the next poll begins with."""
        self._is_mounted = True
        self._polling = trio.Lock()
        self._reads = 0

    @property
    def manifest(self) -> list[list[int]]:
        """The partitions that each member polls."""
        return deal(self._all, len(self._members))

    async def consume(
        self, partition_ids: Sequence[int], offset: int, n: int
    ) -> dict[int, list[bytes]]:
        """Up to *n* messages of each of these partitions, from number *offset* on; with 0 as *n*
        all that there are.  The members share the partitions, and each reads from another replica
        in sync.

        Raises:
          InvalidPartitionIdError: if there is no such partition.
          InvalidOptionError: if *offset* or *n* is negative.
          OffsetOutOfRangeError: if retention has removed the first of these messages.
          NotLiteError: if the topic has other records.
          ClosedError: after `unmount`.
        """
        if n < 0:
            raise InvalidOptionError(f"{n} messages can't be read: 0 means all")
        for partition_id in partition_ids:
            self._topic.place(partition_id)
        offset_of(offset)
        self._require_mounted()
        found: dict[int, list[bytes]] = {one: [] for one in partition_ids}

        async def read(client: Client, partition_ids: list[int]) -> None:
            for one in partition_ids:
                at = await self._some_replica(client, one)
                found[one] = await self._read(client, one, offset, n, at)

        await _together(partial(read, *share) for share in self._shares(partition_ids))
        return found

    async def poll(self, timeout_s: float) -> list[ConsumerRecord]:
        """All messages that came since the last poll, of every partition that has some; the first
        one begins with the oldest messages.

        If there are none, it waits until one comes, at most for *timeout_s*; then the list is
        empty.  Of a partition it returns `LITE_POLL_MESSAGES_MAX` at most; the next poll goes on.
        If it is cancelled, the next one returns what it had read.

        Raises:
          HistoryLostError: if retention has removed messages that no poll had returned; the next
              poll goes on behind them.
          NotLiteError: if the topic has other records.
          ClosedError: after `unmount`.
        """
        self._require_mounted()
        async with self._polling:
            found = await self._read_new()
            with self._clock.timeout(timeout_s):
                while not found:
                    await self._wait_for_more()
                    found = await self._read_new()
            records = []
            for partition_id, messages in sorted(found.items()):
                self._next[partition_id] += len(messages)
                last = self._next[partition_id] - 1
                records.append(ConsumerRecord(partition_id, messages, last))
            return records

    async def unmount(self) -> OctopiError | None:
        """End the group; None, because nothing can fail.  The second time nothing happens."""
        self._is_mounted = False
        await trio.lowlevel.checkpoint()
        return None

    # --- reading -----------------------------------------------------------------------

    def _shares(self, partition_ids: Sequence[int]) -> list[tuple[Client, list[int]]]:
        """The members, each with its share of these partitions."""
        shares = deal(partition_ids, len(self._members))
        return [(client, share) for client, share in zip(self._members, shares, strict=True)]

    async def _read_new(self) -> dict[int, list[bytes]]:
        """What there is behind the places of the last poll, by partition."""
        found: dict[int, list[bytes]] = {}

        async def read(client: Client, partition_ids: list[int]) -> None:
            for one in partition_ids:
                messages = await self._read_behind(client, one)
                if messages:
                    found[one] = messages

        await _together(partial(read, *share) for share in self._shares(self._all))
        return found

    async def _read_behind(self, client: Client, partition_id: int) -> list[bytes]:
        """What a poll returns of one partition, from its leader: a replica that knows of less would
        make it wait."""
        if partition_id not in self._next:
            self._next[partition_id] = await self._oldest(client, partition_id)
        number = self._next[partition_id]
        try:
            return await self._read(client, partition_id, number, LITE_POLL_MESSAGES_MAX, None)
        except OffsetOutOfRangeError:
            oldest = await self._oldest(client, partition_id)
            if oldest <= number:
                raise
            self._next[partition_id] = oldest
            topic, place = TopicName(self._topic.name), self._topic.place(partition_id)
            raise HistoryLostError(topic, place, offset_of(number), offset_of(oldest)) from None

    async def _wait_for_more(self) -> None:
        """Wait until some partition has messages that no poll returned."""
        came = trio.CancelScope()

        async def wait(client: Client, partition_id: int) -> None:
            place = self._topic.place(partition_id)
            offset = offset_of(self._next[partition_id])
            while True:
                found = await client.fetch(
                    self._topic.name, offset, partition=place, bytes_max=1, wait_s=FETCH_WAIT_S_MAX
                )
                if found.messages:
                    came.cancel()

        with came:
            await _together(
                partial(wait, client, one)
                for client, share in self._shares(self._all)
                for one in share
            )

    async def _read(
        self, client: Client, partition_id: int, number: int, count_max: int, at: str | None
    ) -> list[bytes]:
        """Up to *count_max* messages from *number* on (0: all), of the replica *at* that address as
        far as it has them, else of the leader."""
        place = self._topic.place(partition_id)
        latest = await client.find_offset(self._topic.name, "latest", partition=place)
        end = number_at(latest.offset)
        if count_max:
            end = min(end, number + count_max)
        messages: list[bytes] = []
        while number < end:
            some: list[Message] = []
            if at is not None:
                some = await self._fetch_at(client, place, number, end, at)
            if not some:
                at = None
                some = await self._fetch(client, place, number, end)
            messages += map(value_of, some)
            number += len(some)
        return messages

    async def _fetch_at(
        self, client: Client, place: PartitionId, number: int, end: int, at: str
    ) -> list[Message]:
        """What one replica has of these messages; nothing if it doesn't answer in time."""
        with self._clock.timeout(LITE_ATTEMPT_S), suppress(ConnectionLostError, RefusedError):
            return await self._fetch(client, place, number, end, at)
        return []

    async def _fetch(
        self, client: Client, place: PartitionId, number: int, end: int, at: str | None = None
    ) -> list[Message]:
        bytes_max = min((end - number) * RECORD_BYTES, FETCH_BYTES_DEFAULT)
        try:
            found = await client.fetch(
                self._topic.name, offset_of(number), partition=place, bytes_max=bytes_max, at=at
            )
        except OffsetInsideRecordError as error:
            raise NotLiteError(
                f"message {number} would begin within another record: another program has written "
                f"to topic {self._topic.name}"
            ) from error
        return found.messages

    async def _oldest(self, client: Client, partition_id: int) -> int:
        """The number of the oldest message that the partition has."""
        place = self._topic.place(partition_id)
        found = await client.find_offset(self._topic.name, "earliest", partition=place)
        return number_at(found.offset)

    async def _some_replica(self, client: Client, partition_id: int) -> str | None:
        """The address of a replica in sync, each time another one; None: ask the leader."""
        readers = (await self._topic.describe(client, partition_id)).readers
        self._reads += 1
        return readers[self._reads % len(readers)] if readers else None

    @property
    def _all(self) -> range:
        """The ids of all partitions."""
        return range(len(self._topic.places))

    def _require_mounted(self) -> None:
        if not self._is_mounted:
            raise ClosedError("the group of consumers was unmounted: mount another one")


async def _together(works: Iterable[Callable[[], Awaitable[None]]]) -> None:
    """Do all *works* at the same time.

    Raises:
      OctopiError: the first error of one of them, which ends the others.
    """
    errors: list[OctopiError] = []

    async def one(work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except OctopiError as error:
            errors.append(error)
            nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        for work in works:
            nursery.start_soon(one, work)
    if errors:
        raise errors[0]


@asynccontextmanager
async def mount_consumer_group(
    servers: str | Sequence[str],
    members: int = 1,
    *,
    topic: str = "lite",
    partitions: int = LITE_PARTITIONS,
    environment: Environment | None = None,
    **options: Any,  # noqa: ANN401  # those of `octopi.connect`
) -> AsyncIterator[ConsumerGroup]:
    """A group of so many *members*, for a block; *servers*, *environment* and *options* are
    those of `octopi.connect`.

    A *topic* that doesn't exist is created with so many *partitions*.

    Raises:
      InvalidOptionError: if there are to be too many members, or too few for the partitions.
      UnreachableError: if no server answers.
      OctopiError: if the topic can't be created.
    """
    within("members", members, 1, LITE_MEMBERS_MAX)
    async with AsyncExitStack() as opened:
        first = connect(servers, environment=environment, **options)
        clients = [await opened.enter_async_context(first)]
        mounted = await LiteTopic.mounted(clients[0], topic, partitions)
        least = -(-len(mounted.places) // WAITING_FETCHES_MAX)
        if members < least:
            raise InvalidOptionError(
                f"{members} members can't wait for {len(mounted.places)} partitions: mount {least}"
            )
        for _ in range(members - 1):
            member = connect(servers, environment=environment, **options)
            clients.append(await opened.enter_async_context(member))  # awaits
        group = ConsumerGroup(clients, mounted, clock_of(environment))
        yield group
        await group.unmount()
