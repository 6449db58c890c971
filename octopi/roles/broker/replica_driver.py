"""The shell of one `PartitionReplica`: passes events to it and performs its effects in order.

Events are handled one after another.  While an effect waits for the device, later effects and
events wait behind it, so the machine's decisions and the disk stay consistent.  An event whose
effects don't wait is handled within the call: a produce to the page cache starts no task.

When the disk fails, the replica stops leading and following: waiting requests are refused, and the
register is asked for another leader.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import attrs
import trio

from octopi.conditions import Condition
from octopi.environment import Environment
from octopi.errors import (
    CorruptLogError,
    DiskFullError,
    OctopiError,
    ProtocolError,
    Status,
    StorageError,
)
from octopi.identifiers import NO_EPOCH, BrokerId, Incarnation, Offset, PartitionId, TopicId
from octopi.logger import get_logger
from octopi.replication.effects import (
    Answer,
    Append,
    AppendReplicated,
    Effect,
    FindDuplicate,
    FlushLog,
    FollowLeader,
    Forward,
    OnLog,
    PartitionEffect,
    PublishHighwater,
    Refusal,
    RefuseCut,
    Reply,
    Restart,
    SetAside,
    StoreEpochs,
    StoreState,
    SyncLogs,
    ToBroker,
    ToRegister,
    Truncate,
)
from octopi.replication.log_leader import LogLeader
from octopi.replication.partition_replica import PartitionReplica, Role
from octopi.roles.broker.duplicate_lookup import answer_repetition
from octopi.roles.broker.effect_retries import EffectRetries
from octopi.roles.broker.local_log import LocalLog
from octopi.roles.broker.log_requests import LogRequests
from octopi.roles.broker.received_records import scan_produced, scan_replicated
from octopi.roles.broker.refusals import refusal_of
from octopi.roles.broker.replica_ports import ReplicaPorts
from octopi.roles.broker.replica_state import state_fields, stored_state
from octopi.roles.broker.resignation import Resignation
from octopi.storage import checkpoint
from octopi.wire.messages import AlterInSync, Replicate

if TYPE_CHECKING:
    from octopi.roles.broker.replica_tracer import ReplicaTracer

_log = get_logger(__name__)

LEADER_LACKS: Final = "a leader lacks committed records"
"""The log event of a broker that keeps committed records although its leader asked to cut them."""

_WAITING: Final = (SyncLogs, StoreState)
_WAITING_ON_LOG: Final = (StoreEpochs, Truncate, SetAside, Restart)

Event = Callable[[], list[PartitionEffect]]


class ReplicaDriver:
    """One partition on this broker."""

    def __init__(
        self,
        environment: Environment,
        path: str,
        partition: PartitionId,
        broker: BrokerId,
        incarnation: Incarnation,
        logs: dict[TopicId, LocalLog],
        peers: ReplicaPorts,
        tasks: trio.Nursery,
        *,
        lost_power: bool,
    ) -> None:
        """Read the partition's stored state, whose file of ends exists by now.  Call `begin` next.

        Raises:
          StorageError: if the state can't be read.
        """
        self.partition = partition
        self.logs = logs
        self.failure: StorageError | None = None
        """Why the replica doesn't lead or follow any more; None: it does."""
        self._environment = environment
        self.path = path
        """The path of the replica's state file."""
        self._peers = peers
        self._tasks = tasks
        self._effects: deque[PartitionEffect] = deque()
        self._events: deque[Event] = deque()
        self._busy = False
        self._idle = trio.Event()
        self._role = Role.IDLE
        self._retries = EffectRetries()
        self._served_epoch = self._able_epoch = NO_EPOCH
        self.is_fenced = False
        """Whether the controller did not let it serve clients when that was looked at last."""
        self._looks_at_fence = False
        self.machine = PartitionReplica(
            partition,
            broker,
            incarnation,
            attrs.evolve(stored_state(environment, self.path), ends=True),
            {topic_id: log.state for topic_id, log in logs.items()},
            lost_power=lost_power,
        )
        self._resignation = Resignation(self.machine, peers)
        self._tracer: ReplicaTracer | None = None
        if (trace := environment.trace) is not None:
            from octopi.roles.broker.replica_tracer import ReplicaTracer

            self._tracer = ReplicaTracer(trace, partition, self.machine)
        self._requests = LogRequests(self.machine, peers, self._tracer)
        for log in logs.values():
            log.replica = self

    # --- events ----------------------------------------------------------------------

    def submit(self, event: Event) -> None:
        """Have the machine handle *event*, now or after the events that wait."""
        self._events.append(event)
        if not self._busy:
            self._drain()

    def produce(
        self,
        log: LocalLog,
        records: bytes,
        answer: Answer,
        condition: Condition | None = None,
        generation: int = 1,
    ) -> None:
        """Append *records* if *condition* holds, and the log takes those of *generation*; *answer*
        is called once, now or later.

        Raises:
          RefusedError: if the records are not valid.
        """
        found = scan_produced(records)
        self.submit(self._requests.produced(log, records, found, answer, condition, generation))

    def append_made(
        self, log: LocalLog, make: Callable[[LogLeader], bytes | Offset], answer: Answer
    ) -> None:
        """Append the records that *make* returns.  It is called when all earlier appends are in the
        log.  *answer* is called once, now or later.

        If *make* returns an offset, the answer comes when the batch there is committed; if it
        returns no records, at once, with the log's end.  An `OctopiError` of it is a refusal.
        """
        self.submit(self._requests.made(log, make, answer))

    def replicate(self, message: Replicate) -> None:
        """Handle records of the leader.

        Raises:
          RefusedError: if the records are not valid, so they changed on the way.
        """
        found = scan_replicated(message)

        def receive() -> list[PartitionEffect]:
            follower, log = self.machine.follower, self.logs.get(TopicId(message.topic_id))
            if log is not None and follower is not None and follower.expects(message):
                log.received(message.offset, message.generation)
            return self.machine.receive(message, found)

        self.submit(receive)

    def add_log(self, log: LocalLog) -> None:
        """Add a log that was made on this broker."""
        self.logs[log.topic_id] = log
        log.epoch = self._served_epoch
        log.replica = self
        self.submit(lambda: self.machine.add_log(log.topic_id, log.state))

    def remove_log(self, topic_id: TopicId) -> None:
        """Remove the log of a topic that was deleted."""
        self.logs.pop(topic_id, None)
        self.submit(lambda: self.machine.remove_log(topic_id))

    def require(self, topic_id: TopicId, count: int, *, flush: bool) -> None:
        """See `octopi.replication.partition_replica.PartitionReplica.require`."""
        self.submit(lambda: self.machine.require(topic_id, count, flush=flush))

    def joined(self) -> None:
        """The register has let this incarnation of the broker in: send again what is sent only
        once, as the last connection may have lost it."""
        self.submit(self.machine.joined)
        self._resignation.repeat()

    def look_at_fence(self) -> None:
        """Serve clients, or don't, as the controller says now (`ControllerLink.fence`).  Producers
        that wait when this broker loses its right to serve are told that nothing is committed."""
        self.submit(self._fenced)

    def _fenced(self) -> list[PartitionEffect]:
        self._looks_at_fence = True
        fence = self._peers.fence(self.partition)
        return [] if fence is None else self._stop_waiting(fence.reason)

    def flushed(self, topic_id: TopicId, durable_end: Callable[[], Offset]) -> None:
        """See `FlushListener`."""
        is_to_change = self._retries.change  # then what is to be cut may be durable
        flushed = self.machine.flushed
        self.submit(lambda: [] if is_to_change(topic_id) else flushed(topic_id, durable_end()))

    def flush_failed(self, error: StorageError) -> None:
        """The disk failed during a flush."""
        self.submit(lambda: self._failed(error))

    @property
    def is_settled(self) -> bool:
        """Whether the effects of all events so far have been performed, including those on the
        device."""
        return not (self._busy or self._events or self._effects or self._retries.effects)

    async def settled(self) -> None:
        """Wait until the effects of all events so far have been performed."""
        while self._busy or self._events:
            if self._idle.is_set():
                self._idle = trio.Event()
            await self._idle.wait()

    # --- effects ---------------------------------------------------------------------

    def _drain(self) -> None:
        """Perform the effects that don't wait."""
        while not self._busy:
            if not self._effects:
                if not self._events:
                    break
                # The next event may rely on state that holds only once its own effects are
                # performed.
                retries = self._retries
                again = retries.in_order(self.machine.state) if retries.effects else []
                try:
                    effects = self._events.popleft()()
                    self._effects.extend([*again, *effects])
                except ProtocolError as error:
                    # The message came from a peer, perhaps an earlier one: it has no effect.
                    _log.sparing(self._environment.clock).warning(
                        "peer refused", partition=self.partition, why=str(error)
                    )
                if (audit := self._environment.audit) is not None:
                    audit(self.machine)
                self._note_role()
                continue
            effect = self._effects.popleft()
            if isinstance(effect, _WAITING) or (
                isinstance(effect, OnLog) and isinstance(effect.effect, _WAITING_ON_LOG)
            ):
                self._busy = True
                self._tasks.start_soon(self._perform_waiting, effect)
            else:
                if self._retries.effects:
                    self._done(effect)
                # The effects that follow from an effect are performed next.
                self._effects.extendleft(reversed(self._perform(effect)))
        self._idle.set()

    async def _perform_waiting(self, effect: PartitionEffect) -> None:
        try:
            follow_up = await self._wait_for(effect)
        except StorageError as error:
            follow_up = []
            is_news = self._retries.add(effect)
            self._drop_effects(error)
            self._effects.extend(self._failed(error, is_news=is_news))
        else:
            self._done(effect)
        self._effects.extendleft(reversed(follow_up))
        self._busy = False
        self._drain()

    def _done(self, effect: PartitionEffect) -> None:
        if self._retries.done(effect):
            self._peers.follow_anew(self.partition)

    def _drop_effects(self, error: StorageError) -> None:
        """Drop the effects behind one that failed, and refuse the requests that wait for them."""
        dropped, self._effects = self._effects, deque()
        for effect in dropped:
            if isinstance(effect, OnLog) and isinstance(effect.effect, Append | Reply):
                effect.effect.answer(Refusal(Status.UNCOMMITTED, str(error)))
            else:
                self._retries.add_following(effect)

    async def _wait_for(self, effect: PartitionEffect) -> list[PartitionEffect]:
        tracer = self._tracer
        after = tracer.before(effect, self.logs, self.failure) if tracer is not None else None
        follow_up = await self._do_on_device(effect)
        if after is not None:
            after()
        return follow_up

    async def _do_on_device(self, effect: PartitionEffect) -> list[PartitionEffect]:
        match effect:
            case StoreState(state):
                await checkpoint.store(self._environment.disk, self.path, state_fields(state))
            case SyncLogs():
                follow_up: list[PartitionEffect] = []
                for topic_id, log in list(self.logs.items()):
                    end = await log.flush()
                    follow_up += self.machine.flushed(topic_id, end)
                return follow_up
            case OnLog(topic_id, effect_on_log):
                known = self.logs.get(topic_id)
                if known is None:
                    return []
                match effect_on_log:
                    case StoreEpochs():
                        await known.store_checkpoint()
                    case SetAside(refill):
                        await known.set_aside(refill=refill)
                        return self.machine.set_aside(topic_id)
                    case Truncate(end, keeps):
                        given_up = "records that were given up are cut"
                        _log.warning(
                            given_up if keeps else "uncommitted records are cut",
                            topic=known.topic.topic,
                            partition=self.partition,
                            log_end=end,
                        )
                        await known.truncate(end, keeps=keeps)
                    case Restart(start):
                        await known.restart(start)
        return []

    def _perform(self, effect: PartitionEffect) -> list[PartitionEffect]:
        tracer = self._tracer
        after = tracer.before(effect, self.logs, self.failure) if tracer is not None else None
        try:
            follow_up = self._do(effect)
        except OctopiError as error:
            return self._not_done(effect, error)
        if after is not None:
            after()
        return follow_up

    def _do(self, effect: PartitionEffect) -> list[PartitionEffect]:
        match effect:
            case OnLog(topic_id, effect_on_log):
                log = self.logs.get(topic_id)
                if log is not None:
                    return self._do_on_log(log, effect_on_log)
                if isinstance(effect_on_log, Reply):
                    effect_on_log.answer(Refusal(Status.NOT_LEADER, "the topic was deleted"))
            case ToRegister(AlterInSync() as change) if not self.machine.may_propose(change):
                pass  # decided earlier, and delayed by the device
            case ToRegister(message):
                self._peers.to_register(message)
            case ToBroker(broker, to_broker):
                self._peers.to_broker(self.partition, broker, to_broker)
            case FollowLeader(leader):
                self._peers.follow(self.partition, leader)
        return []

    def _do_on_log(self, log: LocalLog, effect: Effect) -> list[PartitionEffect]:
        follow_up: list[Effect] = []
        match effect:
            case Append(records, found, answer):
                leader = self.machine.log_leader(log.topic_id)
                if self.failure is not None:
                    raise self.failure
                base = log.append(records, found)
                if self._resignation.is_refusing:
                    self._resignation.withdraw()
                self._peers.produced(len(records))
                follow_up = leader.appended(base, found, answer)
            case AppendReplicated(records, found):
                log.append(records, found)
                return self.machine.replicated(log.topic_id, found)
            case FlushLog():
                log.want_flush()
            case FindDuplicate():
                follow_up = answer_repetition(self.machine, log, effect, self._tasks, self.submit)
            case Forward():
                log.wake()
            case RefuseCut(keep):
                log.refused_cuts += 1
                _log.error(
                    LEADER_LACKS,
                    topic=log.topic.topic,
                    partition=self.partition,
                    highwater=log.highwater,
                    leader_keeps=keep,
                    why=log.fault_text,
                )
            case PublishHighwater(offset):
                log.publish(offset)
            case Reply(answer, content):
                answer(content)
        return [OnLog(log.topic_id, one) for one in follow_up]

    def _not_done(self, effect: PartitionEffect, error: OctopiError) -> list[PartitionEffect]:
        """The effects that follow when *effect* has failed with *error*."""
        match effect:
            case OnLog(topic_id, Append(_, _, answer)):
                return [OnLog(topic_id, Reply(answer, self._append_failed(error)))]
            case OnLog(_, AppendReplicated()) if isinstance(error, StorageError):
                if isinstance(error, DiskFullError):
                    # The disk may have space again later: a new session begins at the log end.
                    self._peers.disk_refused(error)
                    self._peers.follow_anew(self.partition)
                else:
                    self._fail(error)
                    self._peers.stop_following(self.partition)
                return []
        raise error

    def _append_failed(self, error: OctopiError) -> Refusal:
        """The refusal for the producer."""
        if isinstance(error, DiskFullError):
            self._peers.disk_refused(error)
            self._resignation.resign(error)
        elif isinstance(error, StorageError) and not isinstance(error, CorruptLogError):
            self._fail(error)  # one damaged log doesn't affect the others
        if self._resignation.has_resigned:
            # Nothing was appended, and another leader will take the records.
            return Refusal(Status.NOT_READY, f"another replica will lead: {error}")
        return refusal_of(error)

    # --- role ------------------------------------------------------------------------

    def _note_role(self) -> None:
        """Serve consumers only while this replica leads, or agrees with its leader."""
        machine = self.machine
        if (tracer := self._tracer) is not None:
            tracer.decided()
        agrees = machine.follower is not None and machine.follower.agrees
        serves = machine.role == Role.LEADER or (machine.role == Role.FOLLOWER and agrees)
        able_epoch = machine.state.promised if serves else NO_EPOCH
        if able_epoch != self._able_epoch or self._looks_at_fence:
            self._able_epoch, self._looks_at_fence = able_epoch, False
            self.is_fenced = self._peers.fence(self.partition) is not None
        epoch = NO_EPOCH if self.is_fenced else able_epoch
        if epoch != self._served_epoch:
            self._served_epoch = epoch
            for log in self.logs.values():
                log.epoch = epoch
                log.wake()
        if machine.role != self._role:
            self._role = machine.role
            if machine.role != Role.FOLLOWER:
                self._peers.stop_following(self.partition)

    @property
    def leads(self) -> bool:
        """Whether this broker leads the partition."""
        return self.machine.role == Role.LEADER and self.failure is None

    def _fail(self, error: StorageError) -> None:
        """The disk failed: no further acknowledgement is possible, and waiting requests are refused
        next."""
        self._effects.extend(self._failed(error))

    def _failed(self, error: StorageError, *, is_news: bool = True) -> list[PartitionEffect]:
        if is_news:
            self._peers.disk_refused(error)
        if self.failure is None and not isinstance(error, DiskFullError):
            self.failure = error  # a full disk may have space again later
        if self.machine.leader is None:
            return []
        self._resignation.resign(error)
        return self._stop_waiting(str(error))

    def _stop_waiting(self, reason: str) -> list[PartitionEffect]:
        """Refuse all requests that wait for a commit because of *reason*."""
        if self.machine.leader is None:
            return []
        return [
            OnLog(topic_id, effect)
            for topic_id, leader in self.machine.leader.logs.items()
            for effect in leader.stop(reason)
        ]
