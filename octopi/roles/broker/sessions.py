"""What a broker does on one client connection: produce, fetch, subscribe, describe.

A produce is handled where it is read, without a task of its own; each subscription has one
in the connection's nursery.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Final

import attrs
import trio

from octopi.environment import Environment
from octopi.errors import (
    ConnectionLostError,
    NeedsTimeError,
    NotLeaderError,
    NotReadyError,
    OctopiError,
    ProtocolError,
    RefusedError,
    Status,
)
from octopi.identifiers import Offset, TopicId
from octopi.limits import (
    BATCH_BYTES_MAX,
    FETCH_WAIT_S_MAX,
    SUBSCRIPTIONS_MAX,
    WAITING_FETCHES_MAX,
    WAITING_TASK_MEMORY_BYTES,
)
from octopi.replication.effects import Receipt, Refusal
from octopi.roles.answers import refuse, tell_with_room
from octopi.roles.broker.broker_log import BrokerLog
from octopi.roles.broker.logs import Logs
from octopi.roles.broker.partition_replica import PartitionReplica
from octopi.roles.broker.redirects import redirect
from octopi.roles.broker.subscription import Subscription
from octopi.security.grants import Verb
from octopi.security.requirements import not_granted
from octopi.storage.brief_lock import BriefLock
from octopi.storage.slices import Slices, in_turns
from octopi.transport.connection import Connection
from octopi.transport.failures import failure
from octopi.transport.memory_budget import FETCHES, SUBSCRIPTIONS
from octopi.transport.turns import allowed, another, measured
from octopi.wire import messages as m

_LOGS_PER_PAGE: Final = 500
_SUBSCRIPTIONS_TOLD: Final = 2_000
_NOT_SERVED: Final = "this broker doesn't serve the partition any more"


class ClientSession:
    """One client connection of a broker."""

    def __init__(
        self, environment: Environment, logs: Logs, connection: Connection, tasks: trio.Nursery
    ) -> None:
        self._environment = environment
        self._logs = logs
        self._connection = connection
        self._tasks = tasks
        self._subscriptions: dict[int, Subscription] = {}
        self._waiting_count = 0
        """Fetches that wait for records."""
        self._walking = BriefLock()
        """Held by the look-up that takes a while."""
        if environment.watch is not None:
            environment.watch(self)

    def sizes(self) -> dict[str, int]:
        """See `octopi.environment.Sized`."""
        now = self._connection.statistics()
        return {
            "waiting fetches": self._waiting_count,
            "subscriptions": len(self._subscriptions),
            "requests": now.unanswered_count - self._waiting_count,
            "outbox bytes": now.outbox_bytes,
        }

    def handle(self, message: object) -> None:
        """Answer now where nothing has to be waited for.

        Raises:
          OctopiError: the answer to this message.
        """
        try:
            self._handle(message)
        except NotLeaderError as error:
            raise redirect(self._logs, str(error.args[0]), partition_of(message)) from error

    def _handle(self, message: object) -> None:
        match message:
            case m.Produce():
                self._produce(message)
            case m.Credit():
                subscription = self._subscriptions.get(message.request)
                useful = subscription is not None and subscription.grant(message.until)
                if useful and self._connection.turn is not None:
                    self._connection.turn.was_of_use()
            case m.Fetch():
                self._fetch(message)
            case m.Subscribe():
                self._subscribe(message)
            case m.Unsubscribe():
                subscription = self._subscriptions.pop(message.request, None)
                if subscription is not None:
                    subscription.stop()
                self._connection.post(m.Done(message.request))
            case m.FindOffset():
                log = self._served(message.topic, message.partition)
                if message.at != "earliest":
                    self._require_end(log, message.partition)
                found = log.find(message.at, message.value)
                if isinstance(found, int):
                    self._post_found(message.request, log, found)
                else:
                    self._tasks.start_soon(self._find_later, message.request, log, found)
            case m.DescribeLogs():
                self._tell_list(partial(self._describe_logs, message))
            case m.DescribeSubscriptions():
                self._tell_list(partial(self._describe_subscriptions, message))
            case _:
                raise ProtocolError(f"{type(message).__name__} is no request for a broker")

    def _tell_list(self, tell: Callable[[], Awaitable[None]]) -> None:
        self._tasks.start_soon(tell_with_room, self._connection, tell)

    async def _describe_logs(self, message: m.DescribeLogs) -> None:
        covers = self._connection.grants.covers
        after = (message.after_topic, message.after_partition)
        work = self._logs.describe(message.topic, after, _LOGS_PER_PAGE + 1, covers)
        described = await in_turns(work, another(self._connection.turn))
        page, more = described[:_LOGS_PER_PAGE], len(described) > _LOGS_PER_PAGE
        self._connection.post(m.LogList(message.request, page, more))

    async def _describe_subscriptions(self, message: m.DescribeSubscriptions) -> None:
        covers = self._connection.grants.covers
        work = self._logs.describe_subscriptions(message.topic, _SUBSCRIPTIONS_TOLD + 1, covers)
        described = await in_turns(work, another(self._connection.turn))
        some, more = described[:_SUBSCRIPTIONS_TOLD], len(described) > _SUBSCRIPTIONS_TOLD
        self._connection.post(m.SubscriptionList(message.request, some, more))

    def regranted(self) -> None:
        """Subscriptions that are granted no more end."""
        for request, subscription in list(self._subscriptions.items()):
            if not self._connection.grants.allows(Verb.SUBSCRIBE, subscription.topic):
                self._subscriptions.pop(request)
                subscription.stop()
                why = not_granted(Verb.SUBSCRIBE, subscription.topic)
                self._connection.post(failure(request, Status.FORBIDDEN, why))

    def closed(self) -> None:
        """Subscriptions end with the connection's nursery."""

    def _served(self, topic: str, partition: int) -> BrokerLog:
        """The log, if this broker may serve it.

        Raises:
          NotLeaderError: if not.
        """
        log = self._logs.find(topic, partition)
        if not log.epoch:
            raise NotLeaderError(
                f"this broker was not (yet) appointed for partition {partition}: ask the register"
            )
        return log

    def _replica(self, partition: int) -> PartitionReplica:
        """This broker's replica.

        Raises:
          NotLeaderError: if it has none.
        """
        replica = self._logs.replica(partition)
        if replica is None:
            raise NotLeaderError("this broker is no replica of the partition: ask the register")
        return replica

    def _require_end(self, log: BrokerLog, partition: int) -> None:
        """See that *log*'s highwater mark is above all that was ever acknowledged.

        Raises:
          NotLeaderError: if another broker leads, and knows.
          NotReadyError: if this one has yet to begin to lead the log, or to commit what it
              found when it did.
        """
        leader = self._replica(partition).machine.leader
        if leader is None:
            raise NotLeaderError(f"this broker does not lead partition {partition}")
        led = leader.logs.get(TopicId(log.topic.topic_id))  # it hears of a new log in its turn
        if led is None or not led.knows_end:
            raise NotReadyError(
                f"the new leader of partition {partition} does not know yet how far its replicas "
                "agree"
            )

    def _produce(self, message: m.Produce) -> None:
        connection, request = self._connection, message.request
        log = self._logs.find(message.topic, message.partition)
        settle = self._reserved(log, len(message.records))

        def answer(content: Receipt | Refusal) -> None:
            if settle is not None:
                settle(content)
            with contextlib.suppress(ConnectionLostError):  # it will ask again elsewhere
                if isinstance(content, Receipt):
                    connection.post(
                        m.Produced(request, content.offset, content.epoch, content.duplicate)
                    )
                elif content.status == Status.NOT_LEADER:
                    refuse(connection, request, redirect(self._logs, content.reason, log.partition))
                else:
                    connection.post(failure(request, content.status, content.reason))

        try:
            self._replica(message.partition).produce(log, message.records, answer)
        except OctopiError:
            if settle is not None:
                settle(None)
            raise

    def _reserved(
        self, log: BrokerLog, size_bytes: int
    ) -> Callable[[Receipt | Refusal | None], None] | None:
        """Count records for the quota of the peer's token.  To be called with what became of
        them; None: it has no quota.

        Raises:
          RefusedError: QUOTA_EXCEEDED.
        """
        entry = self._connection.entry
        if entry is None or (bytes_max := entry.identity.quota.bytes) is None:
            return None
        account, name = entry.account, (log.topic.topic, log.topic.topic_id, log.partition)
        account.reserve(size_bytes, bytes_max, self._logs.bounds, self._environment.clock.now())

        def settle(content: Receipt | Refusal | None) -> None:
            if isinstance(content, Receipt) and not content.duplicate:
                account.stored(name, content.offset, size_bytes, bytes_max)
            else:
                account.refused(size_bytes)

        return settle

    def _post_found(self, request: int, log: BrokerLog, offset: Offset) -> None:
        anchor = log.anchor_before(offset)
        self._connection.post(m.FoundOffset(request, offset, log.start, log.highwater, anchor))

    async def _find_later(self, request: int, log: BrokerLog, work: Slices[Offset]) -> None:
        """Look it up when it is this question's turn."""
        with self._refusing(log, request):
            async with self._logs.walks.turn(self._walking):
                offset = await in_turns(work, another(self._connection.turn))
            self._post_found(request, log, offset)

    @contextlib.contextmanager
    def _refusing(self, log: BrokerLog, request: int) -> Iterator[None]:
        """Answer *request* with what goes wrong within the block, which may wait."""
        try:
            yield
        except ConnectionLostError:
            pass
        except OctopiError as error:
            gone = redirect(self._logs, _NOT_SERVED, log.partition)
            refuse(self._connection, request, error if log.epoch else gone)

    def _fetch(self, message: m.Fetch) -> None:
        log = self._served(message.topic, message.partition)
        if message.offset > log.highwater:
            self._logs.check_anchor(log, Offset(message.offset), message.anchor)
            self._require_end(log, message.partition)
        room_bytes = self._connection.outbox.room_now(*_size_of_answer(log, message))
        try:
            if room_bytes and self._answer_fetch(log, message, room_bytes):
                return
        except NeedsTimeError:
            self._charge_task(FETCHES)
            self._tasks.start_soon(self._fetch_in_turn, log, message, True)
            return
        if room_bytes:
            self._wait_for_records(log, message)
        else:
            self._charge_task(FETCHES)
            self._tasks.start_soon(self._fetch_in_turn, log, message, False)

    async def _fetch_in_turn(self, log: BrokerLog, message: m.Fetch, proves: bool = False) -> None:
        """Answer when there is room for it, and (*proves*) it is known whether a record starts
        there: that takes a while once."""
        with self._refusing(log, message.request):
            try:
                is_answered = await self._answer_with_room(log, message, proves=proves)
            finally:
                self._connection.memory.tasks.release(FETCHES, WAITING_TASK_MEMORY_BYTES)
            if not is_answered:
                self._wait_for_records(log, message)

    async def _answer_with_room(
        self, log: BrokerLog, message: m.Fetch, *, proves: bool = False, last: bool = False
    ) -> bool:
        """`_answer_fetch`, once there is room for what it reads."""
        while True:
            if proves:
                await log.prove(Offset(message.offset))
            await self._connection.paced()
            turn = await allowed(self._connection.turn)
            size = _size_of_answer(log, message)
            try:
                async with self._connection.outbox.room(*size) as room_bytes:
                    if not log.epoch:
                        raise NotLeaderError(_NOT_SERVED)
                    with measured(turn):
                        return self._answer_fetch(log, message, room_bytes, last=last)
            except NeedsTimeError:
                proves = True

    def _wait_for_records(self, log: BrokerLog, message: m.Fetch) -> None:
        """Have *message* answered when records have come.

        Raises:
          RefusedError: TOO_MANY.
        """
        if self._waiting_count >= WAITING_FETCHES_MAX:
            raise RefusedError(
                f"at most {WAITING_FETCHES_MAX} fetches of a connection wait for records",
                Status.TOO_MANY,
            )
        self._charge_task(FETCHES)
        self._waiting_count += 1
        self._connection.set_aside(message.request)
        self._tasks.start_soon(self._fetch_later, log, message)

    def _charge_task(self, kind: str) -> None:
        """Take the memory for a task that waits; it has to be released when that ends.

        Raises:
          RefusedError: TOO_MANY.
        """
        account = self._connection.memory.tasks
        if not account.room(WAITING_TASK_MEMORY_BYTES, WAITING_TASK_MEMORY_BYTES):
            raise RefusedError(
                f"the broker has no memory left for more {kind} of this client (--memory-budget)",
                Status.TOO_MANY,
            )
        account.charge(kind, WAITING_TASK_MEMORY_BYTES)

    def _answer_fetch(
        self, log: BrokerLog, message: m.Fetch, room_bytes: int, *, last: bool = False
    ) -> bool:
        """Answer with at most *room_bytes* of records, or one; false: there are none yet."""
        offset = Offset(message.offset)
        self._logs.check_anchor(log, offset, message.anchor)
        records = log.read(offset, room_bytes)
        if not (records or last or message.wait_ms == 0):
            return False
        anchor = log.anchor_behind(offset) if records else log.anchor_before(offset)
        self._connection.post(
            m.Fetched(
                message.request, log.topic.topic_id, records, log.start, log.highwater, anchor
            )
        )
        log.delivered_bytes += len(records)
        return True

    async def _fetch_later(self, log: BrokerLog, message: m.Fetch) -> None:
        """Answer when there are records, or when the time is over."""
        if not message.anchor:
            # Another leader may come meanwhile, whose log isn't what was asked for.
            anchor = log.anchor_before(Offset(message.offset))
            message = attrs.evolve(message, anchor=anchor)
        try:
            with self._refusing(log, message.request):
                await self._wait_and_answer(log, message)
        finally:
            self._waiting_count -= 1
            self._connection.memory.tasks.release(FETCHES, WAITING_TASK_MEMORY_BYTES)

    async def _wait_and_answer(self, log: BrokerLog, message: m.Fetch) -> None:
        arrived = trio.Event()

        def wake() -> None:
            # The log wakes for appends, too, which nothing is committed of yet.
            if log.highwater > message.offset or not log.epoch:
                arrived.set()

        log.add_waker(wake)
        try:
            with self._environment.clock.timeout(min(message.wait_ms / 1000, FETCH_WAIT_S_MAX)):
                wake()
                await arrived.wait()
        finally:
            log.remove_waker(wake)
        # Many may have what they waited for at once.
        await self._answer_with_room(log, message, last=True)

    def _subscribe(self, message: m.Subscribe) -> None:
        if message.request in self._subscriptions:
            raise ProtocolError(f"subscription {message.request} is open already")
        if len(self._subscriptions) >= SUBSCRIPTIONS_MAX:
            raise RefusedError(
                f"a connection has at most {SUBSCRIPTIONS_MAX} subscriptions", Status.TOO_MANY
            )
        log = self._served(message.topic, message.partition)
        subscription = Subscription(self._connection, self._logs, log, message)
        self._charge_task(SUBSCRIPTIONS)
        opens = False
        entry = self._connection.entry
        if entry is not None:
            try:
                entry.account.subscribe(entry.identity.quota)
            except RefusedError:
                self._connection.memory.tasks.release(SUBSCRIPTIONS, WAITING_TASK_MEMORY_BYTES)
                raise
        try:
            subscription.open()
        except NeedsTimeError:
            opens = True  # by its task
        except BaseException:
            self._unsubscribed()
            raise
        self._subscriptions[message.request] = subscription
        self._tasks.start_soon(self._run_subscription, message.request, subscription, opens)

    async def _run_subscription(
        self, request: int, subscription: Subscription, opens: bool
    ) -> None:
        try:
            await subscription.run(opens=opens)
        finally:
            self._unsubscribed()
            if self._subscriptions.get(request) is subscription:
                del self._subscriptions[request]

    def _unsubscribed(self) -> None:
        self._connection.memory.tasks.release(SUBSCRIPTIONS, WAITING_TASK_MEMORY_BYTES)
        if self._connection.entry is not None:
            self._connection.entry.account.unsubscribed()


def _size_of_answer(log: BrokerLog, message: m.Fetch) -> tuple[int, int]:
    """How many bytes of records a fetch gets at most, and at least."""
    offset = Offset(message.offset)
    least_bytes = max(1, log.read_bytes_min(offset))
    asked_bytes = min(message.bytes_max, BATCH_BYTES_MAX, log.highwater - offset)
    return max(asked_bytes, least_bytes), least_bytes


def partition_of(message: object) -> int:
    """Which partition a message is about; -1: none."""
    partition: int = getattr(message, "partition", -1)
    return partition
