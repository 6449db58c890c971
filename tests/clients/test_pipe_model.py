"""Owners of a pipe that overlap, a log that loses its uncommitted tail, and what reads out of it.

The machine of `octopi.clients.piping.pipe_log` runs against the leader's own rules: the table of
producers and the condition.  Whatever comes between them, the output is the input once.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import attrs
import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from octopi.clients.piping.input_place import InputPlace, Unit
from octopi.clients.piping.pipe_log import Found, Output, PipeLog
from octopi.errors import MemberFencedError
from octopi.identifiers import (
    Claim,
    Epoch,
    Offset,
    PartitionId,
    ProducerId,
    TopicId,
    TopicName,
)
from octopi.record import decode, scan
from octopi.record_headers import INPUT_HEADER, NO_HEADERS
from octopi.replication.effects import Append, CommitReceipt, FindDuplicate, Refusal, Reply
from octopi.replication.log_leader import LogLeader
from octopi.replication.log_state import LogState
from octopi.replication.producer_sequences import ProducerSequences

TOPIC, PARTITION = TopicId("5f0c2a1b5f0c2a1b"), PartitionId(3)
PRODUCER = ProducerId(b"p" * 16)
UNITS_MAX = 5
RESULTS = (2, 0, 1, 3, 1)
"""How many results each unit has."""


def unit(number: int) -> Unit:
    return Unit(TOPIC, PARTITION, Offset(100 * number), Offset(100 * number + 100), number)


def results(number: int) -> list[Output]:
    return [Output(b"%d.%d" % (number, i), None, NO_HEADERS, 0) for i in range(RESULTS[number])]


@attrs.define
class Owner:
    """A member that had the log at some time, and does not know whether it still has."""

    log: PipeLog
    at: int
    """The unit that it processes next."""
    sent: bytes | None = None
    condition: Any = None
    answer: CommitReceipt | Refusal | None = None
    is_over: bool = False


class Pipes(RuleBasedStateMachine):
    """Owners 1, 2, ...; the newest one is the rightful one, all of them go on."""

    def __init__(self) -> None:
        super().__init__()
        self.records = b""
        self.leader = self.lead(ProducerSequences())
        self.marked = 0
        self.owners: list[Owner] = []
        self.take_over()

    def lead(self, sequences: ProducerSequences) -> LogLeader:
        """A leader of what is there; a follower is needed for each commit."""
        state = LogState.empty()
        state.sequences = sequences
        state.end = state.highwater = Offset(len(self.records))
        leader = LogLeader(Epoch(1), state, replicated=True)
        leader.require(frozenset({2}), 2, durable=False)  # type: ignore[arg-type]
        return leader

    # --- the log of the output ----------------------------------------------------------

    def perform(self, effects: list[Any]) -> None:
        for effect in effects:
            match effect:
                case Append(records, found, answer):
                    base = self.leader.log.end
                    self.records += records
                    self.perform(self.leader.appended(base, found, answer))
                case FindDuplicate(offset, skip, answer):
                    places = [
                        one.offset for one in self.stored(self.records) if one.offset >= offset
                    ]
                    self.perform(self.leader.found_duplicate(places[skip], answer))
                case Reply(answer, content):
                    answer(content)

    def stored(self, records: bytes) -> list[Any]:
        return decode(records, Offset(0), TopicName("invoices"), PARTITION)

    @rule()
    def commit(self) -> None:
        self.perform(self.leader.acknowledged(2, self.leader.log.end))  # type: ignore[arg-type]

    @rule(data=st.data())
    def change_the_leader(self, data: st.DataObject) -> None:
        """The next leader has what is committed, and perhaps some of the batches behind it."""
        ends = [one.next_offset for one in self.stored(self.records)]
        committed = self.leader.log.highwater
        keep = data.draw(st.sampled_from([committed, *(e for e in ends if e > committed)]))
        self.perform(self.leader.stop("another broker leads"))
        self.records = self.records[:keep]
        sequences = ProducerSequences()
        sequences.note(scan(self.records), Offset(0))
        self.leader = self.lead(sequences)

    # --- owners ------------------------------------------------------------------------

    @precondition(lambda self: len(self.owners) < 4)
    @rule()
    def take_over(self) -> None:
        claim = Claim(len(self.owners) + 1)
        self.owners.append(Owner(PipeLog("orders/3", PRODUCER, claim), self.marked))

    @rule(number=st.integers(0, 3))
    def look(self, number: int) -> None:
        owner = self.owner(number)
        if owner is None or not owner.log.needs_look:
            return
        self.commit()  # the leader answers when all that it holds is committed
        last = self.leader.log.sequences.last_record(PRODUCER)
        place = None
        if stored := self.stored(self.records):
            place = InputPlace.decode(stored[-1].headers[INPUT_HEADER])
        try:
            owner.log.found(Found(last, place))
        except MemberFencedError:
            owner.is_over = True

    @rule(number=st.integers(0, 3))
    def process(self, number: int) -> None:
        owner = self.owner(number)
        if owner is None or owner.log.needs_look or owner.at >= UNITS_MAX:
            return
        if owner.log.wants(unit(owner.at)):
            owner.log.processed(unit(owner.at), results(owner.at))
        owner.at += 1
        self.mark(owner)

    @rule(number=st.integers(0, 3), is_lost=st.booleans())
    def send(self, number: int, is_lost: bool) -> None:
        """Send a batch, or send it again; the answer may be lost."""
        owner = self.owner(number)
        if owner is None or owner.answer is not None:
            return
        if owner.sent is None:
            if (batch := owner.log.next_batch()) is None:
                return
            owner.sent, owner.condition = batch.records, batch.condition

        def answer(content: CommitReceipt | Refusal) -> None:
            if not is_lost and owner.sent is not None:
                owner.answer = content

        self.perform(self.leader.receive(owner.sent, scan(owner.sent), answer, owner.condition))

    @rule(number=st.integers(0, 3))
    def hear(self, number: int) -> None:
        owner = self.owner(number)
        if owner is None or owner.answer is None:
            return
        answer, owner.answer = owner.answer, None
        if isinstance(answer, CommitReceipt):
            owner.sent = None
            owner.log.stored()
            self.mark(owner)
        elif answer.status.name in {"CONDITION_FAILED", "SEQUENCE_GAP", "UNKNOWN_PRODUCER"}:
            owner.sent = None
            owner.log.refuted()
        elif answer.status.name == "PRODUCER_FENCED":
            owner.is_over = True

    def owner(self, number: int) -> Owner | None:
        known = number < len(self.owners) and not self.owners[number].is_over
        return self.owners[number] if known else None

    def mark(self, owner: Owner) -> None:
        """The mark of the newest claim counts."""
        done = owner.log.take_done()
        if done is not None and owner is self.owners[-1]:
            self.marked = max(self.marked, done.next_offset // 100)

    # --- what always holds ---------------------------------------------------------------

    @invariant()
    def the_output_is_the_input_once(self) -> None:
        wanted = deque(one.value for number in range(UNITS_MAX) for one in results(number))
        for one in self.stored(self.records):
            assert one.value == wanted.popleft()

    @invariant()
    def a_mark_is_not_ahead_of_the_output(self) -> None:
        committed = len(self.stored(self.records[: self.leader.log.highwater]))
        assert sum(RESULTS[: self.marked]) <= committed

    @invariant()
    def the_machines_keep_their_promises(self) -> None:
        for owner in self.owners:
            owner.log.check_invariants()


Pipes.TestCase.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
TestPipes = Pipes.TestCase
