"""The driver of one `PipeLog`: asks the leader of the output's log, sends to it, and marks.

It has a task of its own, in the nursery of the pipe, until the member loses the log of the input.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeVar

import trio

from octopi.clients.cluster_handle import ClusterHandle
from octopi.clients.leader_errors import may_pass_at_a_leader
from octopi.clients.leader_lookup import generation_of
from octopi.clients.news import News
from octopi.clients.piping.input_place import InputPlace, Unit
from octopi.clients.piping.output_route import targets_of
from octopi.clients.piping.pipe_log import Found, PipeBatch, PipeLog, PipeResult
from octopi.clients.producing.effects import on_the_wire
from octopi.conditions import NO_RECORD, LastRecord
from octopi.errors import (
    HistoryForkedError,
    MemberFencedError,
    OctopiError,
    RefusedError,
    Status,
)
from octopi.identifiers import PartitionId, TopicName
from octopi.limits import PIPE_BUFFER_BYTES
from octopi.record import Message
from octopi.retry import Backoff
from octopi.wire.messages import DescribeProducer, Produce, Produced, ProducerDescription

_T = TypeVar("_T")

_LOOK_AGAIN: Final = frozenset(
    {Status.CONDITION_FAILED, Status.SEQUENCE_GAP, Status.UNKNOWN_PRODUCER}
)


def _may_pass_by_this_route(error: OctopiError) -> bool:
    """Whether the same request to the same log can succeed later."""
    is_stale = isinstance(error, RefusedError) and error.status is Status.STALE_ROUTE
    return may_pass_at_a_leader(error) and not is_stale


class PipeOutput:
    """Sends what comes from one log of the input."""

    def __init__(
        self,
        cluster: ClusterHandle,
        log: PipeLog,
        source: tuple[TopicName, PartitionId],
        into: TopicName,
        index: int,
        timeout_s: float,
        mark: Callable[[Message], None],
    ) -> None:
        """*source*: the log of the input.  *into*: the topic of the output; what comes from there
        goes to its log at *index* (`octopi.clients.piping.output_route`).  *timeout_s*: how long
        one request is tried.  *mark* stores that everything up to a message is processed."""
        self.log = log
        self._cluster = cluster
        self._source = source
        self._into = into
        self._index = index
        self._looked_at: list[PartitionId] = []
        """The logs of the output that were asked what they have."""
        self._backoff = Backoff(cluster.environment.randomness)
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
        targets, _ = await self._asked(self._find_targets)
        told = [await self._asked(partial(self._describe, one)) for one in targets]
        self._looked_at = targets
        last, place = told[0].last or NO_RECORD, None
        for one in told:
            # What a sealed log says of another owner counts as well.
            last = last if one.last is None else max(last, one.last, key=self._rank)
            if place is None and one.last is not None and one.last != NO_RECORD:
                place = InputPlace.decode(one.input) if one.input else None
                break
        self.log.found(Found(last, place, any(one.forgets for one in told)))
        if is_first and place is not None:
            await self._check_end(place)

    async def _describe(self, partition: PartitionId) -> ProducerDescription:
        topic = self._into
        return await self._cluster.router.ask_leader(
            f"find the last output of the pipe in {topic}/{partition}",
            topic,
            partition,
            lambda request: DescribeProducer(
                request, topic, partition, self.log.producer_id, False, None, True
            ),
            ProducerDescription,
            passes=may_pass_at_a_leader,
            follows_generations=True,
        )

    async def _find_targets(self) -> tuple[list[PartitionId], int]:
        """The logs of the output, the one that takes messages first, and the generation of its
        topic."""
        into = await self._cluster.lookup.topic(self._into, follows_generations=True)
        return targets_of(into, self._index), generation_of(into)

    def _rank(self, last: LastRecord) -> bool:
        """Whether *last* shows that another member has the log."""
        return last.epoch > self.log.claim

    async def _check_end(self, place: InputPlace) -> None:
        """Check that the input still has the message from which the last output comes."""
        source, partition = self._source
        find = self._cluster.router.find_offset
        end = (await self._asked(lambda: find(source, partition, "latest"))).offset
        if end < place.unit.next_offset:
            raise HistoryForkedError.of_range(source, partition, end, place.unit.next_offset)

    async def _send(self, batch: PipeBatch) -> None:
        topic = self._into
        after = None if batch.condition is None else batch.condition.after

        async def attempt() -> bool:
            targets, generation = await self._find_targets()
            if targets != self._looked_at:
                return False  # it was moved: a sealed log may have the batch
            await self._cluster.router.ask_leader(
                f"send outputs of the pipe to {topic}/{targets[0]}",
                topic,
                targets[0],
                lambda request: Produce(
                    request,
                    topic,
                    targets[0],
                    batch.records,
                    None,
                    after,
                    on_the_wire(generation),
                ),
                Produced,
                passes=_may_pass_by_this_route,
                follows_generations=True,
            )
            return True

        partition = self._looked_at[0]
        try:
            if not await self._asked(attempt):
                self.log.refuted()
                return
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
                found = await ask()
            except OctopiError as error:
                if not may_pass_at_a_leader(error) or clock.now() >= until:
                    raise
                if isinstance(error, RefusedError) and error.status is Status.STALE_ROUTE:
                    self._cluster.lookup.forget(self._into)
                await clock.sleep_until(clock.now() + self._backoff.next_s())
            else:
                self._backoff.reset()
                return found

    def _mark_done(self) -> None:
        done = self.log.take_done()
        if done is None:
            return
        message = None
        while self._messages and self._messages[0].offset <= done.offset:
            message = self._messages.popleft()
        if message is not None:
            self._mark(message)
