"""The follower of one log, in one epoch and one session with its leader.

First the two logs are made to agree: the leader finds where they diverge, from the epoch histories
alone, and the follower cuts its own log there.  From then on the follower's log is a prefix of the
leader's, so the offsets that it acknowledges, and the highwater marks that it is sent, refer to the
same records.  Before that, the follower acknowledges nothing and ignores highwater marks, because
below the mark it may hold records that were never committed.
"""

from __future__ import annotations

from octopi.errors import ProtocolError
from octopi.identifiers import Epoch, Offset
from octopi.record import Scan
from octopi.replication.effects import (
    AcknowledgeEnd,
    AppendReplicated,
    Effect,
    FlushLog,
    PublishHighwater,
    RefuseCut,
    Restart,
    StoreEpochs,
    Truncate,
)
from octopi.replication.log_state import LogState
from octopi.replication.prior_state import PriorState


class LogFollower:
    """Follows one log.

    Invariant: nothing is acknowledged before the logs agree, nothing beyond the log's end, and, if
    records count only on the device, nothing beyond what is durable.
    """

    __slots__ = ("_acknowledged", "_durable", "_told", "agrees", "epoch", "log")

    def __init__(self, epoch: Epoch, log: LogState, *, durable: bool) -> None:
        """*durable*: acknowledge only what is on the device, whatever the topic asks for."""
        self.epoch = epoch
        self.log = log
        self.agrees = False
        """Whether this log is a prefix of the leader's."""
        self._durable = durable or log.flush_before_ack
        self._acknowledged = Offset(-1)
        self._told = Offset(0)

    def followed(
        self,
        keep: Offset,
        begin: Offset,
        past: PriorState | None = None,
        *,
        loss_accepted: bool = False,
    ) -> list[Effect]:
        """The leader answered: the logs agree below *keep*, and it sends records from *begin* on,
        which isn't before *keep*.  If it is behind *keep*, *past* is about the records before it.

        Committed records are never cut because a leader lacks them: the log stays as it is, and is
        not followed in this session.  There is one exception.  *loss_accepted*: an operator has
        accepted the loss of records since this log agreed with a leader; so they are cut, and kept
        beside the log.

        Raises:
          ProtocolError: if the leader's answer doesn't fit this log.
        """
        if self.agrees:
            return []  # the answer came twice
        log = self.log
        is_empty = log.start == log.end
        # The leader sends its prior state if its log starts behind what both agree on.
        has_other_past = keep < begin and past is not None and past.epochs != log.epochs
        if is_empty:
            # A log without records can't differ from the leader's, whatever its epochs are.
            keep = log.end
        if keep > log.end or (begin < keep and not is_empty):
            raise ProtocolError(
                f"the leader keeps up to {keep} of a log that ends at {log.end}, and goes on at "
                f"{begin}"
            )
        gives_up = keep < log.highwater
        if gives_up and not loss_accepted:
            log.refusal = (
                f"this replica knows that records up to offset {log.highwater} are committed, and "
                f"the leader has only those before {keep}: nothing was cut; to keep them, stop the "
                "leader's broker, and if no replica in sync has them have this one lead with "
                "`octopi-node partitions recover`, which shows first who would; or, if they may be "
                "lost, start this broker with an empty data directory"
            )
            return [RefuseCut(keep)]
        log.refusal = ""
        effects: list[Effect] = []
        log.accept_loss(keep)
        # The history may end with an epoch that has no records.
        changes = log.epochs.truncate(keep)
        if keep < log.end:
            log.truncate(keep)
            effects.append(Truncate(keep, gives_up))
        restarts = begin != keep or (is_empty and has_other_past)
        if restarts:
            log.restart(begin, past or PriorState())
            effects.append(Restart(begin))
        if changes or restarts:
            effects.append(StoreEpochs())
        self.agrees = True
        return effects + self._acknowledge()

    def receive(
        self, offset: Offset, records_epoch: Epoch, records: bytes, scan: Scan, highwater: Offset
    ) -> list[Effect]:
        """The leader sent *records* of one epoch, from *offset* on (step 3), with its highwater
        mark.  Records that don't continue the log are ignored: they came twice, or records before
        them were lost, and then a new session has to begin.

        Raises:
          ProtocolError: if *records_epoch* is older than the newest epoch in the log.
        """
        if not self.agrees:
            return []
        self._told = max(self._told, highwater)
        if not scan.count or offset != self.log.end:
            return self._advance()
        if records_epoch < self.log.epochs.latest:
            raise ProtocolError(
                f"the leader sent records of epoch {records_epoch} behind those of epoch "
                f"{self.log.epochs.latest}"
            )
        effects: list[Effect] = []
        if self.log.epochs.begin(records_epoch, offset):
            # If a restart lost the epoch of records, they would count as those of an older one.
            effects.append(StoreEpochs())
        effects.append(AppendReplicated(records, scan))
        return effects

    def replicated(self, scan: Scan) -> list[Effect]:
        """The received records, which *scan* describes, are appended (steps 4 and 8)."""
        log = self.log
        log.sequences.note(scan, log.end)
        log.end = Offset(log.end + scan.valid_bytes)
        return self._acknowledge() + self._advance()

    def flushed(self, end: Offset) -> list[Effect]:
        """The log is durable below *end*."""
        self.log.flushed(end)
        return self._acknowledge() if self._durable else []

    def require(self, *, durable: bool) -> list[Effect]:
        """*durable*: whether to acknowledge only what is on the device, from now on."""
        self._durable = durable or self.log.flush_before_ack
        return self._acknowledge()

    def _acknowledge(self) -> list[Effect]:
        """Acknowledge the log up to what counts, if that is more than before."""
        log = self.log
        if not self.agrees:
            return []
        end = log.flushed_end if self._durable else log.end
        effects: list[Effect] = []
        if end > self._acknowledged:
            self._acknowledged = end
            effects.append(AcknowledgeEnd(end))
        if end < log.end:
            effects.append(FlushLog())
        return effects

    def _advance(self) -> list[Effect]:
        """Take over the leader's highwater mark, up to the end of this log."""
        highwater = min(self._told, self.log.end)
        if highwater <= self.log.highwater:
            return []
        self.log.highwater = highwater
        return [PublishHighwater(highwater)]

    def check_invariants(self) -> None:
        """Assert what the class promises."""
        self.log.check_invariants()
        assert self._acknowledged <= self.log.end
        assert self.agrees or self._acknowledged < 0
