"""The state of a pipe for one log of its input: what is to be processed, and what is sent.

This machine decides, and `octopi.clients.piping.pipe_output` performs.  It knows no connection, no
clock and no task.

**The owner.**  Of the members of the subscription, one has the log, under a claim that grows with
each assignment.  All of them write with the same producer id, made from the subscription and the
log, to the same log of the output; the claim is the producer epoch.  An owner never hears that it
was replaced before it sends, so two may process at the same time.

**The place is in the output.**  Each output says which message it comes from (`InputPlace`).  A new
owner looks up the newest record of the producer that is committed, and goes on behind that: mark
and output can't contradict each other, since the mark is stored behind the output only.

**The first append is conditional.**  Between the look and the first append the former owner may
have appended more.  So the first one says which record it has to come after; if it is refused, the
owner looks again, and drops what the former one has stored.  From then on the log refuses records
of the former owner's lower epoch.

**An owner that looks again** goes on with its own sequence behind what it finds.  Numbers from 0 on
would be taken for repetitions of the records that it has sent before.

One request is on its way at a time, with the outputs of as many units as fit.  So if it is refused,
nothing behind it is stored.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from itertools import pairwise
from typing import Final

import attrs

from octopi.clients.piping.input_place import InputPlace, Unit
from octopi.conditions import NO_RECORD, Condition, LastRecord
from octopi.errors import HistoryForkedError, MemberFencedError, RefusedError, Status
from octopi.identifiers import Claim, ProducerEpoch, ProducerId, Sequence
from octopi.limits import GROWN_BATCH_BYTES, RECORDS_PER_PRODUCE_MAX
from octopi.record import BatchBuilder
from octopi.record_headers import INPUT_HEADER


@attrs.frozen
class PipeResult:
    """A message that the program sends."""

    value: bytes
    key: bytes | None
    headers: Mapping[str, bytes]
    timestamp_ms: int

    @property
    def counted_bytes(self) -> int:
        """What it counts in the pipe's buffer."""
        return len(self.value) + len(self.key or b"") + OUTPUT_BYTES


OUTPUT_BYTES: Final = 256
"""What an output counts beside its value and its key."""


@attrs.frozen
class Found:
    """What the log of the output has of the pipe, all of it committed."""

    last: LastRecord
    """The newest record of the producer."""
    place: InputPlace | None
    """That of this record; None: retention has removed it, or there is none."""
    forgets: bool = False
    """Whether the log has forgotten some producers."""


@attrs.frozen
class PipeBatch:
    """Outputs that are sent together."""

    records: bytes
    condition: Condition | None
    places: list[InputPlace]


@attrs.define
class _WaitingResult:
    place: InputPlace
    output: PipeResult


class PipeLog:
    """The pipe's state for one log of its input, and one claim.

    Invariants: places of waiting outputs grow, and are behind `place`; a batch on its way has the
    first of them.
    """

    def __init__(
        self,
        name: str,
        producer_id: ProducerId,
        claim: Claim,
        *,
        from_mark: bool = False,
        batch_bytes: int = GROWN_BATCH_BYTES,
    ) -> None:
        """*name*: the log of the input and that of the output, for the texts of errors.
        *from_mark*: go on at the mark of the subscription if the log of the output doesn't tell the
        place; see `octopi.Client.pipe`.  *batch_bytes*: the size of a full request."""
        self._batch_bytes = batch_bytes
        self._name = name
        self.producer_id = producer_id
        self.claim = claim
        self._from_mark = from_mark
        self.needs_look = True
        """Whether `found` is to be called before anything is processed or sent."""
        self.place: InputPlace | None = None
        """The newest output that the log is known to have; None: none."""
        self.is_checked = False
        """Whether the log of the input was seen to have the unit of `place`, or comes behind it."""
        self._front = 0
        """Behind the newest unit that was processed."""
        self._waiting: deque[_WaitingResult] = deque()
        self._units: deque[tuple[Unit, InputPlace | None]] = deque()
        """Processed units, oldest first, each with its last output; None: it has none."""
        self._in_flight: PipeBatch | None = None
        self._next_sequence = 0
        self._after: LastRecord | None = None
        """The record that the next one has to come after; None: one of this owner's."""
        self.waiting_bytes = 0
        """The size of what the log is not known to have, as counted by `PipeResult`."""

    # --- what the log of the output has -------------------------------------------------

    def found(self, found: Found) -> None:
        """The leader of the log was asked what it has.

        Raises:
          MemberFencedError: if a later owner has written to it.
          RefusedError: RECEIPT_FORGOTTEN, if it doesn't tell the place.
          HistoryForkedError: if it has lost what it had.
        """
        last, place = found.last, found.place
        if last.epoch > self.claim:
            raise MemberFencedError(
                f"{self._name}: another member of the pipe has the log, with claim {last.epoch} "
                f"behind {self.claim}"
            )
        if last != NO_RECORD and place is None and self.place is None and not self._from_mark:
            self._raise_forgotten("retention has removed the last output of the pipe")
        if last == NO_RECORD and found.forgets and self.place is None and not self._from_mark:
            self._raise_forgotten(
                "so many producers have written to the log since that it may have "
                "forgotten this pipe"
            )
        is_own = last != NO_RECORD and last.epoch == self.claim
        if place is None and is_own and last.sequence == self._next_sequence - 1:
            place = self.place  # retention has removed it meanwhile
        if self.place is not None and (place is None or not place.reaches(self.place)):
            raise HistoryForkedError(
                f"{self._name}: outputs that the log had acknowledged are gone from it; their "
                "inputs are processed, and would have to be processed again"
            )
        self.needs_look = False
        self._after = last
        self._next_sequence = last.sequence + 1 if is_own else 0
        if place is not None:
            self._reach(place)

    def _raise_forgotten(self, why: str) -> None:
        raise RefusedError(
            f"{self._name}: {why}, so it is not known how far the input is processed; "
            "open the pipe with from_mark=True to go on at the mark of the subscription, behind "
            "which outputs may come twice",
            Status.RECEIPT_FORGOTTEN,
        )

    def _reach(self, place: InputPlace) -> None:
        """The log has the output at *place*, and all before."""
        if self.place is None or self.place.unit != place.unit:
            self.is_checked = any(unit == place.unit for unit, _ in self._units)
        self.place = place
        while self._waiting and place.reaches(self._waiting[0].place):
            self.waiting_bytes -= self._waiting.popleft().output.counted_bytes

    # --- the input ---------------------------------------------------------------------

    def wants(self, unit: Unit) -> bool:
        """Whether the program has to process *unit*, which comes next in the log of the input.

        Raises:
          HistoryForkedError: if the outputs come from another history of the log.
        """
        if unit.next_offset <= self._front:
            return False  # it comes again because a connection was lost
        if self.place is None or self.is_checked:
            return True
        known = self.place.unit
        if unit.offset < known.offset and unit.next_offset <= known.offset:
            return False
        if unit.offset > known.offset:
            self.is_checked = True  # the mark, which knows its history, is behind it
            return True
        if unit != known:
            raise HistoryForkedError(
                f"{self._name}: the output has results of a message at offset {known.offset} of "
                "the input that the input has lost, and another message is in its place",
                offset=unit.offset,
            )
        self.is_checked = True
        return not self.place.is_last

    def processed(self, unit: Unit, outputs: list[PipeResult]) -> None:
        """The program has processed *unit*, and sends *outputs* for it."""
        self._front = unit.next_offset
        last: InputPlace | None = None
        for index, output in enumerate(outputs):
            last = InputPlace(unit, index, index == len(outputs) - 1)
            if self.place is None or not self.place.reaches(last):
                self._waiting.append(_WaitingResult(last, output))
                self.waiting_bytes += output.counted_bytes
        self._units.append((unit, last))

    def take_done(self) -> Unit | None:
        """The newest unit up to which all outputs are in the log, if it was not taken before."""
        done = None
        while self._units:
            unit, last = self._units[0]
            if last is not None and (self.place is None or not self.place.reaches(last)):
                break
            done = unit
            self._units.popleft()
        return done

    @property
    def is_settled(self) -> bool:
        """Whether the log has all outputs."""
        return not self._waiting

    # --- sending -----------------------------------------------------------------------

    def next_batch(self) -> PipeBatch | None:
        """What to send next; None: nothing, or an answer is awaited, or a look is needed.  Then
        call `stored` or `refuted`."""
        if self.needs_look or self._in_flight is not None or not self._waiting:
            return None
        builder, places = BatchBuilder(), []
        for one in self._waiting:
            output = one.output
            headers = {**output.headers, INPUT_HEADER: one.place.encode()}
            builder.add(output.value, output.key, headers, output.timestamp_ms)
            places.append(one.place)
            if builder.size_bytes >= self._batch_bytes or len(places) >= RECORDS_PER_PRODUCE_MAX:
                break
        condition = None if self._after is None else Condition(after=self._after)
        epoch = ProducerEpoch(self.claim)
        records = builder.encode(self.producer_id, epoch, Sequence(self._next_sequence))
        self._in_flight = PipeBatch(records, condition, places)
        return self._in_flight

    def stored(self) -> None:
        """The batch on its way is committed."""
        assert self._in_flight is not None
        sent, self._in_flight = self._in_flight, None
        self._next_sequence += len(sent.places)
        self._after = None
        self._reach(sent.places[-1])
        self.is_checked = True

    def refuted(self) -> None:
        """The batch on its way is not what comes next in the log: another owner has written to it,
        or it has only the first of these records."""
        self._in_flight, self.needs_look = None, True

    def check_invariants(self) -> None:
        """Assert what the class promises."""
        places = [one.place for one in self._waiting]
        assert all(b.reaches(a) and a != b for a, b in pairwise(places))
        assert self.place is None or not any(map(self.place.reaches, places))
        if self._in_flight is not None:
            assert self._in_flight.places == places[: len(self._in_flight.places)]
        assert self.waiting_bytes == sum(one.output.counted_bytes for one in self._waiting)
