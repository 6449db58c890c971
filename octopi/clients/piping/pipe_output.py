"""The driver of one `PipeLog`: asks the leader of the output's log, sends to it, and marks.

It has a task of its own, in the nursery of the pipe, until the member loses the log of the input.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import trio

from octopi.clients.cluster_handle import ClusterHandle
from octopi.clients.leader_errors import may_pass_at_a_leader
from octopi.clients.news import News
from octopi.clients.piping.input_place import InputPlace, Unit
from octopi.clients.piping.pipe_log import Found, PipeBatch, PipeLog, PipeResult
from octopi.conditions import NO_RECORD
from octopi.errors import HistoryForkedError, MemberFencedError, OctopiError, RefusedError, Status
from octopi.identifiers import PartitionId, TopicName
from octopi.limits import PIPE_BUFFER_BYTES
from octopi.record import Message
from octopi.wire.messages import DescribeProducer, Produce, Produced, ProducerDescription

_T = TypeVar("_T")

_LOOK_AGAIN: Final = frozenset(
    {Status.CONDITION_FAILED, Status.SEQUENCE_GAP, Status.UNKNOWN_PRODUCER}
)


class PipeOutput:
    """Sends what comes from one log of the input."""

    def __init__(
        self,
        cluster: ClusterHandle,
        log: PipeLog,
        source: tuple[TopicName, PartitionId],
        target: tuple[TopicName, PartitionId],
        timeout_s: float,
        mark: Callable[[Message], None],
    ) -> None:
        """*source*, *target*: the logs of input and output.  *timeout_s*: how long one request is
        tried.  *mark* stores that everything up to a message is processed."""
        self.log = log
        self._cluster = cluster
        self._source = source
        self._target = target
        self._timeout_s = timeout_s
        self._mark = mark
        self._messages: deque[Message] = deque()
        """What was processed, and is not marked, oldest first."""
        self.error: OctopiError | None = None
        """Why nothing more is sent."""
        self.news: News = News()
        """Told when the log has got on, or an error has come."""
        self._work = News()
        self.scope: Final = trio.CancelScope()
        """Of its task."""

    # --- what the pipe uses ------------------------------------------------------------

    async def ready(self) -> None:
        """Wait until it is known what the log of the output has, and there is room.

        Raises:
          OctopiError: why that is not found out.
        """
        while self.error is None and not self.is_over:
            if not self.log.needs_look and self.log.waiting_bytes < PIPE_BUFFER_BYTES:
                return
            await self.news.wait()
        self._check()

    async def settled(self) -> None:
        """Wait until the log of the output has all, and the input is marked.

        Raises:
          OctopiError: why it does not get it.
        """
        while self._messages and self.error is None and not self.is_over:
            await self.news.wait()
        self._check()

    @property
    def is_over(self) -> bool:
        """Whether the member has lost the log of the input."""
        return self.scope.cancel_called

    def end(self) -> None:
        """The member has lost the log of the input: another one sends its outputs."""
        self.scope.cancel()
        self.news.tell()

    def processed(self, message: Message, unit: Unit, outputs: list[PipeResult]) -> None:
        """The program has processed *message*."""
        self._messages.append(message)
        self.log.processed(unit, outputs)
        self._mark_done()
        self._work.tell()

    def _check(self) -> None:
        if self.error is not None:
            raise self.error

    # --- the task ----------------------------------------------------------------------

    async def run(self) -> None:
        """Send, until `end` or until an error comes."""
        with self.scope:
            try:
                await self._look(is_first=True)
                while True:
                    self.news.tell()
                    if self.log.needs_look:
                        await self._look()
                    elif (batch := self.log.next_batch()) is not None:
                        await self._send(batch)
                        self._mark_done()
                    else:
                        await self._work.wait()
            except OctopiError as error:
                self.error = error
        self.news.tell()

    async def _look(self, *, is_first: bool = False) -> None:
        topic, partition = self._target
        told = await self._asked(
            lambda: self._cluster.router.ask_leader(
                f"find the last output of the pipe in {topic}/{partition}",
                topic,
                partition,
                lambda request: DescribeProducer(
                    request, topic, partition, self.log.producer_id, False, None, True
                ),
                ProducerDescription,
                passes=may_pass_at_a_leader,
            )
        )
        place = InputPlace.decode(told.input) if told.input else None
        self.log.found(Found(told.last or NO_RECORD, place, told.forgets))
        if is_first and place is not None:
            await self._check_end(place)

    async def _check_end(self, place: InputPlace) -> None:
        """Check that the input still has the message from which the last output comes."""
        source, partition = self._source
        find = self._cluster.router.find_offset
        end = (await self._asked(lambda: find(source, partition, "latest"))).offset
        if end < place.unit.next_offset:
            raise HistoryForkedError.of_range(source, partition, end, place.unit.next_offset)

    async def _send(self, batch: PipeBatch) -> None:
        topic, partition = self._target
        after = None if batch.condition is None else batch.condition.after
        try:
            await self._asked(
                lambda: self._cluster.router.ask_leader(
                    f"send outputs of the pipe to {topic}/{partition}",
                    topic,
                    partition,
                    lambda request: Produce(request, topic, partition, batch.records, None, after),
                    Produced,
                    passes=may_pass_at_a_leader,
                )
            )
        except RefusedError as error:
            if error.status in _LOOK_AGAIN:
                self.log.refuted()
                return
            if error.status is Status.PRODUCER_FENCED:
                raise MemberFencedError(
                    f"{topic}/{partition}: another member of the pipe sends to the log now"
                ) from error
            if error.status is not Status.RECEIPT_FORGOTTEN:
                raise
        self.log.stored()

    async def _asked(self, ask: Callable[[], Awaitable[_T]]) -> _T:
        """What *ask* returns; it is repeated for as long as its errors may pass."""
        clock = self._cluster.environment.clock
        until = clock.now() + self._timeout_s
        while True:
            try:
                return await ask()
            except OctopiError as error:
                if not may_pass_at_a_leader(error) or clock.now() >= until:
                    raise

    def _mark_done(self) -> None:
        done = self.log.take_done()
        if done is None:
            return
        message = None
        while self._messages and self._messages[0].offset <= done.offset:
            message = self._messages.popleft()
        if message is not None:
            self._mark(message)
