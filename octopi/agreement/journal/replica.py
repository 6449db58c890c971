"""One register's replica of the journal: who is active, what is stored, what is committed.

It does no I/O: a message, the time, and what became durable are events, and the result is a list of
effects in order.  `StoreEntry` takes effect at once and is durable later.  The shell sends what
`SendNow` says at once, and what `SendWhenDurable` says when everything stored before it is durable;
a register also sends to itself, which is how it counts its own vote and its own disk.

What the active register alone knows is in `octopi.agreement.journal.leading`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from enum import Enum
from typing import Final

from octopi.agreement.journal.contradictions import check_sent
from octopi.agreement.journal.effects import JournalEffect, SendNow, SendWhenDurable, StoreEntry
from octopi.agreement.journal.history import JournalHistory
from octopi.agreement.journal.leading import Progress, StandbyProgress
from octopi.agreement.journal.snapshot_pages import SnapshotPages
from octopi.agreement.journal.stored import (
    StoredAppend,
    StoredState,
    StoredVote,
    snapshot_stored,
)
from octopi.agreement.journal.voter_changes import gives_way, next_voters
from octopi.agreement.journal.voters import is_of_trial, most_of
from octopi.limits import (
    REGISTER_BEAT_S,
    REGISTER_LOST_S,
    REGISTER_QUORUM_S,
    REGISTER_SILENCE_S,
    REGISTER_SILENCE_S_MAX,
)
from octopi.wire.registers import (
    ActiveGone,
    ActiveHeard,
    EntriesMissed,
    EntriesSent,
    EntriesStored,
    JournalEntry,
    RegisterId,
    SnapshotSent,
    SnapshotTaken,
    ToRegister,
    VoteAnswer,
    VoteRequest,
    Voters,
)


class RegisterRole(Enum):
    """What a register is in its term."""

    STANDBY = "standby"
    CANDIDATE = "candidate"
    ACTIVE = "active"


class JournalReplica:
    """One register of a group.

    Invariants: at most one register is active in a term; two journals that have an entry of the
    same term at an index are the same up to it; what is committed is in the journal of every later
    active register.

    The *list* of a register has the addresses of all that shall vote.  The active one changes the
    voters until they are those in its list.
    """

    def __init__(
        self,
        identity: RegisterId,
        addresses: Collection[str],
        stored: StoredState,
        random: Callable[[], float],
        now: float,
    ) -> None:
        """*addresses*: the list of this register, in which it is unless it leaves the others.
        *stored*: what is on the device.
        *random*: draws from 0 to 1.  *now* (s): times are by one clock, and its start means
        nothing."""
        self.identity: Final = identity
        self.addresses: Final = tuple(sorted(addresses))
        self.term, self.vote, self.history = stored.term, stored.vote, stored.history
        self.role = RegisterRole.STANDBY
        self.active: RegisterId | None = None
        """The active register of this term, if this one has heard of it."""
        self.committed = self.history.snapshot.end
        """The index behind the last entry that is known to be committed."""
        self.progress: dict[str, StandbyProgress] = {}
        """For the active register: that of each other one, and of itself, by address."""
        self._random = random
        self._known: dict[str, RegisterId] = {identity.address: identity}
        """Who was at each address last."""
        self._founding: Voters = ()
        """If the journal has not begun: all registers, as `_votes` were asked for."""
        self._votes: set[RegisterId] = set()
        self._is_trial = False
        """Whether `_votes` are of a trial."""
        self._heard_at = -math.inf
        """When this register last heard the active one."""
        self._begins = 0
        """The index of the first entry of the term in which this register is active."""
        self._active_since = now
        """When this register became active last."""
        self._pages = SnapshotPages()
        self.wakes_at = now + (self._patience_s() if self.is_founded else self._soon_s())
        """When `tick` has something to do."""

    # --- what it is --------------------------------------------------------------------------

    @property
    def is_active(self) -> bool:
        """Whether it is the active register, as far as it knows."""
        return self.role is RegisterRole.ACTIVE

    @property
    def may_decide(self) -> bool:
        """Whether it is active and knows all that was decided before: an entry of its term is
        committed."""
        return self.is_active and self.committed > self._begins

    @property
    def state(self) -> StoredState:
        """What has to be stored of it, in the fewest entries."""
        return StoredState(self.term, self.vote, self.history)

    @property
    def is_founded(self) -> bool:
        """Whether the journal has begun, as far as this register knows."""
        return self.history.end > 0

    def _patience_s(self) -> float:
        """How long to wait for a sign of an active register."""
        spread_s = REGISTER_SILENCE_S_MAX - REGISTER_SILENCE_S
        return self._reserve_s + REGISTER_SILENCE_S + self._random() * spread_s

    def _soon_s(self) -> float:
        """How long to wait if there is probably no active register."""
        return self._reserve_s + self._random() * REGISTER_LOST_S

    @property
    def _reserve_s(self) -> float:
        """How much longer than others this register waits, which leaves them."""
        return 0.0 if self.identity.address in self.addresses else REGISTER_SILENCE_S

    @property
    def is_alone(self) -> bool:
        """Whether nobody but this register votes: it was the only one of its cluster."""
        return self.history.voters == (self.identity,)

    @property
    def others(self) -> list[str]:
        """The addresses of the other registers: of those in the list, and of the voters."""
        voters = [one.address for one in self.history.voters]
        return sorted({*self.addresses, *voters} - {self.identity.address})

    # --- events --------------------------------------------------------------------------------

    def tick(self, now: float) -> list[JournalEffect]:
        """Do what is due."""
        if now < self.wakes_at:
            return []
        if self.is_active:
            return self._beat(now)
        self.wakes_at = now + self._patience_s()
        return self._try(now)

    def lost(self, address: str, now: float) -> None:
        """The connection of the register at *address* to this one has broken."""
        if self.active is not None and self.active.address == address and not self.is_active:
            self._active_is_gone(now)

    def _active_is_gone(self, now: float) -> None:
        self._heard_at = -math.inf
        self.wakes_at = min(self.wakes_at, now + self._soon_s())

    def propose(self, contents: Sequence[bytes], now: float) -> list[JournalEffect]:
        """Append entries with these contents.  They are decided when they are committed, which is
        when `committed` reaches the end that the history has after this call.  Only the active
        register may be asked."""
        assert self.may_decide
        return self._append([JournalEntry(self.term, one) for one in contents], now)

    def step_down(self, now: float) -> list[JournalEffect]:
        """Stop being active: another register may be soon, this one not before some time."""
        if not self.is_active:
            return []
        gone = ActiveGone(self.identity, self.term)
        self._rest()
        self.wakes_at = now + REGISTER_SILENCE_S + self._patience_s()
        return [SendNow(one, gone) for one in self.others]

    def shorten(self, end: int, contents: Sequence[bytes]) -> None:
        """Fold all entries before *end*, which are committed, into *contents*.  The shell has
        stored the result."""
        assert end <= self.committed
        self.history = self.history.shortened(end, contents)

    def receive(self, message: ToRegister, now: float) -> list[JournalEffect]:
        """Handle *message*.

        Raises:
          ProtocolError: if it contradicts the journal here; nothing has changed.
        """
        sender = message.sender
        if isinstance(message, EntriesSent | SnapshotSent):
            known = (self.identity, self.term, self.history, self.committed)
            check_sent(message, *known, is_active=self.is_active)
        self._known[sender.address] = sender
        effects: list[JournalEffect] = []
        if message.term > self.term and not is_of_trial(message):
            effects = self._enter(message.term, None)
            if self.is_active:
                self.wakes_at = now + self._patience_s()
            self._rest()
        match message:
            case VoteRequest():
                return effects + self._asked(message, now)
            case VoteAnswer():
                return effects + self._answered(message, now)
            case EntriesSent() | SnapshotSent() if message.term < self.term:
                return [*effects, self._missed(sender.address, self.history.end)]
            case EntriesSent():
                return effects + self._follow(message, now) + self._take(message)
            case SnapshotSent():
                return effects + self._follow(message, now) + self._take_snapshot(message)
            case ActiveGone():
                if message.term == self.term and sender == self.active:
                    self._active_is_gone(now)
                return effects
            case _ if message.term == self.term and self.is_active:
                return effects + self._hear(message, now)
        return effects

    def _enter(self, term: int, vote: RegisterId | None) -> list[JournalEffect]:
        """Enter *term*, or vote in it."""
        self.term, self.vote = term, vote
        return [StoreEntry(StoredVote(term, vote))]

    def _rest(self) -> None:
        """Be a standby that knows of no active register."""
        self.role, self.active = RegisterRole.STANDBY, None
        self.progress.clear()
        self._votes.clear()

    # --- votes -------------------------------------------------------------------------------

    @property
    def _founders(self) -> Voters:
        """All registers, if this one knows who they are; otherwise empty."""
        found = [self._known[one] for one in self.addresses if one in self._known]
        return tuple(sorted(found)) if len(found) == len(self.addresses) else ()

    def _try(self, now: float) -> list[JournalEffect]:
        """Ask whether the others would vote for this register in the next term."""
        if not self._may_stand:
            return []
        self._rest()
        if not self.is_founded and not self._founders:
            self.wakes_at = now + self._soon_s()  # the answers say who is there
        self._is_trial, self._votes = True, {self.identity}
        return self._ask(self.term + 1) or self._count(now)

    @property
    def _may_stand(self) -> bool:
        """Whether it may ask for votes."""
        history, me = self.history, self.identity
        if not self.is_founded:
            return me.address in self.addresses
        # A voter that was taken out may alone have the entry that says so (D. Ongaro's
        # dissertation, 4.2.2).  Others are brought up to date first, and made voters.
        was_voter = history.voters_end > self.committed and me in history.voters_before
        return was_voter or me in history.voters

    def _ask(self, term: int) -> list[JournalEffect]:
        self._founding, history = () if self.is_founded else self._founders, self.history
        request = VoteRequest(
            self.identity, term, self._is_trial, history.end, history.end_term, self._founding
        )
        return [SendNow(one, request) for one in self.others]

    def _asked(self, asked: VoteRequest, now: float) -> list[JournalEffect]:
        """Vote, or don't."""
        history, sender = self.history, asked.sender
        is_as_new = (asked.end_term, asked.end) >= (history.end_term, history.end)
        if asked.is_trial and self.is_founded and self.identity not in history.voters:
            is_as_new = True  # only a register that was alone asks it, and what it has is its own
        # The journal begins with all registers, none of which has anything.
        may_begin = asked.end > 0 or (
            self.identity in asked.founders
            and tuple(one.address for one in asked.founders) == self.addresses
        )
        if asked.is_trial:
            hears_active = self.is_active or now < self._heard_at + REGISTER_SILENCE_S
            is_free = asked.term > self.term and not hears_active
        else:
            is_free = asked.term == self.term and self.vote in (None, sender)
        is_granted = is_as_new and may_begin and is_free and not self.is_alone
        term = asked.term if is_granted else self.term
        answer = VoteAnswer(self.identity, term, asked.is_trial, is_granted)
        if asked.is_trial or not is_granted:
            return [SendNow(sender.address, answer)]
        self.wakes_at = now + self._patience_s()
        return [*self._enter(self.term, sender), SendWhenDurable(sender.address, answer)]

    def _answered(self, answer: VoteAnswer, now: float) -> list[JournalEffect]:
        asked_term = self.term + 1 if self._is_trial else self.term
        is_awaited = self._votes or self.role is RegisterRole.CANDIDATE
        if (
            is_awaited
            and answer.is_granted
            and answer.is_trial == self._is_trial
            and answer.term == asked_term
        ):
            self._votes.add(answer.sender)
            return self._count(now)
        return []

    def _count(self, now: float) -> list[JournalEffect]:
        """Go on if there are votes enough."""
        if not self._is_enough(self._votes):
            return []
        if self._is_trial:
            self._is_trial, self._votes = False, set()
            self.role = RegisterRole.CANDIDATE
            vote = VoteAnswer(self.identity, self.term + 1, is_trial=False, is_granted=True)
            return [
                *self._enter(self.term + 1, self.identity),
                *self._ask(self.term),
                SendWhenDurable(self.identity.address, vote),
            ]
        return self._begin(now)

    def _is_enough(self, votes: set[RegisterId]) -> bool:
        if self.is_founded and self.is_alone and self._is_trial:
            # If one of the others has a copy of this journal, it decides alone as well.  So all of
            # them have to say first that they have none of their own.
            return {one.address for one in votes}.issuperset(self.others)
        if self.is_founded:
            return most_of(votes, self.history.voters)
        return bool(self._founding) and votes.issuperset(self._founding)

    # --- the active register -------------------------------------------------------------------

    def _begin(self, now: float) -> list[JournalEffect]:
        """Be active."""
        self.role, self.active = RegisterRole.ACTIVE, self.identity
        self._votes.clear()
        self._begins, self._active_since = self.history.end, now
        end = self.history.end
        self.progress = {
            one: StandbyProgress(end, now) for one in (*self.others, self.identity.address)
        }
        self.wakes_at = now + REGISTER_BEAT_S
        return self._append([JournalEntry(self.term, voters=self._founding)], now)

    def _append(self, entries: list[JournalEntry], now: float) -> list[JournalEffect]:
        effects: list[JournalEffect] = []
        for entry in entries:
            effects.append(StoreEntry(StoredAppend(self.history.end, entry)))
            self.history.put(self.history.end, entry)
        for address in self._standbys:
            effects += self._send(address, now)
        stored = EntriesStored(self.identity, self.term, self.history.end)
        return [*effects, SendWhenDurable(self.identity.address, stored)]

    @property
    def _standbys(self) -> list[str]:
        """Whom to send to: also those that were taken out in this term, so that they hear of it."""
        return [one for one in self.progress if one != self.identity.address]

    def _send(self, address: str, now: float, *, beats: bool = False) -> list[JournalEffect]:
        """Send what the register at *address* lacks; *beats*: something in any case."""
        progress, sent_ms = self.progress[address], math.floor(now * 1000)
        messages = progress.messages(
            self.identity, self.term, self.history, self.committed, sent_ms, beats=beats
        )
        return [SendNow(address, one) for one in messages]

    def _beat(self, now: float) -> list[JournalEffect]:
        heard = [
            one.identity
            for one in self.progress.values()
            if one.identity is not None and now - one.heard_at <= REGISTER_QUORUM_S
        ]
        is_heard = most_of([*heard, self.identity], self.history.voters)
        if not is_heard and now - self._active_since > REGISTER_QUORUM_S:
            self._rest()
            self.wakes_at = now + self._patience_s()
            return []
        self.wakes_at = now + REGISTER_BEAT_S
        effects = [one for other in self._standbys for one in self._send(other, now, beats=True)]
        return effects + self._mend(now)

    def _hear(self, message: Progress, now: float) -> list[JournalEffect]:
        """Note what a register says, this one among them."""
        progress = self.progress.get(message.sender.address)
        if progress is None:
            return []  # it is in no list of this register
        progress.heard(message, self.history.end)
        effects: list[JournalEffect] = []
        if isinstance(message, EntriesStored):
            self._commit()
            effects = self._mend(now)
        is_more = self.is_active and not isinstance(message, ActiveHeard)
        if is_more and message.sender != self.identity:
            effects += self._send(message.sender.address, now)
        return effects

    def _commit(self) -> None:
        """Count what a majority has stored."""
        voters = self.history.voters
        ends = sorted(
            (
                self.progress[one.address].stored_by(one) if one.address in self.progress else 0
                for one in voters
            ),
            reverse=True,
        )
        end = ends[len(voters) // 2]
        # Entries of former terms are committed with one of this term only: until then a register
        # with a later term than theirs could be elected without them.
        if end > self.committed and self.history.term_before(end) == self.term:
            self.committed = end

    def _mend(self, now: float) -> list[JournalEffect]:
        """Change the voters, or let a register be active that stays, as
        `octopi.agreement.journal.voter_changes` says.  One change at a time, each on top of a
        committed one."""
        if not self.may_decide or self.history.voters_end > self.committed:
            return []
        if voters := next_voters(self, now):
            return self._append([JournalEntry(self.term, voters=voters)], now)
        return self.step_down(now) if gives_way(self, now) else []

    # --- a standby ---------------------------------------------------------------------------

    def _follow(self, message: EntriesSent | SnapshotSent, now: float) -> list[JournalEffect]:
        """The active register of this term is heard."""
        self.role, self.active = RegisterRole.STANDBY, message.sender
        self._votes.clear()
        self._heard_at, self.wakes_at = now, now + self._patience_s()
        heard = ActiveHeard(self.identity, self.term, message.sent_ms, self.addresses)
        return [SendNow(message.sender.address, heard)]

    def _take(self, sent: EntriesSent) -> list[JournalEffect]:
        """Store entries that follow what is there."""
        history, address = self.history, sent.sender.address
        start, entries = sent.start, sent.entries
        end = start + len(entries)
        known = history.snapshot.end - start
        if known > 0:  # what is in the snapshot is committed, so it is the same there
            start, entries = start + known, entries[known:]
        elif start > history.end:
            return [self._missed(address, history.end)]
        elif history.term_before(start) != sent.term_before:
            return [self._missed(address, max(history.term_start(start), self.committed))]
        effects: list[JournalEffect] = []
        for index, entry in enumerate(entries, start):
            if index < history.end and history.term_before(index + 1) == entry.term:
                continue
            history.put(index, entry)
            effects.append(StoreEntry(StoredAppend(index, entry)))
        self.committed = max(self.committed, min(sent.committed, end))
        stored = EntriesStored(self.identity, self.term, end)
        return [*effects, SendWhenDurable(address, stored)]

    def _missed(self, address: str, end: int) -> SendNow:
        return SendNow(address, EntriesMissed(self.identity, self.term, end))

    def _take_snapshot(self, sent: SnapshotSent) -> list[JournalEffect]:
        """Collect a snapshot, and begin with it when all of it is there."""
        history, address = self.history, sent.sender.address
        has_it = history.snapshot.end <= sent.end <= history.end and (
            history.term_before(sent.end) == sent.end_term
        )
        stored = EntriesStored(self.identity, self.term, sent.end)
        if has_it or sent.end <= self.committed:
            return [SendWhenDurable(address, stored)]
        snapshot = self._pages.add(sent)
        if snapshot is None:
            taken = SnapshotTaken(self.identity, self.term, sent.end, self._pages.count)
            return [SendNow(address, taken)]
        self.history, self.committed = JournalHistory(snapshot), snapshot.end
        effects: list[JournalEffect] = [StoreEntry(one) for one in snapshot_stored(snapshot)]
        return [*effects, SendWhenDurable(address, stored)]

    def check_invariants(self) -> None:
        """Assert what the class promises, as far as one register can see it."""
        history = self.history
        terms = [history.snapshot.term, *(one.term for one in history.entries)]
        assert terms == sorted(terms)
        assert history.end_term <= self.term
        assert history.snapshot.end <= self.committed <= history.end
        assert not self.is_active or self.vote == self.identity
