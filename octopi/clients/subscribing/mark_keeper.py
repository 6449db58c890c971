"""A member of a durable subscription that has all of its logs, and reads none of them.

It is for programs that read a topic by other means and know by themselves how far they are, such as
a query of Spark: it tells where each log's mark is, and stores places as marks.  Each store waits
until the marks are committed.

Only one program at a time can do that.  One that joins as the same member replaces the one before:
the claims of that one are refused from then on, also if it was cut off meanwhile and comes back.
Where a member of another name has joined, logs would be shared with it, so then nothing is stored.
Either way the error says who that is.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Final

import trio

from octopi.clients.background import background_tasks
from octopi.clients.cluster_handle import ClusterHandle
from octopi.clients.subscribing.administration import SubscriptionAdministration
from octopi.clients.subscribing.group_session import (
    AbandonLog,
    BeginLog,
    FinishLog,
    GroupEffect,
    GroupSession,
)
from octopi.clients.subscribing.kept_mark import KeptMark
from octopi.clients.subscribing.membership import Membership, MembershipOptions
from octopi.clients.subscribing.subscription_options import member_name, subscription_options
from octopi.errors import (
    HistoryForkedError,
    HistoryLostError,
    InvalidOptionError,
    MemberFencedError,
    OctopiError,
    SubscriptionBusyError,
    UnknownSubscriptionError,
)
from octopi.identifiers import Claim, MemberId, Offset, PartitionId, TopicName, topic_name
from octopi.model import SubscriptionDefinition, SubscriptionMode
from octopi.position import Place
from octopi.retry import reworded
from octopi.wire.messages import AssignmentInfo, SubscriptionMember

_ASSIGNED: Final = "assigned"
_ADVICE: Final = "stop one of the two, or give each a subscription of its own"


class MarkKeeper:
    """The member.  Made by `Client.mark_keeper`; for one task at a time."""

    def __init__(
        self,
        cluster: ClusterHandle,
        nursery: trio.Nursery,
        definition: SubscriptionDefinition,
        member: MemberId,
    ) -> None:
        self._cluster = cluster
        self._nursery = nursery
        self._definition = definition
        self._member = member
        self._administration = SubscriptionAdministration(cluster.router)
        self._membership = Membership(
            cluster,
            MembershipOptions(
                TopicName(definition.topic),
                definition.partitions[0],
                definition.sid,
                definition.name,
                take_over=False,
                session_timeout_s=definition.options.session_timeout_ms / 1000,
            ),
            GroupSession(member),
            self._perform,
            self._why_replaced,
        )
        self._marks: dict[PartitionId, KeptMark] = {}
        self._claims: dict[PartitionId, Claim] = {}
        """The newest claim of each log that this member was given."""
        self._is_disturbed = False
        """Whether a log was taken away since it was last looked who has it."""
        self._error: OctopiError | None = None
        self._news = trio.lowlevel.ParkingLot()

    # --- what the program uses ---------------------------------------------------------

    @property
    def places(self) -> dict[PartitionId, Place]:
        """Where the marks are: all messages before are processed."""
        marks = self._marks.items()
        return {partition: mark.place for partition, mark in marks if mark.place is not None}

    @property
    def losses(self) -> list[HistoryLostError | HistoryForkedError]:
        """What the logs lost before their marks, or from there on, and no member has passed yet."""
        return [mark.loss for mark in self._marks.values() if mark.loss is not None]

    async def store(self, places: Mapping[PartitionId, Place]) -> list[HistoryForkedError]:
        """Move the marks forward to *places*, and wait until that is committed.  A mark that is
        there already, or farther, stays where it is.

        Returns: errors of logs that have another history before their place than its anchor says;
        their marks were not moved.

        Raises:
          MemberFencedError: if another program keeps the marks now, or shares the logs.
          UnknownSubscriptionError: if the subscription was deleted, or has expired.
          OctopiError: what else keeps a mark from being stored; after the client's request
              time-out, the last one that could have passed.
        """
        self._check()
        waiting, forks = dict(places), []
        with self._cluster.environment.clock.timeout(self._cluster.request_timeout_s) as late:
            while waiting := {log: one for log, one in waiting.items() if not self._has(log, one)}:
                for log in waiting.keys() & self._marks.keys():
                    if (fork := self._marks[log].take_fork()) is not None:
                        forks.append(fork)
                        del waiting[log]
                if self._is_disturbed and waiting.keys() - self._marks.keys():
                    self._is_disturbed = False
                    await self._check_alone()
                elif waiting:
                    await self._news.park()
        if late.cancelled_caught:
            raise await self._why_late(waiting)
        return forks

    # --- from begin to end -------------------------------------------------------------

    async def begin(self) -> None:
        """Join, and wait until all marks are known.

        Raises:
          SubscriptionBusyError: if there are members of other names.
          OctopiError: why joining failed.
        """
        try:
            await self._check_alone()
        except MemberFencedError as error:
            raise SubscriptionBusyError(str(error)) from None
        if (why := await self._nursery.start(self._keep_membership)) is not None:
            raise why
        await self.store(dict.fromkeys(self._definition.partitions, Place(Offset(0))))

    async def finish(self) -> None:
        """Leave the group."""
        for mark in list(self._marks.values()):
            mark.end()
        await self._membership.leave()

    # --- within ------------------------------------------------------------------------

    def _has(self, partition: PartitionId, place: Place) -> bool:
        """Whether the mark is at *place* or behind it; else it is told to the log's leader."""
        self._check()
        mark = self._marks.get(partition)
        return mark is not None and mark.reaches(place)

    def _check(self) -> None:
        if self._error is not None:
            raise reworded(self._error, str(self._error))

    async def _keep_membership(
        self, *, task_status: trio.TaskStatus[OctopiError | None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        why = await self._membership.run(task_status=task_status)
        if why is None:
            return
        if isinstance(why, MemberFencedError):
            why = await self._why_replaced() or why
        self._error = why
        for mark in list(self._marks.values()):
            mark.end()
        self._news.unpark_all()

    def _perform(self, effects: Iterable[GroupEffect]) -> None:
        for effect in effects:
            match effect:
                case BeginLog(partition, claim):
                    self._claims[partition] = claim
                    mark = KeptMark(self._cluster, self._definition, self._member, effect, self)
                    self._marks[partition] = mark
                    self._nursery.start_soon(mark.run)
                case FinishLog(partition, claim):
                    self._drop(partition)
                    self._membership.perform(self._membership.session.finished(partition, claim))
                case AbandonLog(partition, _):
                    self._drop(partition)
        self._news.unpark_all()

    def _drop(self, partition: PartitionId) -> None:
        self._is_disturbed = True
        if (mark := self._marks.pop(partition, None)) is not None:
            mark.end()

    # --- what marks report -------------------------------------------------------------

    def take_news(self) -> None:
        """See `octopi.clients.subscribing.kept_mark.MarkOwner`."""
        self._news.unpark_all()

    async def restore_mark(self, partition: PartitionId) -> None:
        """See `octopi.clients.subscribing.kept_mark.MarkOwner`."""
        await self._administration.restore_mark(self._definition, partition)

    def fenced(self, mark: KeptMark) -> None:
        """See `octopi.clients.subscribing.kept_mark.MarkOwner`."""
        session = self._membership.session
        self._membership.perform(session.lost(mark.partition, mark.claim))

    # --- who else is there -------------------------------------------------------------

    async def _check_alone(self) -> None:
        """Check that no member of another name shares the logs.

        Raises:
          MemberFencedError: if one does.
        """
        definition = self._definition
        found = await self._administration.description(definition.topic, definition.name)
        others = [_who(one) for one in found.members if one.member != self._member]
        if others:
            raise MemberFencedError(
                f"{definition.topic}: the subscription {definition.name} has "
                f"{'the member' if len(others) == 1 else 'the members'} {', '.join(others)}, and "
                f"the member {self._member} needs all of its logs: {_ADVICE}"
            )

    async def _why_replaced(self) -> OctopiError | None:
        """Whether another program is this member now, as far as that can be found out.  If not,
        this one may join again: its claims are still the newest, or its logs are nobody's.

        An assignment that was lost on its way here looks like that of another program, too.  Then
        this one ends for nothing, which is better than to end the other one.
        """
        definition = self._definition
        with suppress(OctopiError):
            found = await self._administration.description(definition.topic, definition.name)
            if any(self._is_of_another(one) for one in found.assignments):
                who = [_who(one) for one in found.members if one.member == self._member]
                return MemberFencedError(
                    f"{definition.topic}: another program has joined the subscription "
                    f"{definition.name} as the same member, {', '.join(who)}, and goes on in this "
                    f"one's place: {_ADVICE}"
                )
        return None

    def _is_of_another(self, one: AssignmentInfo) -> bool:
        is_newer = one.claim > self._claims.get(one.partition, Claim(0))
        return is_newer and one.phase == _ASSIGNED and one.member == self._member

    async def _why_late(self, waiting: Iterable[PartitionId]) -> OctopiError:
        definition = self._definition
        what = f"{definition.topic}: the marks of the subscription {definition.name} in partition "
        what += f"{', '.join(map(str, sorted(waiting)))} could not be stored within "
        what += f"{self._cluster.request_timeout_s:g} s"
        for mark in self._marks.values():
            if mark.trouble is not None and mark.partition in waiting:
                return reworded(mark.trouble, f"{what}; last: {mark.trouble.args[0]}")
        await self._check_alone()
        return SubscriptionBusyError(f"{what}: the member {self._member} was not given these logs")


def _who(member: SubscriptionMember) -> str:
    return f"{member.member} ({member.name or member.agent})"


@asynccontextmanager
async def keep_marks(
    cluster: ClusterHandle, topic: str, name: str, *, member: str, start: str
) -> AsyncIterator[MarkKeeper]:
    """See `octopi.clients.client.Client.mark_keeper`."""
    static = member_name(member)
    definition = await _have(cluster, topic, name, start)
    async with background_tasks() as nursery:
        keeper = MarkKeeper(cluster, nursery, definition, static)
        await keeper.begin()
        yield keeper
        await keeper.finish()


async def _have(
    cluster: ClusterHandle, topic: str, name: str, start: str
) -> SubscriptionDefinition:
    """The subscription, as it is there, or a new one with default options."""
    administration = SubscriptionAdministration(cluster.router)
    info = await cluster.router.describe_topic(topic_name(topic))
    mode: str = SubscriptionMode.FAILOVER
    options = subscription_options(mode, 10.0, 10.0, timedelta(days=7))
    with suppress(UnknownSubscriptionError):
        there = (await administration.description(topic, name)).definition
        if there.mode != mode:
            raise InvalidOptionError(
                f"{topic}: the subscription {name} has the mode {there.mode}, and one whose marks "
                f"a program keeps by itself needs the mode {mode}: give the program a subscription "
                "of its own"
            )
        options, start = there.options, there.start
    return await administration.have(info, name, mode, options, start, "create_or_attach")
