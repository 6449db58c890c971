"""The durable subscriptions of one partition while this broker leads it.

It gives requests to the machine (`octopi.subscriptions.partition_subscriptions`) and performs what
that wants.  What is appended is told, and the machine hears of it, when it is committed.  If an
entry is not known to be committed, the machine may know more than later leaders will: then all
sessions end, and another machine begins with what is in the log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Final, Protocol, TypeAlias

import attrs
import trio

from octopi.environment import Environment
from octopi.errors import (
    STATUS_MEANINGS,
    InvalidOptionError,
    NeedsTimeError,
    NotLeaderError,
    NotReadyError,
    OctopiError,
    RefusedError,
    Status,
    StorageError,
)
from octopi.identifiers import Offset, PartitionId, TopicId
from octopi.limits import HAND_OVER_TIMEOUT_S
from octopi.logger import get_logger
from octopi.metrics.subscription_counts import SubscriptionCounts
from octopi.position import checked_anchor
from octopi.replication.effects import CommitReceipt, Refusal
from octopi.roles.broker.subscriptions.dealing import PartitionQueues
from octopi.roles.broker.subscriptions.effect_counter import EffectCounter
from octopi.roles.broker.subscriptions.led_log import LedLog
from octopi.roles.broker.subscriptions.place_proofs import PlaceProofs
from octopi.roles.broker.subscriptions.ports import Leadership, StateLogs
from octopi.roles.broker.subscriptions.subscription_tracer import SubscriptionTracer
from octopi.storage.time_slices import in_groups
from octopi.subscriptions.effects import (
    AppendLetter,
    AppendState,
    DealMessages,
    Effect,
    Session,
    TellDetached,
    Told,
    WantMessages,
)
from octopi.subscriptions.entries import StoredSubscriptions
from octopi.subscriptions.log_queue import Answers
from octopi.subscriptions.partition_subscriptions import PartitionSubscriptions
from octopi.tracing.step import Step

_log = get_logger(__name__)

_AGAIN_S: Final = 1.0
"""After this it is tried again to read what is stored, and then after twice as long each time."""
_AGAIN_S_MAX: Final = 60.0

Call: TypeAlias = Callable[[PartitionSubscriptions, Session, float], list[Effect]]
"""One method of the machine, given the session and the time."""


@attrs.frozen
class _Committed:
    """The oldest appended entry of a key is committed."""

    state: AppendState


class SessionOwner(Protocol):
    """A request, and where its answers go."""

    def tell(self, effect: Effect) -> None:
        """Answer it; *effect* names the session of the request."""

    def end(self, session: Session, error: OctopiError) -> None:
        """The session has ended without an answer of the machine."""


class LedPartition:
    """One leadership's subscriptions."""

    def __init__(
        self,
        environment: Environment,
        leadership: Leadership,
        states: StateLogs,
        next_session: Callable[[], Session],
        counts: SubscriptionCounts,
        tasks: trio.Nursery,
    ) -> None:
        """*counts*: where the broker counts.  *tasks*: the broker's nursery."""
        self.leadership = leadership
        self.partition: PartitionId = leadership.partition
        self._environment = environment
        self._states = states
        self._next_session = next_session
        trace = environment.trace
        self.tracer = trace and SubscriptionTracer(trace, self.partition, leadership.epoch)
        """For an observer of this broker, if there is one."""
        self.counter = EffectCounter(counts, self.partition)
        self._machine: PartitionSubscriptions | None = None
        self._fault: StorageError | None = None
        self._queues = PartitionQueues(environment, self, tasks)
        self._proofs = PlaceProofs(tasks)
        self._owners: dict[Session, SessionOwner] = {}
        self._work: deque[Effect | _Committed] = deque()
        self._is_working = False
        self._topics: dict[TopicId, int] = {}
        """Those with subscriptions or marks here whose logs were there, with the ``min_insync`` of
        each."""
        self._without_log: set[TopicId] = set()
        """Those with subscriptions or marks here whose logs were not there yet."""
        self._min_insync = 1
        """The greatest of `_topics`."""
        self._appended_count = self._committed_count = 0
        """Entries of this leadership."""
        self._committed = trio.lowlevel.ParkingLot()
        """Tasks that wait for entries to be committed."""
        self._stores_until = 0.0
        """Each mark is stored at once until then (monotonic, s): another broker is to lead."""
        self.has_ended = False
        """No request is taken any more; if this broker leads on, another one begins."""

    async def begin(self) -> None:
        """Read what is stored; until then requests are refused: with NOT_READY, or with INTERNAL
        while it can't be read, which is tried again and again."""
        # An earlier leadership of this broker may have asked for more, for a topic that is gone.
        self._states.require_in_sync(self.partition, self._min_insync)
        clock = self._environment.clock
        wait_s = _AGAIN_S
        while not self._is_over():
            try:
                await self._load()
            except NotLeaderError:
                self.end()
            except StorageError as error:
                if self._fault is None:
                    _log.error("no subscriptions", partition=self.partition, why=str(error))
                self._fault = error
                await clock.sleep_until(clock.now() + wait_s)
                wait_s = min(2 * wait_s, _AGAIN_S_MAX)
            else:
                break
        if self._fault is not None and self._machine is not None:
            self._fault = None
            _log.info("subscriptions again", partition=self.partition)

    async def _load(self) -> None:
        """Begin the machine with what is stored.

        Raises:
          NotLeaderError: if this broker doesn't lead the partition any more.
          StorageError: if what is stored can't be read.
        """
        loaded = await self._states.load(self.partition)
        stored = StoredSubscriptions()
        for some in in_groups(list(loaded.values.items())):
            for key, value in some:
                stored.add(key, value)
            await trio.lowlevel.checkpoint()
        if self._is_over():
            return
        if self.tracer is not None:
            self.tracer.loaded(loaded.values)
        self.counter.loaded(stored.marks)
        clock = self._environment.clock
        machine = PartitionSubscriptions(
            self.partition,
            {},
            log_of=self._log_of,
            new_id=lambda: self._environment.randomness.token_bytes(8).hex(),
            now=clock.now(),
            wall_ms=clock.wall_ms(),
        )
        for _ in machine.restore(stored, clock.now()):
            await trio.lowlevel.checkpoint()
        if self._is_over():
            return
        for topic_id in machine.topic_ids:
            self._note_topic(topic_id)
        self._machine = machine

    def _is_over(self) -> bool:
        if not self.has_ended and self.leadership.is_over:
            self.end()
        return self.has_ended

    def _log_of(self, topic_id: TopicId) -> LedLog | None:
        log = self.leadership.log(topic_id)
        return None if log is None else LedLog(log, self._proofs)

    # --- requests ------------------------------------------------------------------------

    @property
    def machine(self) -> PartitionSubscriptions:
        """The machine, for looking.

        Raises:
          NotLeaderError: if this broker doesn't lead the partition any more.
          NotReadyError: if the machine has yet to begin.
          RefusedError: INTERNAL, if what is stored can't be used.
        """
        if self._is_over():
            raise self.leadership.redirect()
        if self._fault is not None:
            reason = f"no subscription of partition {self.partition} can be served: {self._fault}"
            raise RefusedError(reason[:900], Status.INTERNAL)
        if self._machine is None:
            raise NotReadyError(
                f"the new leader of partition {self.partition} has yet to read its subscriptions"
            )
        return self._machine

    def ask(self, owner: SessionOwner, call: Call) -> Session:
        """Have the machine decide about a request; return its session.

        Raises:
          RefusedError: as `machine`.
        """
        machine, session = self.machine, self._next_session()
        effects = call(machine, session, self._environment.clock.now())
        self._owners[session] = owner
        self.perform(effects)
        return session

    def take_mark(self, session: Session, offset: Offset, anchor: str, confirm: int | None) -> None:
        """The member that attached with *session* has processed everything below *offset*; see
        `octopi.subscriptions.partition_subscriptions.PartitionSubscriptions.mark`.

        Raises:
          RefusedError: as `machine`.
        """
        machine, tracer = self.machine, self.tracer
        sid = machine.subscription_of(session)
        edges = None if tracer is None or sid is None else tracer.take(sid, offset, confirm)
        now = self._environment.clock.now()

        def mark() -> None:
            try:
                known = checked_anchor(anchor)
                effects = machine.mark(session, offset, now, confirm=confirm, anchor=known)
            except (InvalidOptionError, NeedsTimeError) as error:
                is_early = isinstance(error, NeedsTimeError)
                # Told NOT_READY, a member attaches again, and tells its mark again.
                status = Status.NOT_READY if is_early else Status.INVALID_OPTION
                effects = machine.session_ended(session, now)
                effects.append(TellDetached(session, status, str(error)))
            self.perform(effects)

        self.traced(edges, mark)

    def take_answers(
        self, session: Session, answers: Answers, number: int, *, confirm: bool
    ) -> None:
        """The member of a queue that attached with *session* answers; see
        `octopi.subscriptions.partition_subscriptions.PartitionSubscriptions.settle`.

        Raises:
          RefusedError: as `machine`.
        """
        machine, tracer = self.machine, self.tracer
        sid, edges = machine.subscription_of(session), None
        if tracer is not None and sid is not None:
            edges = tracer.answer(sid, session, answers, number if confirm else None)
        now = self._environment.clock.now()
        self.traced(
            edges,
            lambda: self.perform(machine.settle(session, answers, number, now, confirm=confirm)),
        )

    def note_seen(self, session: Session, seen: Collection[tuple[Offset, int]]) -> None:
        """Tell an observer that a queue's member, which attached with *session*, leaves, and which
        deliveries (offset and attempt) its program was given."""
        if self.tracer is None or self._machine is None or self._is_over():
            return
        if (sid := self._machine.subscription_of(session)) is not None:
            self.tracer.leave(sid, session, seen)

    def close(self, session: Session) -> None:
        """The request of *session* is over."""
        if self._owners.pop(session, None) is not None and self._machine is not None:
            now = self._environment.clock.now()
            self.perform(self._machine.session_ended(session, now))

    def forget(self, session: Session) -> None:
        """The same, where the machine knows."""
        self._owners.pop(session, None)

    # --- effects -------------------------------------------------------------------------

    def perform(self, effects: Sequence[Effect | _Committed]) -> None:
        """Do what the machine wants, in its order."""
        self._work.extend(effects)
        if self._is_working:
            return
        self._is_working = True
        try:
            while (self._work or self._store_at_once()) and not self.has_ended:
                self._do(self._work.popleft())
        finally:
            self._is_working = False
        if not self._is_over():
            self._queues.go_on()
        if (audit := self._environment.audit) is not None and self._machine is not None:
            audit(self._machine)

    def _store_at_once(self) -> bool:
        """Have marks stored, if another broker is to lead; return whether there are any."""
        now = self._environment.clock.now()
        if self._machine is None or now >= self._stores_until or self.has_ended:
            return False
        self._work.extend(self._machine.store_all(now))
        return bool(self._work)

    def _do(self, one: Effect | _Committed) -> None:
        match one:
            case _Committed(state):
                tracer = self.tracer
                edges = None if tracer is None else tracer.commit(state)
                self.traced(edges, lambda: self._do_committed(state))
            case AppendState():
                self._append(one)
            case AppendLetter():
                self._queues.append_letter(one)
            case WantMessages():
                self._queues.want(one)
            case DealMessages():
                # The machine has dealt them, even if their member is gone already.
                owner = self._owners.get(one.session)
                edges = None if self.tracer is None else self.tracer.deal(one)
                self.traced(edges, lambda: None if owner is None else owner.tell(one))
            case _:
                owner = self._owners.get(one.session)
                if owner is not None:
                    self.traced(self._telling(one), lambda: owner.tell(one))

    def _do_committed(self, state: AppendState) -> None:
        """What waited for the commit of *state*."""
        assert self._machine is not None
        self.counter.committed(state, self._machine.identity_of)
        for effect in state.then:
            self._do(effect)
        self._work.extend(self._machine.committed(state.key, self._environment.clock.now()))
        self._committed_count += 1
        self._committed.unpark_all()

    def _telling(self, effect: Told) -> tuple[Step, Step] | None:
        if self.tracer is None or self._machine is None:
            return None
        session = effect.session
        sid, member = self._machine.subscription_of(session), self._machine.member_of(session)
        return self.tracer.tell(effect, sid, member)

    def traced(self, edges: tuple[Step, Step] | None, do: Callable[[], None]) -> None:
        """Do it, and tell the observer of both edges."""
        if edges is None or self.tracer is None:
            do()
            return
        self.tracer.trace(edges[0])
        do()
        self.tracer.trace(edges[1])

    def _append(self, state: AppendState) -> None:
        kind, _, ids = state.key.partition("/")
        if state.value is not None and kind in "sk":
            topic_id = ids.rpartition("/")[2] if kind == "k" else state.value["topic_id"]
            self._note_topic(TopicId(topic_id))
        self._appended_count += 1
        done = partial(self._appended, state)
        edges = None if self.tracer is None else self.tracer.append(state)
        self.traced(
            edges, lambda: self._states.append(self.partition, state.key, state.value, done)
        )

    def _appended(self, state: AppendState, answer: CommitReceipt | Refusal) -> None:
        if self.has_ended:
            return
        if isinstance(answer, Refusal):
            meaning = STATUS_MEANINGS[answer.status]
            # That leaders change and replicas are missing is said elsewhere, and so is a full disk.
            is_ordinary = meaning.retryable or meaning.look_up
            say = _log.info if is_ordinary else _log.error
            say("state not stored", partition=self.partition, why=answer.reason)
            self.end()
        else:
            self.perform([_Committed(state)])

    def _note_topic(self, topic_id: TopicId) -> None:
        """What is kept of a topic needs as many replicas in sync as its records."""
        if topic_id in self._topics:
            return
        if (log := self.leadership.log(topic_id)) is None:
            self._without_log.add(topic_id)
            return
        self._without_log.discard(topic_id)
        self._topics[topic_id] = log.topic.options.min_insync
        self._require_in_sync()

    def _require_in_sync(self) -> None:
        count = max(self._topics.values(), default=1)
        if count != self._min_insync:
            self._min_insync = count
            self._states.require_in_sync(self.partition, count)

    def _look_at_topics(self, machine: PartitionSubscriptions) -> None:
        """See which logs have come and gone."""
        for topic_id in list(self._without_log):
            self._note_topic(topic_id)
        for topic_id in self._topics:
            if (log := self.leadership.log(topic_id)) is not None:  # it may have been altered
                self._topics[topic_id] = log.topic.options.min_insync
        self._require_in_sync()
        gone = [one for one in self._without_log if self.leadership.is_removed(one)]
        gone += [one for one in self._topics if self.leadership.log(one) is None]
        for topic_id in gone:
            self._topics.pop(topic_id, None)
            self._without_log.discard(topic_id)
            self._require_in_sync()
            self.perform(machine.topic_removed(topic_id))
            if self.has_ended:
                return

    # --- what happens --------------------------------------------------------------------

    def look(self, now: float) -> None:
        """Do what is due, and see whether the leadership has ended, or topics have gone."""
        if self._is_over() or (machine := self._machine) is None:
            return
        self._look_at_topics(machine)
        if (due_at := machine.due_at) is not None and due_at <= now and not self.has_ended:
            self.perform(machine.tick(now))

    async def store_all(self) -> None:
        """Have all marks committed, and those that come next stored at once: another broker is to
        lead."""
        if self._machine is None or self._is_over():
            return
        now = self._environment.clock.now()
        self._stores_until = now + HAND_OVER_TIMEOUT_S
        self.perform(self._machine.store_all(now))
        # What comes meanwhile is not waited for: a busy member would have it take for ever.
        count = self._appended_count
        while not self.has_ended and self._committed_count < count:
            await self._committed.park()

    def end(self) -> None:
        """The leadership has ended, or nothing is known for sure any more."""
        if self.has_ended:
            return
        self.has_ended = True
        self._queues.end()
        self.counter.ended()
        self._committed.unpark_all()
        self._work.clear()
        owners, self._owners = self._owners, {}
        error: OctopiError = NotReadyError(
            f"the leader of partition {self.partition} could not store what it decided: ask again"
        )
        if self.leadership.is_over:
            error = self.leadership.redirect()
        for session, owner in owners.items():
            owner.end(session, error)
