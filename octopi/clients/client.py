"""The client: connects to a cluster, sends it requests, and makes producers and consumers.

Producers, consumers and subscriptions are imported when the first of them is made, so that a
program that needs none, such as most commands, starts in less time.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Literal, overload

from octopi.clients.admin import Admin, delete, list_topics
from octopi.clients.answers import FetchResult
from octopi.clients.background import background_tasks
from octopi.clients.cluster_handle import ClusterHandle
from octopi.clients.consuming.start_position import OffsetSpec, offset_query
from octopi.clients.credentials import Credentials, Token
from octopi.clients.fetching import fetch
from octopi.clients.opened_cluster import ConnectOptions, opened_cluster
from octopi.clients.options import UNCHANGED, Unchanged
from octopi.clients.piping.pipe_maker import PipeMaker
from octopi.clients.subscribing.subscription_options import PREFETCH
from octopi.clients.topic_creation import alter_topic, create_checked, milliseconds
from octopi.environment import Environment
from octopi.errors import InvalidOptionError
from octopi.identifiers import Offset, PartitionId, topic_name
from octopi.limits import (
    BATCHES_IN_FLIGHT,
    CLIENT_BATCH_BYTES,
    CONSUMER_WINDOW_BYTES,
    DELIVERY_TIMEOUT_S,
    FETCH_BYTES_DEFAULT,
    LINGER_S,
    PRODUCER_BUFFER_BYTES,
    RECONNECT_TIMEOUT_S,
    REQUEST_TIMEOUT_S,
)
from octopi.position import NO_ANCHOR, Anchor, Place
from octopi.security.join_secret import SecretSource
from octopi.security.tls import tls_of_client
from octopi.version import __version__
from octopi.wire.messages import DeleteTopic, FoundOffset, TopicInfo, TopicKind, TopicOptions

if TYPE_CHECKING:
    from octopi.clients.producing.producer import Producer
    from octopi.clients.stored_records import StoredRecords
    from octopi.clients.subscribing.administration import Creation
    from octopi.clients.subscribing.mark_keeper import MarkKeeper
    from octopi.clients.subscribing.queue_subscription import QueueSubscription
    from octopi.clients.subscribing.subscription import Subscription

AGENT: Final = f"octopi-python/{__version__}"
DEFAULT_SERVER: Final = "ws://127.0.0.1:7000"


class Client(PipeMaker):
    """A connection to a cluster.  Made by `connect`; use it from any number of tasks.

    Topics, producers and consumers are here; the operations on the cluster are in `admin`.

    Every call retries errors that may pass, within the client's request time-out; then it raises
    the last error, which says what was tried.  All calls raise:

      UnreachableError, ConnectionLostError: if no node answered in time.
      NotReadyError: if the cluster wasn't ready in time.
      ClosedError: if the client was closed.
    """

    def __init__(self, cluster: ClusterHandle) -> None:
        super().__init__(cluster)
        self._router = cluster.router
        self.admin: Admin = Admin(cluster.router)
        """Operates brokers, partitions and replicas."""

    # --- topics ------------------------------------------------------------------------

    async def topics(self) -> list[TopicInfo]:
        """All topics, in the order of their names."""
        return await list_topics(self._router)

    async def describe_topic(self, name: str, *, create: bool = False) -> TopicInfo:
        """A topic and where its partitions are; with *create* a missing topic is created.

        Raises:
          InvalidTopicError: if *name* is no legal name.
          UnknownTopicError: if there is no such topic.
        """
        return await self._router.describe_topic(topic_name(name), create=create)

    async def create_topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        partition_ids: Sequence[int] | None = None,
        retention: timedelta | None = None,
        retention_bytes: int | None = None,
        segment_bytes: int | None = None,
        flush_before_ack: bool = False,
        min_insync: int = 1,
        hold: timedelta | None = None,
        hold_bytes: int | None = None,
        kind: str = TopicKind.LOG,
        buffer_bytes: int | None = None,
        buffer_count: int | None = None,
        buffer_age: timedelta | None = None,
        exist_ok: bool = False,
    ) -> TopicInfo:
        """Create a topic on *partitions* partitions that consistent hashing chooses, or on the
        partitions with *partition_ids*.

        Messages older than *retention* and beyond *retention_bytes* (per partition) are removed, a
        segment of *segment_bytes* at a time.  With *flush_before_ack* a receipt means that the
        message is on the broker's device.  Nothing is acknowledged while fewer than *min_insync*
        replicas are in sync.

        With *hold* or *hold_bytes* messages stay for durable subscriptions that have yet to process
        them, until they are older than *retention* and *hold*, or beyond *hold_bytes* (per log).
        A topic of the *kind* ``"relay"`` is in the memory of several brokers.  It keeps the newest
        *buffer_bytes*, *buffer_count* transactions, and nothing older than *buffer_age*.

        Raises:
          InvalidTopicError: if *name* is no legal name.
          InvalidOptionError: if a number is negative.
          TopicExistsError: if it exists.  With *exist_ok* the existing topic is returned, even if
              its options differ.
          RefusedError: INVALID_OPTION or UNKNOWN_PARTITION, if the cluster can't create it so.
        """
        options = TopicOptions(
            retention_ms=milliseconds(retention),
            retention_bytes=retention_bytes,
            segment_bytes=segment_bytes,
            flush_before_ack=flush_before_ack,
            min_insync=min_insync,
            hold_ms=milliseconds(hold),
            hold_bytes=hold_bytes,
            buffer_bytes=buffer_bytes,
            buffer_count=buffer_count,
            buffer_age_ms=milliseconds(buffer_age),
        )
        where = partitions, partition_ids
        return await create_checked(
            self._router, topic_name(name), *where, options, exist_ok=exist_ok, kind=kind
        )

    async def alter_topic(
        self,
        name: str,
        *,
        retention: timedelta | Unchanged | None = UNCHANGED,
        retention_bytes: int | Unchanged | None = UNCHANGED,
        segment_bytes: int | Unchanged | None = UNCHANGED,
        flush_before_ack: bool | Unchanged = UNCHANGED,
        min_insync: int | Unchanged = UNCHANGED,
        hold: timedelta | Unchanged | None = UNCHANGED,
        hold_bytes: int | Unchanged | None = UNCHANGED,
    ) -> TopicInfo:
        """Change options of a topic, which `create_topic` describes; None: the broker's default.

        Returns when they are in force on all brokers that are connected to the register.  While
        fewer than *min_insync* replicas are in sync, producers wait.

        Raises:
          InvalidOptionError: if a number is negative.
          UnknownTopicError: if there is no such topic.
          RefusedError: INVALID_OPTION, if the cluster can't alter it so, as when the topic has
              fewer than *min_insync* replicas.
        """
        numbers = {
            "retention_bytes": retention_bytes,
            "segment_bytes": segment_bytes,
            "flush_before_ack": flush_before_ack,
            "min_insync": min_insync,
            "hold_bytes": hold_bytes,
        }
        times = {"retention_ms": retention, "hold_ms": hold}
        info = await alter_topic(self._router, topic_name(name), numbers, times)
        self._cluster.lookup.remember(info)
        return info

    async def delete_topic(self, name: str) -> None:
        """Delete a topic, and its messages on all brokers.

        Raises:
          UnknownTopicError: if there is no such topic.
        """
        topic = topic_name(name)
        await delete(
            self._router, f"delete topic {name}", lambda request: DeleteTopic(request, topic)
        )
        self._cluster.lookup.forget(topic)

    # --- reading without a consumer ----------------------------------------------------

    async def find_offset(self, topic: str, place: OffsetSpec, *, partition: int) -> FoundOffset:
        """The offset of *place* in a log, and where that log begins and ends.

        Raises:
          UnknownTopicError, RefusedError: UNKNOWN_PARTITION: if there is no such log.
          InvalidOptionError: if *place* is no `OffsetSpec`, or an offset already.
        """
        if (asked := offset_query(place)) is None:
            raise InvalidOptionError(f"{place!r} is an offset already")
        return await self._router.find_offset(topic_name(topic), PartitionId(partition), *asked)

    async def fetch(
        self,
        topic: str,
        offset: int,
        *,
        partition: int,
        bytes_max: int = FETCH_BYTES_DEFAULT,
        wait_s: float = 0.0,
        anchor: str = NO_ANCHOR,
        at: str | None = None,
    ) -> FetchResult:
        """The messages from *offset* on, of one epoch: as many as fit *bytes_max*, and at least
        one.  If there is none yet, the broker waits for *wait_s*, then the result is empty.

        *anchor*: the `FetchResult.anchor` of the fetch that ended at *offset*.  *at*: the broker to
        ask, such as one of `PartitionInfo.readers`, which may know of less than the leader.

        Raises:
          UnknownTopicError, RefusedError: UNKNOWN_PARTITION: if there is no such log.
          OffsetOutOfRangeError, OffsetInsideRecordError: if no record starts at *offset*.
          HistoryForkedError: if *anchor* was given, and the log has another history there.
          RecordError: if a record arrived damaged.
        """
        log, place = PartitionId(partition), Place(Offset(offset), Anchor(anchor))
        return await fetch(self._router, topic, place, log, bytes_max, wait_s, at)

    @property
    def stored_records(self) -> StoredRecords:
        """Access to logs as encoded records, for programs that know the record format."""
        from octopi.clients.stored_records import StoredRecords

        return StoredRecords(self._cluster)

    # --- producers and consumers -------------------------------------------------------

    @asynccontextmanager
    async def producer(
        self,
        *,
        linger_s: float = LINGER_S,
        batch_bytes: int = CLIENT_BATCH_BYTES,
        batches_in_flight: int = BATCHES_IN_FLIGHT,
        buffer_bytes: int = PRODUCER_BUFFER_BYTES,
        delivery_timeout_s: float = DELIVERY_TIMEOUT_S,
        create_topics: bool = True,
        name: str | None = None,
        topics: Sequence[str] = (),
    ) -> AsyncIterator[Producer]:
        """A producer, for the block.

        The end of the block flushes, and raises what `Producer.flush` raises.  If the block ends
        by an exception, or is cancelled, it doesn't wait: pending receipts then raise
        `NotDeliveredError` if their message was never sent, else `OutcomeUnknownError`.

        *linger_s*: how long a batch waits for more messages; while many logs have batches that
        take messages, it is longer, up to `MANY_BATCHES_LINGER_S`.  *batch_bytes*: a batch that has
        reached this size is full; while the buffer is full, batches get up to four times as large,
        but no larger than `GROWN_BATCH_BYTES`.  *batches_in_flight*: the number of unanswered
        batches of one log.  *buffer_bytes*: how much the producer holds before `submit` waits.
        *delivery_timeout_s*: how long delivery of a message is tried.  *create_topics*: whether
        missing topics are created, with default options.

        *name*: a producer with a name has one life at a time, over all clients of the cluster.
        Opening the name begins a new life: no message of an earlier one is stored any more, not
        even one that is still on its way, and the earlier one gets `ProducerFencedError`.  This
        holds for each log of *topics* when the block begins, so what is read there from then on, up
        to the end, is all that the earlier lives have stored; in other topics it holds from the
        first message on.

        Raises:
          InvalidOptionError: if one of these is out of its range.
          InvalidTopicError: if one of *topics* is no legal name.
          UnknownTopicError: if one of them doesn't exist and the producer doesn't create topics.
          RefusedError: FORBIDDEN, if the token doesn't allow to publish to one of them.
        """
        from octopi.clients.producing.producer import Producer
        from octopi.clients.producing.producer_options import ProducerOptions

        self._cluster.check_producer_name(name)
        options = ProducerOptions(
            linger_s=linger_s,
            batch_bytes=batch_bytes,
            batches_in_flight=batches_in_flight,
            buffer_bytes=buffer_bytes,
            delivery_timeout_s=delivery_timeout_s,
            create_topics=create_topics,
            name=name,
            topics=tuple(topics),
        )
        async with background_tasks() as nursery:
            producer = Producer(self._cluster, nursery, options)
            try:
                await producer.begin()
                yield producer
                await producer.flush()
            finally:
                producer.close()

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
    ) -> AbstractAsyncContextManager[Subscription]: ...

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
    ) -> AbstractAsyncContextManager[QueueSubscription]: ...

    def subscription(
        self,
        topic: str,
        name: str,
        *,
        mode: Literal["exclusive", "failover", "shared", "key_shared"] = "exclusive",
        **options: Any,
    ) -> AbstractAsyncContextManager[Subscription] | AbstractAsyncContextManager[QueueSubscription]:
        """A member of the durable subscription *name* of *topic*, for the block.

        A subscription remembers how far its members are, so the next member continues there.  In
        the mode ``exclusive`` it has one member at a time; in the mode ``failover`` each log has
        one, and the logs are spread over the members.  In the modes ``shared`` and ``key_shared``
        it is a queue (`QueueSubscription`): messages are dealt to the members one by one.

        *member*: a name for this member, which then keeps its logs through a restart.  *create*:
        whether a missing subscription is created (``create_or_attach``), has to be new (``create``)
        or has to exist (``attach``).  *start*: where a new subscription begins, at each log's
        oldest message or behind its newest.  *session_timeout_s* (1 to 300): a member that is
        silent for this long is no longer a member.  *expires*: a subscription without members is
        deleted after this time; None: never.  The last two are fixed when the subscription is
        created, and so are *release_timeout_s*, *attempts*, *ack_timeout_s* and *window*.

        For ``exclusive`` and ``failover``: *take_over*: replace the member of an exclusive
        subscription.  *on_gap*: what to do when retention has removed the next record; ``"skip"``
        continues behind the gap and adds it to `Subscription.gaps`.  *mark*: ``"auto"`` marks a
        message when the next one is requested; ``"manual"``: only `Subscription.mark` does.
        *release_timeout_s* (0 to 300): how long a member may work on a message after its log was
        assigned to another member.  *window_bytes*, *reconnect_timeout_s*: as for `consumer`.

        For ``shared`` and ``key_shared``: *attempts* (1 to 100): a message that was dealt this
        often becomes a dead letter, in the topic ``TOPIC.NAME.dead``; None: it is dealt for ever.
        *ack_timeout_s* (1 to 43,200): a message that isn't answered for this long is dealt again.
        *prefetch* (1 to 10,000): the largest number of messages of each log that this member has
        at a time, including those that it works on.  *window* (1 to 10,000): how many messages
        behind the oldest unanswered one may be dealt.

        Raises:
          SubscriptionBusyError: if an exclusive subscription still has another member after the
              request time-out.
          UnknownSubscriptionError: if it doesn't exist, with ``create="attach"``.
          SubscriptionExistsError: if it exists, with ``create="create"``, or if it has another mode
              or other options.
          InvalidTopicError, UnknownTopicError: if there is no such topic.
          InvalidOptionError: if an option is out of its range, or not for that mode.
        """
        from octopi.clients.subscribing.opening import open_member

        return open_member(self._cluster, topic, name, mode, options)

    def mark_keeper(
        self,
        topic: str,
        name: str,
        *,
        member: str,
        start: Literal["earliest", "latest"] = "earliest",
    ) -> AbstractAsyncContextManager[MarkKeeper]:
        """The only member of the durable subscription *name* of *topic*, for the block: for a
        program that reads the topic by other means, and stores here how far it is.

        The subscription has the mode ``failover``; a missing one is created, and begins at *start*.
        *member*: the name of this member.  A program that joins with the same name replaces it.

        Raises:
          SubscriptionBusyError: if it has members of other names.
          InvalidOptionError: if it has another mode, or a name is no legal one.
          InvalidTopicError, UnknownTopicError: if there is no such topic.
        """
        from octopi.clients.subscribing.mark_keeper import keep_marks

        return keep_marks(self._cluster, topic, name, member=member, start=start)


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
) -> AbstractAsyncContextManager[Client]:
    """A client of the cluster with nodes at *servers*, for a block::

        async with octopi.connect("ws://127.0.0.1:7000") as client:
            ...

    Any node will do, register or broker; of several, the first one that answers is asked.  When
    none of them answers, brokers that the client has learnt of from answers are.

    Connections are made when they are needed, so entering the block doesn't wait.  An exception of
    the block is raised as it is, not wrapped in a group.

    *name*: what the program calls its connections, at most 200 bytes without control characters;
    shown to people wherever connections are, such as in the console.  *token*: for nodes that
    require one; a function is called for each connection, and again before its token expires.
    *tls_ca*: a file with the certificate authority to trust for ``wss://``; None: the system's.
    *environment*: replaces network, clock and randomness of the system; it has its own authority.
    *secrets*: the join secrets of the cluster, for an operator's client; nodes keep connection
    slots for operators when they have none left for other clients.
    *on_wrong_node*: ``"forward"`` for a client that can't reach all brokers: brokers of *servers*
    pass what it produces on to the leaders.  Reading goes to replicas all the same.

    Raises:
      InvalidOptionError: if a server is no address of a node, *tls_ca* no authority, *name* no
          name, or *on_wrong_node* another word.
      RuntimeError: when the block is entered outside of Trio; asyncio programs use
          `octopi.aio.connect`.
    """
    addresses = [servers] if isinstance(servers, str) else list(servers)
    tls = None if tls_ca is None else tls_of_client(tls_ca)
    credentials = Credentials(token, secrets)
    options = ConnectOptions(
        addresses,
        credentials,
        tls,
        request_timeout_s,
        environment,
        name,
        on_wrong_node,
        AGENT,
    )
    return _connected(options)


@asynccontextmanager
async def _connected(options: ConnectOptions) -> AsyncIterator[Client]:
    async with opened_cluster(options) as cluster:
        yield Client(cluster)
