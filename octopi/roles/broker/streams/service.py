"""Answers requests for streams at a broker: serves those that it leads, forwards the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import attrs

from octopi.environment import Environment
from octopi.errors import NotReadyError, OctopiError, Status, refused
from octopi.identifiers import Offset, PartitionId, TopicId, TopicName
from octopi.limits import FORWARD_S, HTTP_BODY_BYTES_MAX, HTTP_FORK_BYTES_MAX, HTTP_JSON_BYTES_MAX
from octopi.record import Message
from octopi.replication.effects import CommitReceipt, Refusal
from octopi.roles.broker.local_log import LocalLog
from octopi.roles.broker.redirects import redirect
from octopi.roles.broker.replica_driver import ReplicaDriver
from octopi.roles.broker.replica_manager import ReplicaManager
from octopi.roles.broker.streams import content
from octopi.roles.broker.streams.appending import Settle, StreamWriter, Written
from octopi.roles.broker.streams.expiry import Expiry
from octopi.roles.broker.streams.reading import ReaderCounts, StreamReader
from octopi.roles.streams import exchange
from octopi.roles.streams.exchange import ANYWHERE, FORK, INITIAL, NO_STORE, StreamCaller
from octopi.roles.streams.fixed_lists import check_fixed_list
from octopi.roles.streams.forwarding import PAUSE_S, forward, hops_of, look_again
from octopi.security.grants import Verb
from octopi.streams import content_types, forks, paths
from octopi.streams.definitions import content_type_of, expiry_headers
from octopi.streams.json_mode import values_of
from octopi.streams.offsets import BEGINNING
from octopi.streams.problems import StreamProblem, conflict, invalid, unknown
from octopi.streams.writing import CLOSED_TRUE, Write, write_of
from octopi.transport.http_requests import HttpAnswer, HttpRequest
from octopi.transport.memory_budget import MemoryBudget


class BrokerStreams:
    """See `octopi.roles.streams.exchange.StreamService`."""

    def __init__(
        self,
        environment: Environment,
        manager: ReplicaManager,
        memory: MemoryBudget,
        registers: Iterable[str],
        report: Callable[[TopicId], None],
    ) -> None:
        """*registers*: their addresses; none in a cluster without one.  *report* tells whoever
        decides of an expired stream."""
        self._environment = environment
        self._manager = manager
        self._memory = memory
        self._registers = registers
        self._writer = StreamWriter(environment)
        self.readers = ReaderCounts()
        self.expiry = Expiry(environment.clock, manager, report)
        self._events = content.SharedEvents()

    async def answer(self, request: HttpRequest, caller: StreamCaller) -> HttpAnswer:
        """The answer; errors are answers, too."""
        try:
            return await self._answer(request, caller)
        except OctopiError as error:
            return exchange.problem_answer(error)

    async def _answer(self, request: HttpRequest, caller: StreamCaller) -> HttpAnswer:
        topic = paths.topic_of(request.path)
        caller.require_method(request.method, topic)
        asked = exchange.parameters(request)
        body = await exchange.received(request, caller.accounts(self._memory), HTTP_BODY_BYTES_MAX)
        if request.method not in {"PUT", "DELETE"}:
            served = await self.served(request, caller, topic, asked.get("partition", ""), body)
            if served is not None:
                return served

        async def locate() -> str:
            return self._address(topic, asked.get("partition", ""), request)

        if hops_of(request) and request.method in {"PUT", "DELETE"}:
            raise look_again("a broker decides about no topic")
        return await forward(self._environment, request, body, caller, locate)

    async def served(
        self,
        request: HttpRequest,
        caller: StreamCaller,
        topic: TopicName,
        partition: str,
        body: bytes,
    ) -> HttpAnswer | None:
        """The answer, if this broker leads the stream; None: it does not.

        Raises:
          OctopiError: why the request is refused, or can't be answered now.
        """
        log = self._log(topic, partition)
        driver = None if log is None else self._manager.replica(log.partition)
        if log is None or driver is None or not await self._leads(log, driver):
            return None
        if (fence := self._manager.fence(log.partition)) is not None:
            raise refused(fence.status, fence.reason)
        return await self._serve(request, caller, log, driver, body)

    def has_log(self, topic: TopicName) -> bool:
        """Whether this broker has a log of the stream, as a leader or a follower."""
        logs = self._manager.store.logs
        return any((topic, one.partition) in logs for one in self._manager.replicas)

    def _log(self, topic: TopicName, partition: str) -> LocalLog | None:
        """This broker's log of the stream; None: it has none.

        Raises:
          StreamProblem: if *partition* names none, or the topic has several and it names none.
          RefusedError: see `check_fixed_list`.
        """
        logs = self._manager.store.logs
        found = None
        for replica in self._manager.replicas:
            found = logs.get((topic, replica.partition))
            if found is not None:
                break
        if found is None:
            return None
        check_fixed_list(found.topic)
        partitions = found.topic.partitions
        if not partition:
            if len(partitions) > 1:
                raise invalid(
                    f"the topic has the partitions {_some(partitions)}: choose one with "
                    "?partition=NUMBER"
                )
            return logs.get((topic, partitions[0]))
        if not (partition.isascii() and partition.isdigit() and len(partition) <= 9):
            raise invalid(f"partition is a number, not {partition[:20]!r}")
        chosen = PartitionId(int(partition))
        if chosen not in partitions:
            raise StreamProblem(
                f"the topic has the partitions {_some(partitions)}, not {chosen}",
                Status.UNKNOWN_PARTITION,
            )
        return logs.get((topic, chosen))

    def _address(self, topic: TopicName, partition: str, request: HttpRequest) -> str:
        """Where the request is forwarded to: the leader, if this broker knows it, or the
        register."""
        log = None if request.method in {"PUT", "DELETE"} else self._log(topic, partition)
        if log is not None:
            leader = redirect(self._manager, "", log.partition).address
            if leader:
                return leader
        for register in self._registers:
            if register not in hops_of(request):
                return register
        raise NotReadyError("no broker leads the stream's partition now")

    async def _leads(self, log: LocalLog, driver: ReplicaDriver) -> bool:
        """Whether this broker leads *log* and its highwater mark covers all that was ever
        acknowledged.  A new leader waits for that, for `FORWARD_S`.

        Raises:
          NotReadyError: if the highwater mark doesn't by then.
        """
        clock = self._environment.clock
        ends_at = clock.now() + FORWARD_S
        while driver.leads and log.epoch:
            leader = driver.machine.leader
            led = leader.logs.get(TopicId(log.topic.topic_id)) if leader is not None else None
            if led is not None and led.knows_end(log.highwater):
                return True
            if led is None or clock.now() >= ends_at:
                raise NotReadyError("the new leader has not yet committed what it had before")
            await clock.sleep_until(clock.now() + PAUSE_S)
        return False

    # --- serving ---------------------------------------------------------------------------

    async def _serve(
        self,
        request: HttpRequest,
        caller: StreamCaller,
        log: LocalLog,
        driver: ReplicaDriver,
        body: bytes,
    ) -> HttpAnswer:
        if self.expiry.is_expired(log):
            raise unknown(log.topic.topic)
        match request.method:
            case "HEAD":
                return self._head(log)
            case "POST":
                return await self._post(request, caller, log, driver, body)
        self.expiry.used(log)
        reader = StreamReader(
            self._environment, self._manager, self._memory, self.readers, self._events
        )
        return await reader.answer(request, caller, log)

    def _head(self, log: LocalLog) -> HttpAnswer:
        headers = [
            NO_STORE,
            ANYWHERE,
            ("stream-next-offset", content.text(log, log.highwater)),
            *expiry_headers(log.topic.stream),
        ]
        if content.is_closed(log):
            headers.append(CLOSED_TRUE)
        return HttpAnswer(200, b"", content_type_of(log.topic.stream), tuple(headers))

    async def _post(
        self,
        request: HttpRequest,
        caller: StreamCaller,
        log: LocalLog,
        driver: ReplicaDriver,
        body: bytes,
    ) -> HttpAnswer:
        if FORK in request.headers:
            copied = await self._copy_of(request.headers[FORK], caller, log)
            values = self._write_of(request, log, body).values
            write = Write(values, copied=copied, is_initial=True)
        else:
            write = self._write_of(request, log, body)
        if not write.values and not write.closes and not write.copied:
            if write.is_initial:
                return self._head(log)  # an empty array is no content
            raise invalid("the body is empty: there is nothing to append")
        self.expiry.used(log)
        size_bytes = sum(map(len, write.values)) + sum(len(one.value) for one in write.copied)
        try:
            written = await self._writer.write(
                driver, log, write, self._reserved(caller, log, size_bytes)
            )
        except StreamProblem as problem:
            if problem.status != Status.TOPIC_CLOSED:
                raise
            end = ("stream-next-offset", content.text(log, log.highwater))
            headers = (*problem.headers, end)
            raise StreamProblem(str(problem.args[0]), problem.status, *headers) from None
        self.expiry.used(log)
        return _written(log, write, written)

    def _write_of(self, request: HttpRequest, log: LocalLog, body: bytes) -> Write:
        """The write that *request* asks for.

        Raises:
          StreamProblem: if it is malformed, or of another type than the stream.
        """
        stream_type, headers = content_type_of(log.topic.stream), request.headers
        values: list[bytes] = []
        if body:
            given = headers.get("content-type", "")
            if not given:
                raise invalid("say what you write: give its Content-Type")
            if not content_types.matches(content_types.given(given), stream_type):
                raise conflict(f"the stream's content is {stream_type}, not {given[:100]}")
            if content_types.is_json(stream_type):
                if len(body) > HTTP_JSON_BYTES_MAX:
                    raise StreamProblem(
                        f"a request writes at most {HTTP_JSON_BYTES_MAX} bytes of JSON",
                        Status.MESSAGE_TOO_LARGE,
                    )
                values = values_of(body)
                if not values and INITIAL not in headers and FORK not in headers:
                    raise invalid("the array is empty: there is nothing to append")
            else:
                values = [body]
        write = write_of(headers, values)
        return attrs.evolve(write, is_initial=True) if INITIAL in headers else write

    async def _copy_of(self, text: str, caller: StreamCaller, log: LocalLog) -> list[Message]:
        """The messages that a fork begins with.

        Raises:
          StreamProblem: if that can't be copied.
        """
        order = forks.ForkOrder.parse(text)
        source = self._manager.store.logs.get((order.source, log.partition))
        if source is None or source is log:
            raise unknown(order.source)
        caller.require(Verb.SUBSCRIBE, order.source)
        if self.expiry.is_expired(source):
            raise unknown(order.source)
        if source.start > 0:
            raise content.gone(source)
        if order.offset not in {"", BEGINNING}:
            content.checked_offset(source, order.offset)
        messages = await content.messages(source, Offset(0), HTTP_FORK_BYTES_MAX)
        if messages and messages[-1].next_offset < source.highwater:
            raise StreamProblem(
                f"a fork copies at most {HTTP_FORK_BYTES_MAX} bytes", Status.MESSAGE_TOO_LARGE
            )
        is_json = content_types.is_json(content_type_of(source.topic.stream))
        return forks.inherited(messages, order, is_json=is_json)

    def _reserved(self, caller: StreamCaller, log: LocalLog, size_bytes: int) -> Settle | None:
        """Count content for the quota of the caller's token.  Returns the function to call with the
        outcome; None: the token has no quota.

        Raises:
          RefusedError: with QUOTA_EXCEEDED.
        """
        entry = caller.entry
        if entry is None or (bytes_max := entry.identity.quota.bytes) is None:
            return None
        account, name = entry.account, (log.topic.topic, log.topic.topic_id, log.partition)
        now = self._environment.clock.now()
        account.reserve(size_bytes, bytes_max, self._manager.store.bounds, now)

        def settle(receipt: CommitReceipt | Refusal | None) -> None:
            if isinstance(receipt, CommitReceipt) and not receipt.duplicate:
                account.stored(name, receipt.offset, size_bytes, bytes_max)
            else:
                account.refused(size_bytes)

        return settle


def _written(log: LocalLog, write: Write, written: Written) -> HttpAnswer:
    headers = [
        NO_STORE,
        ANYWHERE,
        ("stream-next-offset", content.text(log, written.end)),
    ]
    status = 204
    if write.producer is not None:
        status = 200 if write.values and not written.is_repeated else 204
        headers.append(("producer-epoch", str(write.producer.epoch)))
        headers.append(("producer-seq", str(written.sequence)))
    if write.closes or content.is_closed(log):
        headers.append(CLOSED_TRUE)
    return HttpAnswer(status, b"", "", tuple(headers))


def _some(partitions: list[PartitionId]) -> str:
    return ", ".join(str(one) for one in partitions[:20])
