"""A pipe, as a program uses it: messages of one topic come in, its results go to another one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime
from typing import Any, Final

import attrs
import trio

from octopi.clients.background import background_tasks
from octopi.clients.cluster_handle import ClusterHandle
from octopi.clients.options import one_of, within
from octopi.clients.piping.input_place import InputPlace, Unit
from octopi.clients.piping.pipe_log import PipeLog, PipeResult
from octopi.clients.piping.pipe_output import PipeOutput
from octopi.clients.producing.arguments import as_bytes, milliseconds
from octopi.clients.subscribing.opening import open_member
from octopi.clients.subscribing.subscription import Subscription
from octopi.errors import (
    ClosedError,
    InvalidOptionError,
    MemberFencedError,
    RefusedError,
    Status,
)
from octopi.identifiers import Claim, Offset, PartitionId, TopicId, TopicName, topic_name
from octopi.limits import BATCH_BYTES_MAX, OFFSET_MAX, RECORD_BYTES_MAX, RECORDS_PER_PRODUCE_MAX
from octopi.record import NO_HEADERS, BatchBuilder, Message, producer_id_of
from octopi.record_headers import INPUT_HEADER
from octopi.wire.messages import TopicInfo

_PARTITION_MAX: Final = 2**32 - 1
_LARGEST: Final = InputPlace(
    Unit(TopicId("f" * 16), PartitionId(_PARTITION_MAX), Offset(OFFSET_MAX), Offset(OFFSET_MAX), 0),
    RECORDS_PER_PRODUCE_MAX,
    is_last=True,
).encode()


@attrs.define(eq=False)
class _InHand:
    """The message that the program works on."""

    message: Message
    unit: Unit
    output: PipeOutput
    sent: list[PipeResult] = attrs.field(factory=list)
    sent_bytes: int = 0


class Pipe:
    """Processes the messages of one topic, and sends what comes of it to another one.  Made by
    `Client.pipe`; for one task at a time.

    Iterate over it for the messages.  What is sent before the next message is requested belongs to
    the message in hand, and is stored once, whatever program, broker or member of the pipe fails
    meanwhile.  It is stored a moment after that, together with what came of other messages.

    Iterating and sending raise what iterating over a `Subscription` raises, and:
      RefusedError: RECEIPT_FORGOTTEN, if the output doesn't tell any more how far the pipe was.
      HistoryForkedError: if either topic has lost what the pipe relies on.
    """

    def __init__(
        self,
        cluster: ClusterHandle,
        nursery: trio.Nursery,
        subscription: Subscription,
        source: TopicInfo,
        into: TopicInfo,
        *,
        from_mark: bool,
        batch_bytes: int,
        delivery_timeout_s: float,
        is_exclusive: bool,
    ) -> None:
        self._cluster = cluster
        self._nursery = nursery
        self._subscription = subscription
        self._source = source
        self._into = into
        self._from_mark = from_mark
        self._batch_bytes = batch_bytes
        self._delivery_timeout_s = delivery_timeout_s
        self._is_exclusive = is_exclusive
        self._outputs: dict[PartitionId, PipeOutput] = {}
        self._in_hand: _InHand | None = None
        self._taken: tuple[Message, PipeOutput] | None = None
        """The next message, while it is found out whether it has to be processed."""
        self._forks = 0
        """The losses of the input that were looked at."""
        self._is_closed = False

    # --- facts -------------------------------------------------------------------------

    @property
    def topic(self) -> str:
        """That of the input."""
        return self._source.topic

    @property
    def name(self) -> str:
        """That of the subscription."""
        return self._subscription.name

    @property
    def into(self) -> str:
        """The topic of the output."""
        return self._into.topic

    @property
    def claims(self) -> dict[int, int]:
        """Partition -> claim, of the logs of the input that this member has."""
        return self._subscription.claims

    @property
    def lag(self) -> int:
        """How far the marks are behind the newest messages heard of, in all (bytes)."""
        return self._subscription.lag

    # --- what the program does ---------------------------------------------------------

    def __aiter__(self) -> Pipe:
        return self

    async def __anext__(self) -> Message:
        self._end_unit()
        while True:
            if self._taken is None:  # a cancelled task has taken it, if it is there
                message = await anext(self._subscription)
                self._check_forks()
                if (output := self._output_of(message)) is None:
                    continue
                self._taken = message, output
            message, output = self._taken
            await output.ready()
            self._taken = None
            if output.is_over:
                continue  # another member processes it
            unit = Unit.of(TopicId(self._source.topic_id), message)
            if output.log.wants(unit):
                self._in_hand = _InHand(message, unit, output)
                return message
            if output.log.is_checked:
                self._mark(message)

    async def send(
        self,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        timestamp: datetime | None = None,
    ) -> None:
        """Have a message stored in the output, once, as a result of the message in hand.

        *key*, *headers*, *timestamp*: as for `Producer.send`; a key doesn't choose the partition.

        Raises:
          RuntimeError: if no message is in hand.
          MalformedRecordError: if the message is too large, or its headers too many.
          RefusedError: MESSAGE_TOO_LARGE, if one message has more results than fit one request.
          InvalidOptionError: if *timestamp* has no time zone, or a header is one of the pipe's.
          Also the errors of iterating.
        """
        await trio.lowlevel.checkpoint()
        in_hand = self._in_hand
        if in_hand is None:
            raise RuntimeError("no message is in hand: send within `async for` over the pipe")
        headers = headers or NO_HEADERS
        if INPUT_HEADER in headers:
            raise InvalidOptionError(f"the header {INPUT_HEADER} is written by the pipe itself")
        if in_hand.output.error is not None:
            raise in_hand.output.error
        clock = self._cluster.environment.clock
        timestamp_ms = clock.wall_ms() if timestamp is None else milliseconds(timestamp)
        output = PipeResult(
            as_bytes("value", value),
            None if key is None else as_bytes("key", key),
            dict(headers),
            timestamp_ms,
        )
        # Raises now, while the program can say of which message.
        tried = BatchBuilder()
        tried.add(output.value, output.key, {**headers, INPUT_HEADER: _LARGEST}, timestamp_ms)
        size_bytes = in_hand.sent_bytes + tried.size_bytes
        if len(in_hand.sent) >= RECORDS_PER_PRODUCE_MAX or size_bytes > BATCH_BYTES_MAX:
            raise RefusedError(
                f"{self.into}: one message of {self.topic} has at most {RECORDS_PER_PRODUCE_MAX} "
                f"results, of at most {BATCH_BYTES_MAX} bytes",
                Status.MESSAGE_TOO_LARGE,
            )
        in_hand.sent.append(output)
        in_hand.sent_bytes = size_bytes

    async def commit(self) -> None:
        """Count the message in hand as processed, and wait until all results are stored and all
        marks are committed.

        Raises:
          MemberFencedError: if another member has a log that was processed here.
          OctopiError: what iterating raises.
        """
        self._end_unit()
        for output in list(self._outputs.values()):
            await output.settled()
        await self._subscription.commit()

    # --- within ------------------------------------------------------------------------

    def _end_unit(self) -> None:
        in_hand, self._in_hand = self._in_hand, None
        if self._is_closed:
            raise ClosedError("the pipe's block was left")
        if in_hand is not None and not in_hand.output.is_over:
            in_hand.output.processed(in_hand.message, in_hand.unit, in_hand.sent)

    def _check_forks(self) -> None:
        """Check that the input still has all that was processed.

        Raises:
          HistoryForkedError: if it hasn't.
        """
        if self._subscription.forks[self._forks :]:
            self._forks = len(self._subscription.forks)
            raise self._subscription.forks[-1]

    def _mark(self, message: Message) -> None:
        if self._subscription.claims.get(message.partition) is not None:
            self._subscription.mark(message)

    async def watch(self) -> None:
        """Have an output for each log of the input, as this member gets and loses them."""
        while True:
            self._look_at_claims()
            await self._subscription.news.wait()

    def _look_at_claims(self) -> None:
        claims = self._subscription.claims
        for partition, output in list(self._outputs.items()):
            if claims.get(partition) != output.log.claim:
                output.end()
                del self._outputs[partition]
        for number, claim in claims.items():
            partition = PartitionId(number)
            index = self._subscription._first_index(partition)
            if partition not in self._outputs and index is not None:
                self._begin(partition, Claim(claim), index)

    def _output_of(self, message: Message) -> PipeOutput | None:
        """Where the results of *message* go, which the subscription has just handed out; None: the
        log has gone to another member."""
        try:
            claim = self._subscription.claim
        except LookupError:
            return None
        output = self._outputs.get(message.partition)
        if output is None or output.log.claim != claim:
            self._look_at_claims()
            output = self._outputs.get(message.partition)
        return output if output is not None and output.log.claim == claim else None

    def _begin(self, partition: PartitionId, claim: Claim, index: int) -> None:
        name = f"{self.topic}/{partition} into {self.into}"
        producer_id = producer_id_of("pipe", f"{self._subscription.sid}/{partition}")
        log = PipeLog(
            name, producer_id, claim, from_mark=self._from_mark, batch_bytes=self._batch_bytes
        )
        output = PipeOutput(
            self._cluster,
            log,
            (TopicName(self.topic), partition),
            TopicName(self.into),
            index,
            self._delivery_timeout_s,
            self._mark,
        )
        self._outputs[partition] = output
        self._nursery.start_soon(self._run, output)

    async def _run(self, output: PipeOutput) -> None:
        await output.run()
        if isinstance(output.error, MemberFencedError) and not self._is_exclusive:
            output.end()  # the subscription hears of it as well, and goes on with other logs
        elif output.error is not None:
            self._subscription.fail(output.error)

    def close(self) -> None:
        """Send nothing more."""
        self._is_closed, self._in_hand = True, None
        for output in self._outputs.values():
            output.end()


def open_pipe(
    cluster: ClusterHandle,
    topic: str,
    name: str,
    into: str,
    *,
    mode: str,
    from_mark: bool,
    batch_bytes: int,
    delivery_timeout_s: float,
    **options: Any,  # noqa: ANN401
) -> AbstractAsyncContextManager[Pipe]:
    """See `octopi.clients.client.Client.pipe`.

    Raises:
      InvalidOptionError: if an option is out of its range.
    """
    one_of("mode", mode, "exclusive", "failover")
    within("batch_bytes", batch_bytes, 1, BATCH_BYTES_MAX - RECORD_BYTES_MAX)
    within("delivery_timeout_s", delivery_timeout_s, 0.001, 86_400)
    member = open_member(cluster, topic, name, mode, {**options, "mark": "manual"})
    settings = {
        "from_mark": from_mark,
        "batch_bytes": batch_bytes,
        "delivery_timeout_s": delivery_timeout_s,
        "is_exclusive": mode == "exclusive",
    }
    return _opened(cluster, member, topic, into, settings)


@asynccontextmanager
async def _opened(
    cluster: ClusterHandle,
    member: AbstractAsyncContextManager[Any],
    topic: str,
    into: str,
    settings: Mapping[str, Any],
) -> AsyncIterator[Pipe]:
    source = await cluster.router.describe_topic(topic_name(topic))
    target = await cluster.router.describe_topic(topic_name(into))
    for info in (source, target):
        if info.is_relay:
            raise RefusedError(
                f"topic {info.topic} is in memory: pipes lead from logs to logs", Status.WRONG_KIND
            )
    async with member as subscription, background_tasks() as nursery:
        pipe = Pipe(cluster, nursery, subscription, source, target, **settings)
        try:
            nursery.start_soon(pipe.watch)
            yield pipe
            await pipe.commit()
        finally:
            pipe.close()
