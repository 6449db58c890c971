"""The client for blocking programs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import timedelta
from functools import partial
from inspect import isawaitable
from types import TracebackType
from typing import Any, Literal, overload

import trio

from octopi.blocking.blocks import BlockingBlock
from octopi.blocking.consuming import (
    BlockingConsumer,
    BlockingMultiTopicConsumer,
    BlockingStoredRecords,
)
from octopi.blocking.piping import BlockingPipe
from octopi.blocking.producing import producing
from octopi.blocking.subscribing import (
    BlockingMarkKeeper,
    BlockingQueueSubscription,
    BlockingSubscription,
    SubscriptionBlock,
)
from octopi.blocking.trio_thread import TrioThread
from octopi.blocking.wrapping import BlockingWrapper, calling, opening
from octopi.clients import client as trio_client
from octopi.clients.admin import Admin
from octopi.clients.client import DEFAULT_SERVER, Client
from octopi.clients.consuming.consumer import Consumer
from octopi.clients.consuming.multi_topic_consumer import MultiTopicConsumer
from octopi.clients.consuming.start_position import Start
from octopi.clients.credentials import Token
from octopi.clients.subscribing.administration import Creation
from octopi.clients.subscribing.subscription_options import PREFETCH
from octopi.environment import Environment
from octopi.limits import CONSUMER_WINDOW_BYTES, RECONNECT_TIMEOUT_S, REQUEST_TIMEOUT_S
from octopi.security.join_secret import SecretSource


class BlockingAdmin(BlockingWrapper[Admin]):
    """Operates a cluster; see `octopi.Admin`, whose methods these are."""

    __slots__ = ()

    describe_cluster = calling(Admin.describe_cluster)
    describe_node = calling(Admin.describe_node)
    describe_logs = calling(Admin.describe_logs)
    count_messages = calling(Admin.count_messages)
    describe_loads = calling(Admin.describe_loads)
    describe_events = calling(Admin.describe_events)
    describe_readings = calling(Admin.describe_readings)
    create_subscription = calling(Admin.create_subscription)
    describe_subscription = calling(Admin.describe_subscription)
    subscriptions = calling(Admin.subscriptions)
    reset_subscription = calling(Admin.reset_subscription)
    delete_subscription = calling(Admin.delete_subscription)
    drain_broker = calling(Admin.drain_broker)
    remove_broker = calling(Admin.remove_broker)
    add_partitions = calling(Admin.add_partitions)
    move_replica = calling(Admin.move_replica)
    set_relays = calling(Admin.set_relays)
    grow_topic = calling(Admin.grow_topic)
    move_topic = calling(Admin.move_topic)
    recover_partition = calling(Admin.recover_partition)
    delete_topic_by_id = calling(Admin.delete_topic_by_id)


class BlockingClient(BlockingWrapper[Client]):
    """A connection to a cluster; see `octopi.Client`, whose methods these are.  Made by
    `octopi.blocking.connect`; use it from any number of threads."""

    __slots__ = ("admin",)

    def __init__(self, thread: TrioThread, inner: Client) -> None:
        super().__init__(thread, inner)
        self.admin: BlockingAdmin = BlockingAdmin(thread, inner.admin)
        """Operates brokers, partitions and replicas."""

    topics = calling(Client.topics)
    describe_topic = calling(Client.describe_topic)
    create_topic = calling(Client.create_topic)
    alter_topic = calling(Client.alter_topic)
    delete_topic = calling(Client.delete_topic)
    find_offset = calling(Client.find_offset)
    fetch = calling(Client.fetch)
    producer = producing(Client.producer)
    pipe = opening(Client.pipe, BlockingPipe)
    mark_keeper = opening(Client.mark_keeper, BlockingMarkKeeper)

    @property
    def stored_records(self) -> BlockingStoredRecords:
        """Access to logs as encoded records, for programs that know the record format."""
        return BlockingStoredRecords(self._thread, self._inner.stored_records)

    @overload
    def consumer(
        self,
        topic: str,
        *,
        start: Start = "latest",
        partitions: Sequence[int] | None = None,
        window_bytes: int = CONSUMER_WINDOW_BYTES,
        on_gap: Literal["raise", "skip"] = "raise",
        on_fork: Literal["raise", "resume"] = "raise",
        stop_at_end: bool = False,
        reconnect_timeout_s: float | None = RECONNECT_TIMEOUT_S,
        wait_for_topic: float | None = None,
        create: bool = False,
        proven: bool = False,
    ) -> AbstractContextManager[BlockingConsumer]: ...

    @overload
    def consumer(
        self,
        topic: list[str] | tuple[str, ...],
        *,
        start: Start | Mapping[str, Start] = "latest",
        partitions: None = None,
        window_bytes: int = CONSUMER_WINDOW_BYTES,
        on_gap: Literal["raise", "skip"] = "raise",
        on_fork: Literal["raise", "resume"] = "raise",
        stop_at_end: bool = False,
        reconnect_timeout_s: float | None = RECONNECT_TIMEOUT_S,
        wait_for_topic: float | None = None,
        create: bool = False,
        proven: bool = False,
    ) -> AbstractContextManager[BlockingMultiTopicConsumer]: ...

    def consumer(
        self, topic: str | list[str] | tuple[str, ...], **options: Any
    ) -> (
        AbstractContextManager[BlockingConsumer]
        | AbstractContextManager[BlockingMultiTopicConsumer]
    ):
        """A consumer of *topic*, for the block; with a list, one of several topics; see
        `octopi.Client.consumer`."""
        method: Any = self._inner.consumer  # the types of *options* were checked above
        return BlockingBlock(self._thread, partial(method, topic, **options), _wrap_consumer)

    @overload
    def subscription(
        self,
        topic: str,
        name: str,
        *,
        mode: Literal["exclusive", "failover"] = "exclusive",
        member: str | None = None,
        create: Creation = "create_or_attach",
        start: Literal["earliest", "latest"] = "earliest",
        take_over: bool = False,
        on_gap: Literal["fail", "skip"] = "fail",
        mark: Literal["auto", "manual"] = "auto",
        session_timeout_s: float = 10.0,
        release_timeout_s: float = 10.0,
        expires: timedelta | None = timedelta(days=7),
        window_bytes: int = CONSUMER_WINDOW_BYTES,
        reconnect_timeout_s: float | None = RECONNECT_TIMEOUT_S,
    ) -> AbstractContextManager[BlockingSubscription]: ...

    @overload
    def subscription(
        self,
        topic: str,
        name: str,
        *,
        mode: Literal["shared", "key_shared"],
        member: str | None = None,
        create: Creation = "create_or_attach",
        start: Literal["earliest", "latest"] = "earliest",
        attempts: int | None = 5,
        ack_timeout_s: float = 30.0,
        prefetch: int = PREFETCH,
        window: int = 1_000,
        session_timeout_s: float = 10.0,
        expires: timedelta | None = timedelta(days=7),
        reconnect_timeout_s: float | None = RECONNECT_TIMEOUT_S,
    ) -> AbstractContextManager[BlockingQueueSubscription]: ...

    def subscription(
        self,
        topic: str,
        name: str,
        *,
        mode: Literal["exclusive", "failover", "shared", "key_shared"] = "exclusive",
        **options: Any,
    ) -> (
        AbstractContextManager[BlockingSubscription]
        | AbstractContextManager[BlockingQueueSubscription]
    ):
        """A member of the durable subscription *name* of *topic*, for the block; see
        `octopi.Client.subscription`."""
        method: Any = self._inner.subscription  # the types of *options* were checked above
        block = partial(method, topic, name, mode=mode, **options)
        if mode in {"shared", "key_shared"}:
            return BlockingBlock(self._thread, block, BlockingQueueSubscription)
        return SubscriptionBlock(self._thread, block)


def _wrap_consumer(thread: TrioThread, inner: Consumer | MultiTopicConsumer) -> Any:  # noqa: ANN401
    if isinstance(inner, MultiTopicConsumer):
        return BlockingMultiTopicConsumer(thread, inner)
    return BlockingConsumer(thread, inner)


def connect(
    servers: str | Sequence[str] = DEFAULT_SERVER,
    *,
    name: str = "",
    token: Token = None,
    tls_ca: str | None = None,
    request_timeout_s: float = REQUEST_TIMEOUT_S,
    environment: Environment | None = None,
    secrets: SecretSource | None = None,
    on_wrong_node: str = "redirect",
) -> AbstractContextManager[BlockingClient]:
    """A client of the cluster whose registers are at *servers*, for a block::

        with octopi.blocking.connect("ws://127.0.0.1:7000") as client:
            ...

    See `octopi.connect`, whose parameters these are.  A thread runs while the block lasts.  A
    *token* that is a function is called in other threads, and may wait there.

    Raises:
      What `octopi.connect` raises.
    """
    block = trio_client.connect(
        servers,
        name=name,
        token=_in_worker(token) if callable(token) else token,
        tls_ca=tls_ca,
        request_timeout_s=request_timeout_s,
        environment=environment,
        secrets=secrets,
        on_wrong_node=on_wrong_node,
    )
    return _ClientBlock(lambda: block)


class _ClientBlock(BlockingBlock[Client, BlockingClient]):
    """The block of a client, with the thread in which its Trio runs."""

    def __init__(self, open_block: Callable[[], AbstractAsyncContextManager[Client]]) -> None:
        super().__init__(TrioThread("octopi.blocking"), open_block, BlockingClient)

    def __enter__(self) -> BlockingClient:
        self._thread.start()
        try:
            return super().__enter__()
        except BaseException:
            self._thread.end()
            raise

    def __exit__(
        self,
        cls: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        try:
            return super().__exit__(cls, error, traceback)
        finally:
            self._thread.end()


def _in_worker(
    token: Callable[[], str | Awaitable[str | None] | None],
) -> Callable[[], Awaitable[str | None]]:
    """*token*, to be called in a Trio task, which doesn't hold up the others."""

    async def call() -> str | None:
        # In a list, because Trio refuses functions that return a coroutine.
        [given] = await trio.to_thread.run_sync(lambda: [token()], abandon_on_cancel=True)
        return await given if isawaitable(given) else given

    return call
