"""The state of one producer for one log: its batches, their sequences, and what is sent again.

This machine decides, and `octopi.clients.producing.log_sender` performs.  Events are the method
calls; `advance` tells the machine the time and returns the effects, in order.  The machine knows no
connection, no clock and no task.

The states of a batch are::

    waiting  --sent-->  unanswered  --answered or refused for good-->  settled
       ^                   |   ^
       |  (new epoch)      |   |  sent again, the same bytes, after a lost
       +-------------------+   +- connection or a refusal that may pass

**Sequences.**  A batch gets its sequences when it is first sent, so a batch that is dropped before
that leaves no gap.  After that its bytes never change within the producer epoch, and the broker
recognises a repetition by producer id, epoch and sequence.

**Certainly not stored.**  The broker appends a producer's records in sequence or not at all.
Suppose that a batch is *known* not to be stored, and is never sent again.  Then no batch behind it
in that epoch can be stored either, not even by a copy that is still on its way.  So the batches
behind it start over in a new producer epoch.  Conversely, an answer that never came, or a refusal
that can come after an append (see `StatusMeaning.before_append`), leaves a batch *maybe stored*;
if no later answer settles it, its sender gets `OutcomeUnknownError`.

**Silence.**  While the leader leaves a request unanswered, `AskLeader` has the driver ask whether
it still leads.  If another broker does, the driver calls `disconnected`, and sends there again.

**Conditions.**  One with a condition is on its way alone; if refused, the next has its sequences.

**Deadlines.**  An unanswered batch whose time is up is reported, but stays in the queue while a
batch behind it may still be delivered, because the broker appends that one only after the records
with the sequences before it.  When only such batches are left they are dropped, and the next batch
begins a new epoch, which fences every copy of them.

**Generations.**  A topic that gets other partitions is in another generation
(`octopi.coordination.generations`).  The log's leader refuses what was chosen by the former one:
`supersede`.  What was sent is settled *there*, stored or certainly not, before anything goes to
another log: so no message is stored twice, and a key's messages keep their order.  A refusal says
*certainly not* only if the leader was named by a register that had the later generation in force.
Before that the seal of the log may be lost with its leader, and the next one could take a copy that
is still on its way.  Then `take_waiting` has what is left, in order.

**Named producers.**  Another life of the producer may choose epochs, too, so a named producer never
chooses one: `BeginEpoch` has the leader begin each epoch, the first one as well.  Batches wait
until `began` tells its number.
"""

from __future__ import annotations

import math

from octopi.clients.producing.batches import Batch, Stored, check_batches, refutation, verdict
from octopi.clients.producing.effects import (
    AskLeader,
    BeginEpoch,
    Effect,
    Fenced,
    FindLeader,
    Send,
    Settled,
)
from octopi.clients.producing.load import ProducerLoad
from octopi.clients.producing.message_intake import MessageIntake
from octopi.clients.producing.session_options import SessionOptions
from octopi.clients.suspicion import SilenceTimer
from octopi.errors import (
    ConnectionLostError,
    DeliveryError,
    NotDeliveredError,
    OctopiError,
    OutcomeUnknownError,
    RefusedError,
    Status,
)
from octopi.identifiers import ProducerEpoch, ProducerId, Sequence
from octopi.limits import LEADER_SILENCE_S


class ProducerSession(MessageIntake):
    """The messages of one producer for one log, from `add` to their outcome.

    Invariants: unanswered batches have growing sequences in the current epoch and come
    before waiting ones, in the order in which messages were added; only the last waiting
    batch is open; a batch is settled once.
    """

    def __init__(
        self,
        log: str,
        producer_id: ProducerId,
        options: SessionOptions,
        *,
        is_named: bool = False,
        load: ProducerLoad | None = None,
    ) -> None:
        """*load*: that of the producer, if it has other sessions, too."""
        super().__init__(options, load)
        self._log = log
        self._is_named = is_named
        self.producer_id = producer_id
        self.generation = 1
        """The generation of the topic by which the log was chosen."""
        self._is_superseded = False
        """Whether a later one is in force."""
        self._is_settling = False
        """Whether the connection's broker has all that the generation has in the log."""
        self._epoch = 0
        self._has_epoch = not is_named
        """Whether this life has begun an epoch."""
        self._is_beginning = False
        """Whether the driver performs `BeginEpoch`."""
        self._next_sequence = 0
        self._epoch_over = is_named
        """Whether the next batch begins a new epoch, as soon as no batch is unanswered."""
        self._connected = False
        self._has_heard = False
        self._last_received_at = -math.inf
        """When `advance` was first called after the leader's last answer."""
        self._silence = SilenceTimer(LEADER_SILENCE_S, self._unanswered_since)
        self._effects: list[Effect] = []
        self._last_error: OctopiError | None = None
        """The newest error, for the text of time-outs."""

    # --- epochs of a named producer ------------------------------------------------------

    @property
    def needs_first_epoch(self) -> bool:
        """Whether the producer is named and has no epoch in this log yet."""
        return not self._has_epoch

    def begin_life(self) -> None:
        """Begin the first epoch of a named producer before it is needed: the earlier life ends."""
        if not self._has_epoch and not self._is_beginning:
            self._begin_epoch()

    def began(self, epoch: ProducerEpoch) -> None:
        """The leader has begun *epoch*, for this life."""
        assert self._epoch_over, "a new epoch begins when the last one is over"
        self._epoch, self._has_epoch = epoch, True
        self._next_sequence = 0
        self._epoch_over = self._is_beginning = False

    def not_begun(self, why: OctopiError) -> None:
        """The leader didn't begin an epoch, and may do so if it is asked again."""
        self._last_error = why
        self._is_beginning = False

    # --- what the connection does ------------------------------------------------------

    def connected(self, generation: int = 0) -> None:
        """There is a connection to the leader, and no copy of a batch is on its way there.
        *generation*: that of the topic which was in force when the register named this leader."""
        self._connected = True
        self._is_settling = generation > self.generation

    def disconnected(self, why: OctopiError, *, address: str = "", silent: bool = False) -> None:
        """The connection ended, or its broker can't be used: it is unknown whether the copies on
        their way are stored.  *address*, *silent*: as in `FindLeader`."""
        self._last_error = why
        for batch in self._unanswered:
            if batch.sent_at is not None:
                batch.sent_at = None
                batch.maybe_stored = True
        if self._connected:
            self._connected = False
            self._effects.append(FindLeader(why, address, silent))

    def no_leader_found(self, now: float) -> None:
        """`AskLeader` found that no broker leads now; one will soon."""
        self._silence.no_leader(now)

    def trouble(self, why: OctopiError) -> None:
        """The leader can't be found or reached; the driver tries again."""
        self._last_error = why

    def answered(self, batch: Batch, attempt: int, stored: Stored) -> None:
        """The broker answered the *attempt*: it has committed the batch, now or before."""
        if self._awaits(batch, attempt):
            self._has_heard = True
            self._last_error = None
            self._settle(batch, stored)
            self._unanswered.remove(batch)
            batch.drop_messages()

    def refused(self, batch: Batch, attempt: int, why: RefusedError) -> None:
        """The broker refused the *attempt* at sending the batch."""
        if not self._awaits(batch, attempt):
            return
        self._has_heard = True
        self._last_error = why
        batch.sent_at = None
        if not why.meaning.before_append:
            batch.maybe_stored = True
        match why.status:
            case Status.PRODUCER_FENCED:
                self.fail(why)
                self._effects.append(Fenced(why))
            case Status.RECEIPT_FORGOTTEN:
                text = f"{self._log}: stored, but the broker doesn't know where any more: {why}"
                forgotten = OutcomeUnknownError(text)
                forgotten.__cause__ = why
                self._settle(batch, forgotten)
                self._unanswered.remove(batch)
                batch.drop_messages()
            case Status.CONDITION_FAILED:
                self._refute(batch, why)
            case Status.SEQUENCE_GAP if batch is not self._unanswered[0]:
                # The missing records are before it in the queue, and are sent again first.
                self.disconnected(why)
            case Status.SEQUENCE_GAP | Status.UNKNOWN_PRODUCER if (
                batch.first_sequence != 0 and not batch.maybe_stored
            ):
                self._start_over(batch)
            case Status.STALE_ROUTE if self._is_settling:
                self._start_over(batch)
            case _ if why.retryable or why.meaning.look_up:
                self.disconnected(why, address=why.address)
            case _:
                self._give_up(batch, why)

    def fail(self, why: OctopiError) -> None:
        """A retry can't help, or isn't wanted: settle all batches now."""
        for batch in [*self._unanswered, *self._waiting]:
            self._settle(batch, verdict(self._log, batch, why))
        self._forget_unanswered()
        for batch in self._waiting:
            batch.drop_messages()
        self._waiting.clear()
        self.seal()

    # --- generations of the topic --------------------------------------------------------

    def supersede(self) -> None:
        """A later generation of the topic is in force: send only what was sent before."""
        self.seal()
        self._is_superseded = True

    @property
    def is_drained(self) -> bool:
        """Whether a later generation is in force, and all that was sent by this one is stored or
        certainly not."""
        return self._is_superseded and not self._unanswered

    def take_waiting(self) -> list[Batch]:
        """Give away the batches of a drained session, oldest first."""
        assert self.is_drained, "what was sent is settled where it was sent"
        taken = list(self._waiting)
        self._waiting.clear()
        return taken

    def go_on(self, generation: int) -> None:
        """The log is part of *generation*, and takes its messages."""
        assert self.is_empty or generation == self.generation, "the former generation has ended"
        self.generation, self._is_superseded = generation, False
        self._is_settling = False

    def put(self, batch: Batch) -> None:
        """Take a *batch* that was to go to another log, or by another generation."""
        self.seal()
        last = [*self._unanswered, *self._waiting][-1:]
        batch.deadline = max([batch.deadline, *(one.deadline for one in last)])
        self._waiting.append(batch)

    def reject(self, batch: Batch, error: DeliveryError) -> None:
        """A *batch* that was given away has no other log."""
        self._settle(batch, error)
        batch.drop_messages()

    # --- time --------------------------------------------------------------------------

    def advance(self, now: float) -> list[Effect]:
        """It is *now*: settle batches whose time is up, and send those that are due.  Return all
        effects since the last call, in the order in which to perform them."""
        if self._has_heard:
            self._has_heard, self._last_received_at = False, now
        self._expire(now)
        if self._connected:
            oldest = self._unanswered[0].sent_at if self._unanswered else None
            if oldest is not None and oldest + self._options.request_timeout_s <= now:
                self.disconnected(
                    ConnectionLostError(
                        f"{self._log}: no answer within {self._options.request_timeout_s:g} s"
                    ),
                    silent=True,
                )
        if self._connected:
            self._send_due(now)
        if self._silence.due_at() <= now:
            self._silence.asked(now)
            self._effects.append(AskLeader())
        effects, self._effects = self._effects, []
        return effects

    def wake_at(self) -> float:
        """When to call `advance` next, if no other event comes before; infinity: not at all."""
        options = self._options
        times = [batch.deadline for batch in self._unanswered if batch.outcome is None][:1]
        if self._waiting:
            times.append(self._waiting[0].deadline)
        if self._connected:
            if self._unanswered and self._unanswered[0].sent_at is not None:
                times.append(self._unanswered[0].sent_at + options.request_timeout_s)
            if self._waiting and self._has_room() and not self._waiting[0].sealed:
                times.append(self._load.linger_until(self._waiting[0], options.linger_s))
        times.append(self._silence.due_at())
        return min(times, default=math.inf)

    # --- decisions ---------------------------------------------------------------------

    def _awaits(self, batch: Batch, attempt: int) -> bool:
        return batch.sent_at is not None and batch.attempt == attempt

    def _unanswered_since(self) -> float | None:
        """Since when the leader hasn't answered a request; None: no request is unanswered."""
        oldest = self._unanswered[0].sent_at if self._connected and self._unanswered else None
        return None if oldest is None else max(oldest, self._last_received_at)

    def _has_room(self) -> bool:
        """Whether a waiting batch may be given sequences now."""
        if self._is_superseded:
            return False
        if self._epoch_over:
            return not self._unanswered and not self._is_beginning
        if self._unanswered and (self._waiting[0].condition or self._unanswered[0].condition):
            return False  # a batch with a condition is on its way alone
        return len(self._unanswered) < self._options.batches_in_flight

    def _send_due(self, now: float) -> None:
        for batch in self._unanswered:
            if batch.sent_at is None:
                self._send(batch, now)
        while self._waiting and self._has_room():
            batch = self._waiting[0]
            idle = batch.urgent and not self._unanswered
            if not (
                batch.sealed
                or idle
                or self._load.linger_until(batch, self._options.linger_s) <= now
            ):
                break
            if batch is self._open:
                self.seal()
            if self._epoch_over and not self._begin_epoch():
                break
            batch.first_sequence = Sequence(self._next_sequence)
            self._next_sequence += len(batch)
            self._unanswered.append(self._waiting.popleft())
            self._send(batch, now)

    def _begin_epoch(self) -> bool:
        """Begin the next epoch; return whether it has begun."""
        if not self._is_named:
            self._epoch += 1
            self._next_sequence = 0
            self._epoch_over = False
        elif not self._is_beginning:
            self._is_beginning = True
            after = ProducerEpoch(self._epoch) if self._has_epoch else None
            self._effects.append(BeginEpoch(after))
        return not self._epoch_over

    def _send(self, batch: Batch, now: float) -> None:
        assert batch.first_sequence is not None, "only a batch with sequences is sent"
        batch.attempt += 1
        batch.sent_at = now
        epoch = ProducerEpoch(self._epoch)
        records = batch.builder.encode(self.producer_id, epoch, batch.first_sequence)
        self._effects.append(Send(batch, batch.attempt, records, epoch, self.generation))

    def _expire(self, now: float) -> None:
        while self._unanswered:
            head = next((batch for batch in self._unanswered if batch.outcome is None), None)
            if head is None:
                self._forget_unanswered()  # all of these are settled
            elif head.deadline > now:
                break
            elif head.maybe_stored or head.sent_at is not None:
                self._settle(head, self._late(OutcomeUnknownError))
            else:
                self._drop(head, self._late(NotDeliveredError))
        while self._waiting and self._waiting[0].deadline <= now:
            batch = self._waiting.popleft()
            if batch is self._open:
                self.seal()
            self._settle(batch, self._late(NotDeliveredError))
            batch.drop_messages()

    def _late(self, kind: type[DeliveryError]) -> DeliveryError:
        """The error for a batch whose time is up."""
        late = f"{self._log}: no receipt within {self._options.delivery_timeout_s:g} s"
        error = kind(late if self._last_error is None else f"{late}; last: {self._last_error}")
        error.__cause__ = self._last_error
        return error

    def _give_up(self, batch: Batch, why: RefusedError) -> None:
        """The batch was refused for good."""
        if batch.maybe_stored:
            # The batches behind it keep their sequences: if it is stored, they can be stored, too.
            self._settle(batch, verdict(self._log, batch, why))
            self._unanswered.remove(batch)
            batch.drop_messages()
        else:
            self._drop(batch, verdict(self._log, batch, why))

    def _refute(self, batch: Batch, why: RefusedError) -> None:
        """The condition of *batch* doesn't hold."""
        error = refutation(self._log, batch, why)
        if error is None:
            return self._give_up(batch, why)
        self._settle(batch, error)
        self._unanswered.remove(batch)
        self._next_sequence -= len(batch)  # it was on its way alone: the next one gets them
        batch.drop_messages()

    def _drop(self, batch: Batch, error: DeliveryError) -> None:
        """The batch is certainly not stored and is not sent again."""
        self._start_over(batch)
        if batch.outcome is None:
            assert self._waiting[0] is batch, "a batch that starts over is the first to wait"
            self._waiting.popleft()
            self._settle(batch, error)
        batch.drop_messages()

    def _start_over(self, batch: Batch) -> None:
        """The batch is certainly not stored, and will never be sent in this epoch again.  So the
        batch, and all batches behind it, wait for a new epoch; those that are settled are
        dropped."""
        again: list[Batch] = []
        while True:
            last = self._unanswered.pop()
            last.first_sequence = None
            last.sent_at = None
            last.maybe_stored = False
            if last.outcome is None:
                again.append(last)
            if last is batch:
                break
        self._waiting.extendleft(again)
        self._epoch_over = True

    def _forget_unanswered(self) -> None:
        """Drop all unanswered batches.  The new epoch fences copies that are still on their way."""
        for batch in self._unanswered:
            batch.drop_messages()
        self._unanswered.clear()
        self._epoch_over = True

    def _settle(self, batch: Batch, outcome: Stored | DeliveryError) -> None:
        if batch.outcome is None:
            batch.outcome = outcome
            self._effects.append(Settled(batch, len(batch), batch.builder.size_bytes))

    def check_invariants(self) -> None:
        """Assert what the class promises."""
        check_batches(self._unanswered, self._waiting, self._open, self._next_sequence)
        assert len(self._unanswered) <= self._options.batches_in_flight
