"""The follower of a partition: one session with its leader, for all logs.

A session begins when a stream to the leader is open, and ends with the stream.  Messages name their
session; a message of an earlier session is late and changes nothing.
"""

from __future__ import annotations

from octopi.errors import ProtocolError
from octopi.identifiers import BrokerId, Epoch, Incarnation, Offset, TopicId
from octopi.record import Scan
from octopi.replication.effects import (
    AcknowledgeEnd,
    Effect,
    OnLog,
    PartitionEffect,
    ToBroker,
)
from octopi.replication.log_follower import LogFollower
from octopi.replication.log_state import LogState
from octopi.replication.prior_state import PriorState, epoch_starts
from octopi.wire.messages import (
    Acknowledge,
    EpochStart,
    Follow,
    Followed,
    PartitionRecord,
    Replicate,
)


class PartitionFollower:
    """Follows all logs of one partition in one epoch and one session.

    Invariant: every log has a `LogFollower` of its own in that epoch.
    """

    def __init__(
        self,
        record: PartitionRecord,
        broker: BrokerId,
        incarnation: Incarnation,
        attempt: int,
        *,
        durable: bool,
        loss_accepted: bool = False,
    ) -> None:
        """Begin session *attempt* with the leader in *record*.  *durable*: acknowledge only
        what is on the device.  *loss_accepted*: an operator has accepted the loss of records since
        the logs last agreed with a leader."""
        self.leader = record.leader
        self.partition = record.partition
        self.epoch = Epoch(record.epoch)
        self.logs: dict[TopicId, LogFollower] = {}
        self._unsettled: set[TopicId] = set()
        """Logs that are not known to be a prefix of the leader's."""
        self._broker = broker
        self._incarnation = incarnation
        self._attempt = attempt
        self._durable = durable
        self._loss_accepted = loss_accepted

    def wait_for(self, topic_id: TopicId, log: LogState) -> None:
        """Note a log that can't be followed yet; `add_log` is called when it can."""
        self.logs[topic_id] = LogFollower(self.epoch, log, durable=self._durable)
        self._unsettled.add(topic_id)

    def add_log(self, topic_id: TopicId, log: LogState) -> list[PartitionEffect]:
        """Begin to follow a log."""
        self.wait_for(topic_id, log)
        return [self._follow(topic_id, epoch_starts(log.epochs), log.end)]

    def follow_without_logs(self) -> list[PartitionEffect]:
        """Follow a partition that has no log yet.  A replica without logs lacks nothing, so it can
        be in sync."""
        return [self._follow("", [], Offset(0))]

    def _follow(self, topic_id: str, epochs: list[EpochStart], log_end: Offset) -> ToBroker:
        session = (self._broker, self._incarnation, self._attempt)
        message = Follow(self.partition, self.epoch, *session, topic_id, epochs, log_end)
        return ToBroker(self.leader, message)

    def remove_log(self, topic_id: TopicId) -> None:
        """The topic is gone."""
        self.logs.pop(topic_id, None)
        self._unsettled.discard(topic_id)

    @property
    def agrees(self) -> bool:
        """Whether every log is a prefix of the leader's."""
        return not self._unsettled

    def followed(self, message: Followed) -> list[PartitionEffect]:
        """The leader answered where a log diverges from its own.

        Raises:
          ProtocolError: if the answer doesn't fit the log, or names an epoch that has not begun.
        """
        log = self._log(message)
        if log is None:
            return []
        for begun in message.epochs:
            _check_epoch(message, begun.epoch)
        effects = log.followed(
            Offset(message.keep),
            Offset(message.begin),
            PriorState.told(message),
            loss_accepted=self._loss_accepted,
        )
        if log.agrees:
            self._unsettled.discard(TopicId(message.topic_id))
        return self._on_log(message.topic_id, effects)

    def expects(self, message: Replicate) -> bool:
        """Whether *message* belongs to a log, and to the present session with the leader."""
        return self._log(message) is not None

    def receive(self, message: Replicate, scan: Scan) -> list[PartitionEffect]:
        """The leader sent records, which *scan* describes; they are valid.

        Raises:
          ProtocolError: if they are of an epoch that does not fit the log, or has not begun.
        """
        log = self._log(message)
        if log is None:
            return []
        _check_epoch(message, message.records_epoch)
        effects = log.receive(
            Offset(message.offset),
            Epoch(message.records_epoch),
            message.records,
            scan,
            Offset(message.highwater),
        )
        return self._on_log(message.topic_id, effects)

    def replicated(self, topic_id: TopicId, scan: Scan) -> list[PartitionEffect]:
        """The records that were received are appended."""
        log = self.logs.get(topic_id)
        return self._on_log(topic_id, log.replicated(scan)) if log else []

    def flushed(self, topic_id: TopicId, end: Offset) -> list[PartitionEffect]:
        """A log is durable below *end*."""
        return self._on_log(topic_id, self.logs[topic_id].flushed(end))

    def require_again(self, topic_id: TopicId) -> list[PartitionEffect]:
        """The `LogState.flush_before_ack` of a log has changed: apply it to acknowledgements."""
        log = self.logs.get(topic_id)
        return self._on_log(topic_id, log.require(durable=self._durable)) if log else []

    def require_durable(self, durable: bool) -> list[PartitionEffect]:
        """*durable*: whether to acknowledge only what is on the device, from now on."""
        self._durable = durable
        return [
            effect
            for topic_id, log in self.logs.items()
            for effect in self._on_log(topic_id, log.require(durable=durable))
        ]

    def _log(self, message: Followed | Replicate) -> LogFollower | None:
        """The log's follower to which *message* belongs; None: it is late, or the log is gone."""
        session = (message.epoch, message.incarnation, message.attempt)
        if session != (self.epoch, self._incarnation, self._attempt):
            return None
        return self.logs.get(TopicId(message.topic_id))

    def _on_log(self, topic_id: str, effects: list[Effect]) -> list[PartitionEffect]:
        """*effects* as effects on a log; an acknowledgement becomes a message to the leader."""
        return [
            self._acknowledgement(topic_id, effect.end)
            if isinstance(effect, AcknowledgeEnd)
            else OnLog(TopicId(topic_id), effect)
            for effect in effects
        ]

    def _acknowledgement(self, topic_id: str, end: Offset) -> ToBroker:
        message = Acknowledge(
            self.partition,
            self.epoch,
            self._broker,
            self._incarnation,
            self._attempt,
            topic_id,
            end,
        )
        return ToBroker(self.leader, message)

    def check_invariants(self) -> None:
        """Assert what the class promises."""
        for log in self.logs.values():
            assert log.epoch == self.epoch
            log.check_invariants()
        assert self._unsettled == {one for one, log in self.logs.items() if not log.agrees}


def _check_epoch(message: Followed | Replicate, records_epoch: int) -> None:
    """Check that a leader, which sent *message*, has records of that epoch: one that has not begun
    would stay in the log's history, and no later leader could take it.

    Raises:
      ProtocolError: if it hasn't.
    """
    if records_epoch > message.epoch:
        raise ProtocolError(
            f"the leader told of records of epoch {records_epoch}, and leads in epoch "
            f"{message.epoch}"
        )
