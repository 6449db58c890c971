"""A client for synchronous code: one thread with a Trio loop in each process.

Spark calls this package synchronously, in processes that it forks and uses again for the next
micro-batch.  The thread (`octopi.blocking.trio_thread`), and with it the connections, lasts as long
as the process; a forked child finds that the thread isn't its own, and makes another one.  Such
processes are killed without notice, so nothing here relies on an orderly end.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final, Literal, TypeAlias, TypeVar, TypeVarTuple

import trio

from octopi.blocking.trio_thread import TrioThread
from octopi.clients.client import Client, connect
from octopi.clients.stored_records import RecordReader
from octopi.clients.subscribing.mark_keeper import MarkKeeper
from octopi.errors import HistoryForkedError, OctopiError
from octopi.identifiers import Offset, PartitionId, TopicName
from octopi.limits import GENERATIONS_MAX
from octopi.position import Place
from octopi.spark.logs import SourceLog
from octopi.spark.options import ConnectionOptions

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")

Start: TypeAlias = Literal["earliest", "latest"]
"""Where a new subscription begins."""

_threads: Final[dict[tuple[int, ConnectionOptions], ClientThread]] = {}


def client_thread(connection: ConnectionOptions) -> ClientThread:
    """This process's client for *connection*.

    Raises:
      InvalidOptionError: if its token can't be read, or its certificate authority is invalid.
    """
    key = (os.getpid(), connection)
    found = _threads.get(key)
    if found is None or not found.is_alive:
        found = _threads[key] = ClientThread(connection)
    return found


class ClientThread:
    """A client, and calls to it from outside of Trio."""

    def __init__(self, connection: ConnectionOptions) -> None:
        """Start the thread; connections are made when they are needed.

        Raises:
          InvalidOptionError: if the token can't be read, or the certificate authority is invalid.
        """
        self._connection = connection
        connection.secret()
        self._entering = connect(
            list(connection.servers),
            name=f"spark on {platform.node()[:100]}, process {os.getpid()}",
            token=connection.secret,
            tls_ca=connection.tls_ca or None,
            request_timeout_s=connection.request_timeout_s,
        )
        self._thread = TrioThread("octopi.spark")
        self._thread.start()
        self._client: Client = self._thread.call(partial(self._open, self._live))

    @property
    def is_alive(self) -> bool:
        """Whether the thread runs in this process, so that `call` works."""
        return self._thread.is_usable

    def call(self, function: Callable[[*_Ts], Awaitable[_T]], *args: *_Ts) -> _T:
        """Run *function* in the thread's loop and wait for its result."""
        return self._thread.call(partial(function, *args))

    @property
    def client(self) -> Client:
        """The thread's client, for functions that `call` runs."""
        return self._client

    def open_reader(
        self, log: SourceLog, start: Place, end: Offset, *, window_bytes: int, skip_gaps: bool
    ) -> OpenReader:
        """Begin to read a log.  The caller closes the reader."""

        async def read(*, task_status: trio.TaskStatus[OpenReader]) -> None:
            records = self._client.stored_records
            async with records.read(
                log.topic,
                log.topic_id,
                log.partition,
                start,
                end,
                window_bytes=window_bytes,
                skip_gaps=skip_gaps,
                generation=GENERATIONS_MAX,  # all logs are read; rows of several have no order
            ) as reader:
                done = trio.Event()
                task_status.started(OpenReader(self, reader, done))
                await done.wait()

        return self._thread.call(partial(self._open, read))  # type: ignore[no-any-return]

    def close(self, done: trio.Event) -> None:
        """End a task that was opened."""
        self._thread.post(done.set)

    def open_keeper(self, topic: TopicName, name: str, member: str, start: Start) -> OpenKeeper:
        """Become the member that keeps the marks of a subscription.  The caller closes the keeper.

        Raises:
          OctopiError: what `octopi.clients.client.Client.mark_keeper` raises.
        """

        async def keep(*, task_status: trio.TaskStatus[OpenKeeper]) -> None:
            keeping = self._client.mark_keeper(topic, name, member=member, start=start)
            async with keeping as keeper:
                done = trio.Event()
                task_status.started(OpenKeeper(self, keeper, done))
                await done.wait()

        return self._thread.call(partial(self._open, keep))  # type: ignore[no-any-return]

    def open_appender(self, topic: TopicName, partition: PartitionId) -> AppendQueue:
        """Begin to append to a log.  The caller calls `AppendQueue.finish`."""

        def begin() -> AppendQueue:
            queue = AppendQueue(self, topic, partition)
            self._thread.nursery.start_soon(queue.run)
            return queue

        return self._thread.ask(begin)

    async def _live(self, *, task_status: trio.TaskStatus[Client]) -> None:
        async with self._entering as client:
            task_status.started(client)
            await trio.sleep_forever()

    async def _open(self, keep: Callable[..., Awaitable[None]]) -> Any:
        """Run *keep* in a task of its own; return what it opened."""
        return await self._thread.nursery.start(keep)


class OpenReader:
    """A `RecordReader` in the loop of a `ClientThread`."""

    def __init__(self, thread: ClientThread, reader: RecordReader, done: trio.Event) -> None:
        self._thread = thread
        self._done = done
        self.reader = reader

    def close(self) -> None:
        """Read no more."""
        self._thread.close(self._done)


class OpenKeeper:
    """A `MarkKeeper` in the loop of a `ClientThread`."""

    def __init__(self, thread: ClientThread, keeper: MarkKeeper, done: trio.Event) -> None:
        self._thread = thread
        self._done = done
        self.keeper = keeper

    def store(self, places: Mapping[PartitionId, Place]) -> list[HistoryForkedError]:
        """See `octopi.clients.subscribing.mark_keeper.MarkKeeper.store`."""
        return self._thread.call(self.keeper.store, places)

    def close(self) -> None:
        """Keep the marks no more."""
        self._thread.close(self._done)


class AppendQueue:
    """Appends records to one log, in order, while its caller encodes further records."""

    def __init__(self, thread: ClientThread, topic: TopicName, partition: PartitionId) -> None:
        self._thread = thread
        self._topic = topic
        self._partition = partition
        self._send, self._receive = trio.open_memory_channel[bytes](1)
        self._ended = trio.Event()
        self._error: OctopiError | None = None

    async def run(self) -> None:
        """Append the queued records, until the queue is finished or an append fails."""
        records = self._thread.client.stored_records
        try:
            async with self._receive:
                async for batch in self._receive:
                    await records.append(self._topic, self._partition, batch)
        except OctopiError as error:
            self._error = error
        finally:
            self._ended.set()

    def append(self, records: bytes) -> None:
        """Queue *records*; wait while earlier records are queued.

        Raises:
          OctopiError: the reason why earlier records could not be appended.
        """
        try:
            self._thread.call(self._send.send, records)
        except trio.BrokenResourceError:
            assert self._error is not None, "the queue ends only by an error"
            raise self._error from None

    def finish(self) -> OctopiError | None:
        """Wait until everything is appended.  Return the reason if it can't be."""
        self._thread.call(self._send.aclose)
        self._thread.call(self._ended.wait)
        return self._error
