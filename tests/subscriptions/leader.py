"""The leader of a partition that performs what its machine of subscriptions decides."""

from __future__ import annotations

from collections import deque
from typing import Any, TypeVar

from octopi.errors import Status
from octopi.identifiers import (
    Claim,
    MemberId,
    Offset,
    PartitionId,
    SubscriptionId,
    SubscriptionName,
    TopicId,
    TopicName,
)
from octopi.model import SubscriptionMode, SubscriptionOptions, SubscriptionStart
from octopi.position import Anchor
from octopi.subscriptions import effects as e
from octopi.subscriptions.partition_subscriptions import PartitionSubscriptions
from tests.subscriptions.group_world import NAME, TOPIC, TOPIC_ID, WALL_MS, SteadyLog

_T = TypeVar("_T")


class RecordingLeader:
    """Leads one partition with one topic: appends, commits when it is told to, and remembers what
    was told to each session."""

    def __init__(self, *, log: SteadyLog | None = None, partition: int = 0) -> None:
        self.partition = PartitionId(partition)
        self.log: SteadyLog | None = log or SteadyLog(100)
        self.now = 0.0
        self.committed: dict[str, Any] = {}
        self.appended: deque[e.AppendState] = deque()
        self.append_count = 0
        self.told: dict[int, list[Any]] = {}
        self.letters: list[e.AppendLetter] = []
        self.wanting: set[SubscriptionId] = set()
        """Queues that want messages."""
        self.numbers = 0
        self.machine = self._machine()

    def _machine(self) -> PartitionSubscriptions:
        return PartitionSubscriptions(
            self.partition,
            self.committed,
            log_of=lambda _: self.log,
            new_id=lambda: f"{self.session():016x}",
            now=self.now,
            wall_ms=WALL_MS + round(self.now * 1000),
        )

    def session(self) -> int:
        self.numbers += 1
        return self.numbers

    def perform(self, effects: list[e.Effect], *, commit: bool = True) -> None:
        """Do what the machine wants; *commit*: and have all of it committed."""
        for effect in effects:
            if isinstance(effect, e.AppendState):
                self.appended.append(effect)
                self.append_count += 1
            elif isinstance(effect, e.AppendLetter):
                self.letters.append(effect)
            elif isinstance(effect, e.WantMessages):
                self.wanting.add(effect.sid)
            else:
                self.told.setdefault(effect.session, []).append(effect)
        while commit and self.appended:
            self.commit_one()

    def commit_one(self) -> None:
        state = self.appended.popleft()
        if state.value is None:
            self.committed.pop(state.key, None)
        else:
            self.committed[state.key] = state.value
        self.perform(list(state.then), commit=False)
        self.perform(self.machine.committed(state.key, self.now), commit=False)

    @property
    def committed_mark(self) -> int:
        """The least mark that is committed."""
        marks = [value for key, value in self.committed.items() if key.startswith("k/")]
        return min(int(one["mark"]) for one in marks)

    def change(self) -> None:
        """Another leader, with what is committed."""
        self.appended.clear()
        self.machine = self._machine()

    def pass_time(self, seconds: float) -> None:
        """Let time pass, and do what is due, at the time when it is."""
        until = self.now + seconds
        while (due_at := self.machine.due_at) is not None and due_at <= until:
            self.now = max(self.now, due_at)
            self.perform(self.machine.tick(self.now))
        self.now = until

    def last(self, session: int, kind: type[_T]) -> _T:
        """The newest answer of that kind."""
        return [one for one in self.told.get(session, []) if isinstance(one, kind)][-1]

    def is_done(self, session: int) -> bool:
        """Whether it was answered that what was asked for is committed."""
        return any(isinstance(one, e.TellDone) for one in self.told.get(session, []))

    def refusal(self, session: int) -> Status:
        """Why the request was refused, or its session ended."""
        found = [
            one.status
            for one in self.told.get(session, [])
            if isinstance(one, e.TellRefused | e.TellDetached)
        ]
        assert found, self.told.get(session)
        status: Status = found[-1]
        return status

    # --- requests ------------------------------------------------------------------------

    def create(
        self,
        name: str = NAME,
        *,
        mode: str = SubscriptionMode.FAILOVER,
        options: SubscriptionOptions | None = None,
        partitions: tuple[int, ...] = (0,),
        create: str = "create",
        topic_id: TopicId = TOPIC_ID,
    ) -> int:
        session = self.session()
        effects = self.machine.create_subscription(
            session,
            name=SubscriptionName(name),
            topic=TOPIC,
            topic_id=topic_id,
            partitions=[PartitionId(one) for one in partitions],
            mode=mode,
            options=options or SubscriptionOptions(),
            start=SubscriptionStart.EARLIEST,
            create=create,
            now=self.now,
        )
        self.perform(effects)
        return session

    def open_marks(
        self,
        sid: SubscriptionId,
        start: str = SubscriptionStart.EARLIEST,
        options: SubscriptionOptions | None = None,
        name: SubscriptionName = NAME,
        topic: TopicName = TOPIC,
        mode: str = SubscriptionMode.FAILOVER,
    ) -> int:
        session = self.session()
        effects = self.machine.open_marks(
            session,
            sid,
            name=name,
            mode=mode,
            options=options or SubscriptionOptions(),
            start=start,
            topic=topic,
            topic_id=TOPIC_ID,
            now=self.now,
        )
        self.perform(effects)
        return session

    def ready(
        self,
        *,
        mode: str = SubscriptionMode.FAILOVER,
        options: SubscriptionOptions | None = None,
        partitions: tuple[int, ...] = (0,),
    ) -> SubscriptionId:
        """A subscription, with its mark here."""
        session = self.create(mode=mode, options=options, partitions=partitions)
        sid = self.last(session, e.TellDescription).definition.sid
        self.open_marks(sid, options=options, mode=mode)
        self.perform(self.machine.finish_subscription(self.session(), sid))
        return sid

    def join(
        self,
        sid: SubscriptionId,
        member: str = "",
        *,
        static: bool = False,
        held: tuple[tuple[int, int], ...] = (),
        take_over: bool = False,
    ) -> int:
        session = self.session()
        effects = self.machine.join_group(
            session,
            sid,
            MemberId(member),
            static=static,
            held=[(PartitionId(log), Claim(claim)) for log, claim in held],
            take_over=take_over,
            now=self.now,
        )
        self.perform(effects)
        return session

    def logs(self, session: int) -> list[tuple[int, int]]:
        """All that a member was told that it has."""
        told = [one for one in self.told.get(session, []) if isinstance(one, e.TellAssigned)]
        return [log for one in told for log in one.logs]

    def attach(self, sid: SubscriptionId, claim: int, *, commit: bool = True) -> int:
        session = self.session()
        effects = self.machine.attach(session, sid, MemberId("m"), Claim(claim), self.now)
        self.perform(effects, commit=commit)
        return session

    def mark(
        self,
        session: int,
        offset: int,
        confirm: int | None = None,
        *,
        commit: bool = True,
        anchor: str = "",
    ) -> None:
        effects = self.machine.mark(
            session, Offset(offset), self.now, confirm=confirm, anchor=Anchor(anchor)
        )
        self.perform(effects, commit=commit)

    def marked(self, sid: SubscriptionId) -> e.TellMarks:
        session = self.session()
        self.perform(self.machine.describe_marks(session, sid))
        return self.last(session, e.TellMarks)
