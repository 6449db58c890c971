"""Owners of a pipe that overlap, and a log that loses its uncommitted tail with its leader.

The machine of `octopi.clients.piping.pipe_log` runs against the leader's own rules: the table of
producers, and the condition.
"""

from __future__ import annotations

from typing import Any, Final

import attrs

from octopi.clients.piping.input_place import InputPlace, Unit
from octopi.clients.piping.pipe_log import Found, PipeLog, PipeResult
from octopi.errors import MemberFencedError
from octopi.identifiers import (
    BrokerId,
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

TOPIC, PARTITION = TopicId("5f0c2a1b5f0c2a1b"), PartitionId(3)
PRODUCER = ProducerId(b"p" * 16)
FOLLOWER = BrokerId(2)
RESULTS = (2, 0, 3, 1)
"""How many results each unit has."""
UNITS_MAX = len(RESULTS)
OWNERS_MAX = 3
_LOOK_AGAIN: Final = {"CONDITION_FAILED", "SEQUENCE_GAP", "UNKNOWN_PRODUCER"}


def unit(number: int) -> Unit:
    return Unit(TOPIC, PARTITION, Offset(100 * number), Offset(100 * number + 100), number)


def results(number: int) -> list[PipeResult]:
    return [PipeResult(b"%d.%d" % (number, i), None, NO_HEADERS, 0) for i in range(RESULTS[number])]


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


class PipeWorld:
    """Owners with claims 1, 2, ...  The newest one is the rightful one, and all of them go on."""

    def __init__(self, pipe_log: type[PipeLog] = PipeLog) -> None:
        self.pipe_log = pipe_log
        self.looks_at_committed = True
        self.records = b""
        self.leader = self.lead()
        self.marked = 0
        self.owners: list[Owner] = []
        self.take_over()

    def check(self) -> None:
        """Assert that the output is the input, once, and that no mark is ahead of it."""
        found = [one.value for one in self.stored(self.records)]
        wanted = [one.value for number in range(UNITS_MAX) for one in results(number)]
        assert found == wanted[: len(found)], found
        committed = len(self.stored(self.records[: self.leader.log.highwater]))
        assert sum(RESULTS[: self.marked]) <= committed
        for owner in self.owners:
            owner.log.check_invariants()

    # --- the log of the output ----------------------------------------------------------

    def lead(self) -> LogLeader:
        """The leader of what is there.  It commits what a follower has acknowledged."""
        state = LogState.empty()
        if self.records:
            state.sequences.note(scan(self.records), Offset(0))
        state.end = state.highwater = Offset(len(self.records))
        leader = LogLeader(Epoch(1), state, replicated=True)
        leader.require(frozenset({FOLLOWER}), 2, durable=False)
        return leader

    def perform(self, effects: list[Any]) -> None:
        for effect in effects:
            match effect:
                case Append(records, found, answer):
                    base = self.leader.log.end
                    self.records += records
                    self.perform(self.leader.appended(base, found, answer))
                case FindDuplicate(offset, skip, answer):
                    places = [one.offset for one in self.stored(self.records)]
                    at = places[places.index(offset) + skip]
                    self.perform(self.leader.found_duplicate(at, answer))
                case Reply(answer, content):
                    answer(content)

    def stored(self, records: bytes) -> list[Any]:
        return decode(records, Offset(0), TopicName("invoices"), PARTITION) if records else []

    def commit(self) -> None:
        self.perform(self.leader.acknowledged(FOLLOWER, self.leader.log.end))

    def change_the_leader(self, kept: int) -> None:
        """The next leader has what is committed, and the first *kept* records behind it."""
        committed = self.leader.log.highwater
        ends = [one.next_offset for one in self.stored(self.records)]
        ends = [committed, *(end for end in ends if end > committed)]
        self.perform(self.leader.stop("another broker leads"))
        self.records = self.records[: ends[min(kept, len(ends) - 1)]]
        self.leader = self.lead()

    # --- owners ------------------------------------------------------------------------

    def take_over(self) -> None:
        if len(self.owners) < OWNERS_MAX:
            claim = Claim(len(self.owners) + 1)
            log = self.pipe_log("orders/3", PRODUCER, claim, batch_bytes=150)
            self.owners.append(Owner(log, self.marked))

    def step(self, number: int, *, sends: bool, hears: bool) -> None:
        """Let an owner do what it does next: hear an answer, look, process or send."""
        if number >= len(self.owners) or (owner := self.owners[number]).is_over:
            return
        if owner.answer is not None:
            self.hear(owner, owner.answer)
        elif owner.sent is not None:
            self.send(owner, hears)
        elif owner.log.needs_look:
            self.look(owner)
        elif sends and (batch := owner.log.next_batch()) is not None:
            owner.sent, owner.condition = batch.records, batch.condition
            self.send(owner, hears)
        elif owner.at < UNITS_MAX:
            if owner.log.wants(unit(owner.at)):
                owner.log.processed(unit(owner.at), results(owner.at))
            owner.at += 1
            self.mark(owner)

    def look(self, owner: Owner) -> None:
        if self.looks_at_committed:
            self.commit()  # the leader answers when all that it holds is committed
        place, stored = None, self.stored(self.records)
        if stored:
            place = InputPlace.decode(stored[-1].headers[INPUT_HEADER])
        try:
            owner.log.found(Found(self.leader.log.sequences.last_record(PRODUCER), place))
        except MemberFencedError:
            owner.is_over = True

    def send(self, owner: Owner, hears: bool) -> None:
        """Send a batch, or send it again."""
        assert owner.sent is not None

        def answer(content: CommitReceipt | Refusal) -> None:
            if hears and owner.sent is not None:
                owner.answer = content

        self.perform(self.leader.receive(owner.sent, scan(owner.sent), answer, owner.condition))

    def hear(self, owner: Owner, answer: CommitReceipt | Refusal) -> None:
        owner.answer = None
        if isinstance(answer, CommitReceipt):
            owner.sent = None
            owner.log.stored()
            self.mark(owner)
        elif answer.status.name in _LOOK_AGAIN:
            owner.sent = None
            owner.log.refuted()
        elif answer.status.name == "PRODUCER_FENCED":
            owner.is_over = True

    def mark(self, owner: Owner) -> None:
        """The mark of the newest claim counts."""
        done = owner.log.take_done()
        if done is not None and owner is self.owners[-1]:
            self.marked = max(self.marked, done.next_offset // 100)

    # --- actions as numbers ---------------------------------------------------------------

    def do(self, action: int) -> None:
        """Do one of `ACTIONS` things."""
        if action == 0:
            self.take_over()
        elif action < 3:
            self.commit()
        elif action < 6:
            self.change_the_leader((0, 1, 100)[action - 3])
        else:
            kind, number = divmod(action - 6, OWNERS_MAX)
            self.step(number, sends=kind in {1, 2, 4, 5}, hears=kind != 2)
        self.check()


ACTIONS = 6 + 6 * OWNERS_MAX
