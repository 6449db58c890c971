"""The leader of one log: appends batches, commits them, and answers producers.

It does no I/O: calls are events, and results are lists of effects (`octopi.replication.effects`)
that the shell performs in order.  A record is committed when the leader and all other required
replicas hold it: in the page cache, or on the device if the topic asks for that.  The leader of the
partition (`octopi.replication.partition_leader`) says which replicas are required; with one replica
there are no others.
"""

from __future__ import annotations

from collections import deque

import attrs

from octopi.conditions import NO_RECORD, Condition, LastRecord
from octopi.errors import Status
from octopi.identifiers import BrokerId, Epoch, Offset, TopicId
from octopi.record import Scan
from octopi.replication.effects import (
    Answer,
    Append,
    CommitReceipt,
    Effect,
    FindDuplicate,
    FlushLog,
    Forward,
    PublishHighwater,
    Refusal,
    Reply,
    StoreEpochs,
)
from octopi.replication.generation_seals import GenerationSeal
from octopi.replication.log_state import LogState
from octopi.replication.producer_fences import ProducerFences
from octopi.replication.producer_sequences import Duplicate, Refused, Repeated


@attrs.frozen
class _Refuted:
    """A request whose condition doesn't hold, because of records that are not committed yet."""

    end: Offset
    """The log's end when it came."""
    refusal: Refusal
    answer: Answer


@attrs.frozen
class _Waiting:
    """An appended batch whose sender waits for the commit."""

    end: Offset
    receipt: CommitReceipt
    answer: Answer


class LogLeader:
    """Leads one log in one epoch.

    Invariant: the highwater mark and the log's end never go back while it leads; all waiting
    batches end above the highwater mark, and they are in the order of the log.
    """

    # A node may lead many thousands of logs; slots save a dictionary of attributes for each.
    # fmt: off
    __slots__ = (
        "_acknowledged", "_durable", "_fenced", "_in_sync_count", "_others", "_refuted",
        "_replicated", "_settled_together_below", "_waiting", "epoch", "fences", "log",
        "seal", "started_at",
    )
    # fmt: on

    def __init__(self, epoch: Epoch, log: LogState, *, replicated: bool = False) -> None:
        """*replicated*: whether there are other replicas; `require` says which are required."""
        self.epoch = epoch
        self.log = log
        self.started_at = log.end
        """Where this epoch's records begin.  The leader keeps its whole log, since records before
        this may be committed even if they are behind its own highwater mark."""
        self._replicated = replicated
        self._others: frozenset[BrokerId] = frozenset()
        self._in_sync_count = 1
        self._durable = log.flush_before_ack
        self._acknowledged: dict[BrokerId, Offset] = {}
        self._waiting: list[_Waiting] = []
        self._refuted: deque[_Refuted] = deque()
        self.fences: ProducerFences | None = None
        """The fences of producers in this log; None: none are kept."""
        self.seal: GenerationSeal | None = None
        """The seal of this log; None: none is kept."""
        self._fenced: dict[TopicId, LogState] | None = None
        """Of an internal log: the logs of topics whose fences or seals were appended to it."""
        self._settled_together_below = log.end
        """The ends of batches before this offset are not known: a repetition of one of them is
        acknowledged when everything before this offset is committed."""

    # --- producing -------------------------------------------------------------------

    def receive(
        self,
        records: bytes,
        scan: Scan,
        answer: Answer,
        condition: Condition | None = None,
        generation: int = 1,
    ) -> list[Effect]:
        """A producer sent valid *records*, which *scan* describes (step 1), to the log of this
        *generation* of the topic.  They are appended only if *condition* holds, but a repetition is
        acknowledged in any case."""
        if self._in_sync_count < (least := self._min_insync):
            reason = f"{self._in_sync_count} of at least {least} replicas are in sync"
            return [Reply(answer, Refusal(Status.NOT_READY, reason))]
        if not scan.runs:
            return self._receive_version_1(records, scan, answer, condition, generation)
        run = scan.runs[0]
        if len(scan.runs) > 1 or run.count != scan.count:
            return [
                Reply(
                    answer,
                    Refusal(
                        Status.MALFORMED_RECORD,
                        "one request carries records of one producer, in sequence, and of one "
                        "version",
                    ),
                )
            ]
        fence = self.fences.epoch(run.producer_id) if self.fences is not None else None
        if fence is not None and run.producer_epoch < fence:
            reason = f"a later life of the producer has begun, with epoch {fence} behind "
            reason += f"{run.producer_epoch}"
            return [Reply(answer, Refusal(Status.PRODUCER_FENCED, reason))]
        verdict = self.log.sequences.check(run)
        if (
            (seal := self.seal) is not None
            and generation < seal.least_generation(self.log)
            and self.log.sequences.lacks(run)
        ):
            return self._refuse_generation(answer)
        if isinstance(verdict, Refused):
            return [Reply(answer, Refusal(verdict.status, verdict.reason))]
        if isinstance(verdict, Duplicate):
            if verdict.skip and verdict.offset < self.log.start:
                reason = "the records are stored, and those before them are gone by now: where is"
                return [Reply(answer, Refusal(Status.RECEIPT_FORGOTTEN, f"{reason} not known"))]
            return [FindDuplicate(verdict.offset, verdict.skip, answer)]
        if generation > max(1, self.log.generation):
            return self._refuse_early(generation, answer)
        return self._append(records, scan, answer, condition)

    def _receive_version_1(
        self,
        records: bytes,
        scan: Scan,
        answer: Answer,
        condition: Condition | None,
        generation: int,
    ) -> list[Effect]:
        verdict = self.log.sequences.check_requests(scan.requests)
        if isinstance(verdict, Refused):
            return [Reply(answer, Refusal(verdict.status, verdict.reason))]
        if isinstance(verdict, Repeated):
            return self._answer_again(verdict.first, verdict.last, answer)
        if self.seal is not None and generation < self.seal.least_generation(self.log):
            return self._refuse_generation(answer)
        if generation > max(1, self.log.generation):
            return self._refuse_early(generation, answer)
        return self._append(records, scan, answer, condition)

    def _refuse_early(self, generation: int, answer: Answer) -> list[Effect]:
        """Refuse records of a generation that isn't in force by the topic's record here.  The
        record has the sealed end, and readers of earlier generations get nothing behind it."""
        reason = f"this broker was not told yet that generation {generation} is in force"
        return [Reply(answer, Refusal(Status.NOT_READY, reason))]

    def _refuse_generation(self, answer: Answer) -> list[Effect]:
        reason = "the topic has, or is about to have, other partitions: nothing was stored"
        return [Reply(answer, Refusal(Status.STALE_ROUTE, reason))]

    def _append(
        self, records: bytes, scan: Scan, answer: Answer, condition: Condition | None
    ) -> list[Effect]:
        if self.log.sequences.is_closed:
            reason = "the topic was closed: it takes no more messages"
            return [Reply(answer, Refusal(Status.TOPIC_CLOSED, reason))]
        if condition is not None and (reason := self._refutes(condition, scan)):
            return self._refuse_once_committed(reason, answer)
        append = Append(records, scan, answer)
        # If a restart lost the epoch of records, they would count as those of an older one.
        begins = self.log.epochs.begin(self.epoch, self.log.end)
        return [StoreEpochs(), append] if begins else [append]

    def _refutes(self, condition: Condition, scan: Scan) -> str:
        """Why *condition* doesn't hold for the records of *scan*; empty: it holds."""
        log = self.log
        if condition.expected_end is not None and condition.expected_end != log.end:
            return f"the log ends at {log.end}, not at {condition.expected_end}"
        if condition.after is not None:
            if not scan.runs:
                return "records of version 1 have no sequences, so they come after none"
            last = log.sequences.last_record(scan.runs[0].producer_id)
            if condition.after != last:
                return f"the newest record of the producer is {_named(last)}, not " + _named(
                    condition.after
                )
        return ""

    def _refuse_once_committed(self, reason: str, answer: Answer) -> list[Effect]:
        """Refuse a request whose condition doesn't hold, when all that the log holds now is
        committed.  Records that are taken back refute nothing, and whoever is told the log's end
        can read up to there."""
        refusal = Refusal(Status.CONDITION_FAILED, reason, self.log.end)
        if self.log.end <= self.log.highwater:
            return [Reply(answer, refusal)]
        self._refuted.append(_Refuted(self.log.end, refusal, answer))
        return []

    def appended(self, base: Offset, scan: Scan, answer: Answer) -> list[Effect]:
        """The batch is appended at *base* (step 2)."""
        log = self.log
        assert base == log.end, "batches are appended one behind the other"
        log.sequences.note(scan, base)
        log.end = Offset(base + scan.valid_bytes)
        self._waiting.append(_Waiting(log.end, CommitReceipt(base, self.epoch, False), answer))
        effects: list[Effect] = [Forward(log.end)] if self._replicated else []
        if self._durable:
            effects.append(FlushLog())
        return effects + self._commit()

    def found_duplicate(self, offset: Offset, answer: Answer) -> list[Effect]:
        """The records of a repeated request begin at *offset*.  Acknowledge them with the same
        receipt as the first time, when all of them are committed."""
        return self._answer_again(offset, offset, answer)

    def _answer_again(self, offset: Offset, last: Offset, answer: Answer) -> list[Effect]:
        """Acknowledge a repetition of records that begin at *offset* as soon as the batch at *last*
        is committed."""
        receipt = CommitReceipt(offset, self.log.epochs.epoch_at(offset), True)
        end = self._end_of_batch(last)
        if end <= self.log.highwater:
            return [Reply(answer, receipt)]
        at = sum(waiting.end <= end for waiting in self._waiting)
        self._waiting.insert(at, _Waiting(end, receipt, answer))
        return []

    def _end_of_batch(self, offset: Offset) -> Offset:
        """An offset at or behind the end of the batch at *offset*: once everything before it is
        committed, that batch is."""
        if offset < self._settled_together_below:
            return self._settled_together_below
        for waiting in self._waiting:
            if waiting.receipt.offset <= offset < waiting.end:
                return waiting.end
        return self.log.highwater  # no producer waits for that batch: it is committed

    def flushed(self, end: Offset) -> list[Effect]:
        """The log is durable below *end*."""
        self.log.flushed(end)
        return self._commit()

    def stop(self, reason: str) -> list[Effect]:
        """This replica leads no more, or can't go on: refuse all waiting producers because of
        *reason*.

        Their records may still be committed later; when producers repeat them, they find out.
        """
        effects: list[Effect] = [
            Reply(waiting.answer, Refusal(Status.UNCOMMITTED, reason)) for waiting in self._waiting
        ]
        self._waiting.clear()
        self._settled_together_below = self.log.end
        # Nothing of these was appended, and whether their conditions hold is not decided.
        effects += [Reply(one.answer, Refusal(Status.NOT_READY, reason)) for one in self._refuted]
        self._refuted.clear()
        return effects

    # --- committing ------------------------------------------------------------------

    def require(
        self, others: frozenset[BrokerId], in_sync_count: int, *, durable: bool
    ) -> list[Effect]:
        """From now on a commit requires the acknowledgements of *others*, and, if *durable*, that
        the leader's own records are on the device.  *in_sync_count* is the size of the confirmed
        in-sync set."""
        self._others = others
        self._in_sync_count = in_sync_count
        self._durable = durable or self.log.flush_before_ack
        effects: list[Effect] = []
        if self._durable and self.log.flushed_end < self.log.end:
            effects.append(FlushLog())
        return effects + self._commit()

    def begin_fences(self, topic_id: TopicId, log: LogState) -> None:
        """From now on this internal log needs as many replicas in sync as *log*, of that topic: a
        fence in that log is appended next."""
        if self._fenced is None:
            self._fenced = {}
        self._fenced[topic_id] = log

    def end_fences(self, topic_id: TopicId) -> list[Effect]:
        """The topic is gone: what it asked for does not count any more."""
        if self._fenced is None or self._fenced.pop(topic_id, None) is None:
            return []
        return self._commit()

    @property
    def _min_insync(self) -> int:
        """Nothing is committed while fewer replicas than this are in sync."""
        if not self._fenced:
            return self.log.min_insync
        return max(self.log.min_insync, *(one.min_insync for one in self._fenced.values()))

    def acknowledged(self, broker: BrokerId, end: Offset) -> list[Effect]:
        """*broker* holds the log up to *end*: it has acknowledged that in its present session
        (step 4)."""
        assert end <= self.log.end
        if end <= self._acknowledged.get(broker, Offset(-1)):
            return []
        self._acknowledged[broker] = end
        return self._commit()

    def forget(self, broker: BrokerId) -> None:
        """A session of *broker* was replaced: its acknowledgements don't count any more."""
        self._acknowledged.pop(broker, None)

    def acknowledged_end(self, broker: BrokerId) -> Offset | None:
        """Up to which offset *broker* has acknowledged in its session; None: not at all."""
        return self._acknowledged.get(broker)

    @property
    def joining_end(self) -> Offset:
        """Up to which offset a follower must hold the log to become in sync.  The highwater mark
        alone would not suffice: a new leader's mark may be below what older epochs committed."""
        return max(self.log.highwater, self.started_at)

    def knows_end(self, highwater: Offset) -> bool:
        """Whether *highwater*, the mark that readers see, is at or behind the end of what older
        epochs acknowledged.  That is so once the leader has committed, and published, the records
        that it had at the beginning of its epoch (as in Kafka's KIP-207)."""
        return highwater >= self.started_at

    def _commit(self) -> list[Effect]:
        """Advance the highwater mark to the smallest end among the required replicas, then answer
        the producers whose batches are committed (steps 5 to 7)."""
        log = self.log
        if self._in_sync_count < self._min_insync:
            return []
        end = log.flushed_end if self._durable else log.end
        for broker in self._others:
            end = min(end, self._acknowledged.get(broker, Offset(0)))
        if end <= log.highwater:
            return []
        log.highwater = end
        effects: list[Effect] = [PublishHighwater(end)]
        settled = 0
        for waiting in self._waiting:
            if waiting.end > end:
                break
            settled += 1
            effects.append(Reply(waiting.answer, waiting.receipt))
        del self._waiting[:settled]
        while self._refuted and self._refuted[0].end <= end:
            refuted = self._refuted.popleft()
            effects.append(Reply(refuted.answer, refuted.refusal))
        return effects

    def check_invariants(self) -> None:
        """Assert what the class promises."""
        self.log.check_invariants()
        assert self.started_at <= self.log.end
        ends = [waiting.end for waiting in self._waiting]
        assert ends == sorted(ends)
        assert all(self.log.highwater < end <= self.log.end for end in ends)
        ends = [refuted.end for refuted in self._refuted]
        assert ends == sorted(ends)
        assert all(self.log.highwater < end <= self.log.end for end in ends)
        assert all(end <= self.log.end for end in self._acknowledged.values())


def _named(last: LastRecord) -> str:
    """*last* in a reason."""
    return "none" if last == NO_RECORD else f"sequence {last.sequence} of epoch {last.epoch}"
