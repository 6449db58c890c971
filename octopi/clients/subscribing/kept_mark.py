"""The mark of one log, which a program moves that reads the log by other means."""

from __future__ import annotations

from typing import Protocol

import trio

from octopi.clients.cluster_handle import ClusterHandle
from octopi.clients.subscribing.group_session import BeginLog
from octopi.clients.subscribing.leader_session import LeaderSession
from octopi.clients.subscribing.mark_session import AttachRemedy, attach_remedy
from octopi.errors import (
    HistoryForkedError,
    HistoryLostError,
    OctopiError,
    OffsetOutOfRangeError,
    ProtocolError,
)
from octopi.identifiers import MemberId, PartitionId, TopicName
from octopi.model import SubscriptionDefinition
from octopi.position import Anchor, Place
from octopi.retry import reworded
from octopi.wire.messages import Attach, Attached, Detach, Mark, Marked


class MarkOwner(Protocol):
    """The keeper, as its marks see it."""

    def take_news(self) -> None:
        """A mark was committed, or can't be."""

    async def restore_mark(self, partition: PartitionId) -> None:
        """See `SubscriptionAdministration.restore_mark`."""

    def fenced(self, mark: KeptMark) -> None:
        """The log's leader knows a newer claim."""


class KeptMark:
    """The mark of one log, with one claim to it.

    Each place that is told to the leader is to be answered when it is committed.  A connection that
    ended before that is made anew, and the leader then tells the mark that is committed.
    """

    def __init__(
        self,
        cluster: ClusterHandle,
        definition: SubscriptionDefinition,
        member: MemberId,
        begun: BeginLog,
        owner: MarkOwner,
    ) -> None:
        self.partition = begun.partition
        """Of the topic."""
        self.claim = begun.claim
        """With which the member has the log."""
        self._sid = definition.sid
        self._topic = TopicName(definition.topic)
        self._member = member
        self._owner = owner
        self._link = LeaderSession(cluster, self._topic, self.partition, self._restore)
        self._scope = trio.CancelScope()
        self.place: Place | None = None
        """The newest mark that is known to be committed; None: it is not known yet."""
        self.loss: HistoryLostError | HistoryForkedError | None = None
        """What is gone of the log, as the leader told when it was attached to."""
        self.trouble: OctopiError | None = None
        """Why there is no attachment at present; it may pass."""
        self._fault: OctopiError | None = None
        """Why there will be none."""
        self._fork: HistoryForkedError | None = None
        """Why the place that was told last was refused."""
        self._is_attached = False
        self._number = 0
        self._asked: Place | None = None
        """The place that was told last on this attachment, as `_number`; None: it is committed."""

    def reaches(self, place: Place) -> bool:
        """Whether the mark is at *place* or behind it; else it is told to the leader.

        Raises:
          OctopiError: why that is not possible.
        """
        if self._fault is not None:
            raise reworded(self._fault, str(self._fault))
        if not self._is_attached or self.place is None or self._fork is not None:
            return False
        if self.place.offset >= place.offset:
            return True
        if self._asked is None or self._asked.offset < place.offset:
            self._number += 1
            self._asked, number = place, self._number
            self._link.post(lambda request: Mark(request, place.offset, True, number, place.anchor))
        return False

    def take_fork(self) -> HistoryForkedError | None:
        """Why the place was refused that was told last, if it was."""
        fork, self._fork = self._fork, None
        return fork

    def end(self) -> None:
        """Store nothing more."""
        self._scope.cancel()

    async def run(self) -> None:
        """Stay attached to the log's leader, until `end`, or until the claim is refused."""
        with self._scope:
            while True:
                try:
                    await self._link.run(self._question, self._take, Detach)
                except OctopiError as error:
                    if not await self._go_on(error):
                        return

    async def _go_on(self, error: OctopiError) -> bool:
        """Whether to attach again, after *error*."""
        self._is_attached, self._asked, self.trouble = False, None, error
        remedy = attach_remedy(error)
        if remedy is AttachRemedy.LOST:
            self._owner.fenced(self)
            return False
        if remedy is AttachRemedy.BEGIN_AGAIN or isinstance(error, OffsetOutOfRangeError):
            self._fork = HistoryForkedError(f"{self._topic}/{self.partition}: {error.args[0]}")
            self._owner.take_news()
        elif remedy is AttachRemedy.STOP:
            self._fail(error)
            return False
        try:
            await self._link.before_again(error)
        except OctopiError as unrestored:
            self._fail(unrestored)
            return False
        return True

    def _fail(self, why: OctopiError) -> None:
        self._fault = why
        self._owner.take_news()

    async def _restore(self, partition: PartitionId) -> None:
        await self._owner.restore_mark(partition)
        self.loss = HistoryForkedError(
            f"{self._topic}/{partition}: all replicas have lost the mark, and what they held: it "
            "begins again where the log begins"
        )

    def _question(self, request: int) -> Attach:
        return Attach(request, self._topic, self.partition, self._sid, self._member, self.claim)

    def _take(self, message: object) -> None:
        match message:
            case Attached():
                self._attached(message)
            case Marked(_, number):
                if number == self._number and self._asked is not None:
                    self.place, self._asked = self._asked, None
            case _:
                raise ProtocolError(f"{type(message).__name__} is no part of an attachment")
        self._owner.take_news()

    def _attached(self, message: Attached) -> None:
        self._is_attached, self.trouble = True, None
        self.place = Place(message.mark, Anchor(message.anchor))
        if message.lost_from is None or message.lost_to is None:
            return
        where = self._topic, self.partition
        if message.mark < message.log_start:
            self.loss = HistoryLostError(*where, message.lost_from, message.lost_to)
        else:
            self.loss = HistoryForkedError.of_range(*where, message.mark, message.lost_to)
