"""The client for asyncio programs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from functools import partial
from inspect import isawaitable
from typing import Any, Literal, overload

from octopi.aio.blocks import AsyncioBlock
from octopi.aio.consuming import (
    AsyncioConsumer,
    AsyncioMultiTopicConsumer,
    AsyncioStoredRecords,
)
from octopi.aio.guest_run import GuestRun, awaited_in_asyncio
from octopi.aio.piping import AsyncioPipe
from octopi.aio.producing import AsyncioProducer
from octopi.aio.subscribing import (
    AsyncioMarkKeeper,
    AsyncioQueueSubscription,
    AsyncioSubscription,
)
from octopi.aio.wrapping import Wrapper, calling, opening
from octopi.clients import client as trio_client
from octopi.clients.admin import Admin
from octopi.clients.client import DEFAULT_SERVER, Client
from octopi.clients.consuming.consumer import Consumer
from octopi.clients.consuming.multi_topic_consumer import MultiTopicConsumer
from octopi.clients.consuming.start_position import Start
from octopi.clients.credentials import Token
from octopi.clients.subscribing.administration import Creation
from octopi.clients.subscribing.queue_subscription import QueueSubscription
from octopi.clients.subscribing.subscription import Subscription
from octopi.clients.subscribing.subscription_options import PREFETCH
from octopi.environment import Environment
from octopi.limits import CONSUMER_WINDOW_BYTES, RECONNECT_TIMEOUT_S, REQUEST_TIMEOUT_S
from octopi.security.join_secret import SecretSource


class AsyncioAdmin(Wrapper[Admin]):
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


class AsyncioClient(Wrapper[Client]):
    """A connection to a cluster; see `octopi.Client`, whose methods these are.  Made by
    `octopi.aio.connect`; use it from any number of tasks of its loop."""

    __slots__ = ("admin",)

    def __init__(self, run: GuestRun, inner: Client) -> None:
        super().__init__(run, inner)
        self.admin: AsyncioAdmin = AsyncioAdmin(run, inner.admin)
        """Operates brokers, partitions and replicas."""

    topics = calling(Client.topics)
    describe_topic = calling(Client.describe_topic)
    create_topic = calling(Client.create_topic)
    alter_topic = calling(Client.alter_topic)
    delete_topic = calling(Client.delete_topic)
    find_offset = calling(Client.find_offset)
    fetch = calling(Client.fetch)
    producer = opening(Client.producer, AsyncioProducer)
    pipe = opening(Client.pipe, AsyncioPipe)
    mark_keeper = opening(Client.mark_keeper, AsyncioMarkKeeper)

    @property
    def stored_records(self) -> AsyncioStoredRecords:
        """Access to logs as encoded records, for programs that know the record format."""
        return AsyncioStoredRecords(self._run, self._inner.stored_records)

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
    ) -> AbstractAsyncContextManager[AsyncioConsumer]: ...

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
    ) -> AbstractAsyncContextManager[AsyncioMultiTopicConsumer]: ...

    def consumer(
        self, topic: str | list[str] | tuple[str, ...], **options: Any
    ) -> (
        AbstractAsyncContextManager[AsyncioConsumer]
        | AbstractAsyncContextManager[AsyncioMultiTopicConsumer]
    ):
        """A consumer of *topic*, for the block; with a list, one of several topics; see
        `octopi.Client.consumer`."""
        method: Any = self._inner.consumer  # the types of *options* were checked above
        return AsyncioBlock(self._guest_run, partial(method, topic, **options), _wrap_consumer)

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
    ) -> AbstractAsyncContextManager[AsyncioSubscription]: ...

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
    ) -> AbstractAsyncContextManager[AsyncioQueueSubscription]: ...

    def subscription(
        self,
        topic: str,
        name: str,
        *,
        mode: Literal["exclusive", "failover", "shared", "key_shared"] = "exclusive",
        **options: Any,
    ) -> (
        AbstractAsyncContextManager[AsyncioSubscription]
        | AbstractAsyncContextManager[AsyncioQueueSubscription]
    ):
        """A member of the durable subscription *name* of *topic*, for the block; see
        `octopi.Client.subscription`."""
        method: Any = self._inner.subscription  # the types of *options* were checked above
        return AsyncioBlock(
            self._guest_run, partial(method, topic, name, mode=mode, **options), _wrap_subscription
        )


def _wrap_consumer(run: GuestRun, inner: Consumer | MultiTopicConsumer) -> Any:  # noqa: ANN401
    if isinstance(inner, MultiTopicConsumer):
        return AsyncioMultiTopicConsumer(run, inner)
    return AsyncioConsumer(run, inner)


def _wrap_subscription(run: GuestRun, inner: Subscription | QueueSubscription) -> Any:  # noqa: ANN401
    if isinstance(inner, QueueSubscription):
        return AsyncioQueueSubscription(run, inner)
    return AsyncioSubscription(run, inner)


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
) -> AbstractAsyncContextManager[AsyncioClient]:
    """A client of the cluster with nodes at *servers*, for a block of an asyncio task::

        async with octopi.aio.connect("ws://127.0.0.1:7000") as client:
            ...

    See `octopi.connect`, whose parameters these are.  A *token* that is an ``async`` function runs
    in an asyncio task.

    Raises:
      RuntimeError: when the block is entered outside of asyncio, or Trio runs in the thread
          already.
      Also what `octopi.connect` raises.
    """
    block = trio_client.connect(
        servers,
        name=name,
        token=_in_asyncio(token) if callable(token) else token,
        tls_ca=tls_ca,
        request_timeout_s=request_timeout_s,
        environment=environment,
        secrets=secrets,
        on_wrong_node=on_wrong_node,
    )
    return AsyncioBlock(GuestRun.of_running_loop, lambda: block, AsyncioClient)


def _in_asyncio(
    token: Callable[[], str | Awaitable[str | None] | None],
) -> Callable[[], Awaitable[str | None]]:
    """*token*, to be called in a Trio task."""

    async def call() -> str | None:
        given = token()
        return await awaited_in_asyncio(given) if isawaitable(given) else given

    return call
