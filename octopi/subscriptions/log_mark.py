"""The mark of one subscription in one log, at that log's leader.

The mark belongs to the member with the newest claim.  A claim is committed together with the mark
before its member hears of either, so a new leader never answers with an older mark than one that a
member was told, and takes no mark of a member that was replaced.  Marks themselves are stored from
time to time, or at once where the member asks for a confirmation.

Pure: calls are events, results are lists of effects (`octopi.subscriptions.effects`).  Times are
seconds on the monotonic clock of the leader.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Final

import attrs

from octopi.errors import Status
from octopi.identifiers import Claim, MemberId, Offset, SubscriptionId, TopicId
from octopi.limits import (
    CLAIM_STEP_MAX,
    COUNTED_MAX,
    MARK_BYTES_PER_S,
    MARKS_COUNT,
    SKIPPED_RANGES_MAX,
)
from octopi.position import NO_ANCHOR, Anchor
from octopi.security.token_bucket import TokenBucket
from octopi.subscriptions.effects import (
    Effect,
    Session,
    TellAttached,
    TellDetached,
    TellDone,
    TellMarked,
    TellMarks,
    TellRefused,
)
from octopi.subscriptions.entries import NO_MEMBER, LostSpan, MarkEntry, mark_key
from octopi.subscriptions.log_view import LogView
from octopi.subscriptions.pending_states import PendingStates
from octopi.subscriptions.times import WallTimes

RECORD_BYTES: Final = 200
"""About what a stored mark adds to the log beside its texts: the record's header and numbers."""

UNUSED_FACTOR: Final = 2
"""A mark lives longer than its subscription, of which the coordinator knows more."""

GRACE_S: Final = 3600.0
"""No mark is deleted so soon after the leader began: its member may have yet to come."""

_FENCED: Final = "another member has this log"


class LogMark:
    """A subscription's mark in a log, in the modes in which one member has a log.

    Invariants: the newest entry that was appended is never ahead of the one in memory, and the
    committed one never ahead of that; claims never go back.
    """

    def __init__(
        self,
        sid: SubscriptionId,
        topic_id: TopicId,
        entry: MarkEntry,
        pending: PendingStates,
        times: WallTimes,
        now: float,
    ) -> None:
        """Begin with *entry*, the newest that is committed, or is about to be appended."""
        self.sid = sid
        self.topic_id = topic_id
        self.key = mark_key(sid, topic_id)
        self.entry = entry
        self.holder: Session | None = None
        """The member that may mark."""
        self.holder_name = NO_MEMBER
        self._pending = pending
        self._times = times
        self._began_at = now
        self._changed_at = times.monotonic(entry.changed_ms)
        self._appended = entry
        self._unstored_count = 0
        self._unstored_since: float | None = None
        self._store_after = now
        """The mark takes too much of the log before this time."""
        self._bucket = TokenBucket(MARK_BYTES_PER_S, now)

    @property
    def processed_end(self) -> Offset:
        """All below this is known to be processed."""
        return self.entry.mark

    def open(self, session: Session, now: float) -> list[Effect]:
        """Make the mark, which is new."""
        return self._append(now, TellDone(session))

    # --- members -----------------------------------------------------------------------

    def has(self, session: Session) -> bool:
        """Whether that member may mark."""
        return session == self.holder

    def attach(
        self,
        session: Session,
        member: MemberId,
        claim: Claim,
        log: LogView,
        now: float,
        credit: tuple[int, int] = (0, 0),
    ) -> list[Effect]:
        """*member* with *claim* wants to read from the mark, and to mark.  Only queues ask for
        *credit*.

        It is told when claim and mark are committed.  An older claim is refused, and so is one
        that is too far ahead: it would fence all members to come.  The leader can't know which
        claims the coordinator gave, since that may be another broker; a claim within
        `CLAIM_STEP_MAX` that was not given fences the real members until a reset
        (`octopi.subscriptions.coordinator.Coordinator.reset`).
        """
        if not 1 <= claim <= COUNTED_MAX:
            return [TellRefused(session, Status.INVALID_OPTION, f"{claim} is no claim")]
        if claim > self.entry.claim + CLAIM_STEP_MAX:
            reason = (
                f"the newest claim of this log is {self.entry.claim}, so the coordinator can't "
            )
            reason += f"have given {claim}; if it did, `octopi-node subscriptions reset --force` "
            reason += f"with {self.entry.name} --topic {self.entry.topic} gets the log going again"
            return [TellRefused(session, Status.INVALID_OPTION, reason)]
        if claim < self.entry.claim:
            return [TellRefused(session, Status.MEMBER_FENCED, _FENCED)]
        effects = self._end_holder(Status.MEMBER_FENCED, _FENCED)
        self.holder, self.holder_name = session, member
        self.entry = attrs.evolve(self._agreeing_with(log), claim=claim)
        entry = self.entry
        told = TellAttached(session, entry.mark, entry.anchor, claim, log.start, entry.lost)
        return effects + self._when_committed(now, told)

    def detach(
        self,
        session: Session,
        now: float,
        seen: Container[tuple[Offset, int]] | None = None,
    ) -> list[Effect]:
        """The member leaves, or its connection broke: store what it marked.  *seen*: only a queue
        needs that."""
        if session != self.holder:
            return []
        self.holder, self.holder_name = None, NO_MEMBER
        return self.store(now)

    def mark(
        self,
        session: Session,
        offset: Offset,
        log: LogView,
        now: float,
        *,
        confirm: int | None = None,
        anchor: Anchor = NO_ANCHOR,
    ) -> list[Effect]:
        """The member has processed everything below *offset*, the start of a record or the end of
        the log.  *confirm*: the number of the mark, which is answered when it is committed.
        *anchor*: of *offset*, in the log that the member read; empty: not known.

        A mark below the present one changes nothing.  One that the log can't have ends the attach,
        as does one in a history that the log has lost.
        """
        if session != self.holder:
            return []  # it was told that it has been detached
        if (common := _common(offset, anchor, log)) is not None:
            reason = f"the records that were read before offset {offset} were lost: this log has "
            reason += f"them only up to offset {common}"
            return self._end_holder(Status.HISTORY_FORKED, reason) + self.store(now)
        if offset > self.entry.mark:
            if (fault := _fault(offset, log)) is not None:
                return self._end_holder(*fault) + self.store(now)
            self._advance(offset, log, now)
        if confirm is not None:
            return self._when_committed(now, TellMarked(session, confirm))
        if self._unstored_count >= MARKS_COUNT and self._store_after <= now:
            return self.store(now)
        return []

    def _advance(self, offset: Offset, log: LogView, now: float) -> None:
        skipped, lost = self.entry.skipped, self.entry.lost
        if lost is not None and (offset >= lost.end or lost.begin >= log.start):
            skipped = [*skipped, lost][-SKIPPED_RANGES_MAX:]
        anchor = log.anchor_before(offset)
        self.entry = attrs.evolve(
            self.entry, mark=offset, anchor=anchor, lost=None, skipped=skipped
        )
        self._unstored_count += 1
        if self._unstored_since is None:
            self._unstored_since = now

    # --- storing -----------------------------------------------------------------------

    @property
    def due_at(self) -> float | None:
        """When to call `tick`; None: there is nothing to wait for."""
        times = [] if self._unstored_since is None else [self._store_at]
        if self.entry.expires_ms is not None:
            times.append(self._life_at)
        return min(times, default=None)

    @property
    def _store_at(self) -> float:
        assert self._unstored_since is not None
        interval_s = self.entry.mark_interval_ms / 1000
        return max(self._unstored_since + interval_s, self._store_after)

    @property
    def _life_at(self) -> float:
        """When to note that a member is still there, or to delete what none was there for."""
        assert self.entry.expires_ms is not None
        expires_s = self.entry.expires_ms / 1000
        if self.holder is not None:
            return self._changed_at + expires_s / 4
        return max(self._changed_at + UNUSED_FACTOR * expires_s, self._began_at + GRACE_S)

    def is_expired(self, now: float) -> bool:
        """Whether no member was there for so long that the mark is to be deleted."""
        if self.entry.expires_ms is None or self.holder is not None or self._unstored_count:
            return False
        return self._life_at <= now and not self._pending.has(self.key)

    def tick(self, now: float) -> list[Effect]:
        """Store what is due."""
        if self._unstored_since is not None and self._store_at <= now:
            return self.store(now)
        if self.entry.expires_ms is not None and self.holder is not None and self._life_at <= now:
            return self._append(now)
        return []

    def store(self, now: float) -> list[Effect]:
        """Append the mark, if it is not in the log yet."""
        return [] if self.is_stored else self._append(now)

    def committed(self, entry: MarkEntry, now: float) -> list[Effect]:
        """The oldest entry that was appended is committed."""
        return []

    @property
    def has_more(self) -> bool:
        """Whether there is more to do at once than one call did."""
        return False

    @property
    def is_stored(self) -> bool:
        """Whether the mark is appended as it is."""
        return self._unstored_since is None

    # --- operating ---------------------------------------------------------------------

    def reset(
        self, session: Session, claim: Claim, offset: Offset, log: LogView, now: float
    ) -> list[Effect]:
        """Set the mark to *offset* with *claim*, the coordinator's for this reset; from its commit
        on the reset is in force.  To do it again is harmless."""
        if claim < self.entry.claim:
            reason = "the log was assigned to a member after this reset began"
            return [TellRefused(session, Status.MEMBER_FENCED, reason)]
        fault = _fault(offset, log) if offset >= log.start else _below(log)
        if fault is not None:
            return [TellRefused(session, *fault)]
        effects = self._end_holder(Status.MEMBER_FENCED, "the mark was reset")
        entry = attrs.evolve(
            self.entry, mark=offset, anchor=log.anchor_before(offset), claim=claim, lost=None
        )
        return effects + self._set_mark(entry, now, TellDone(session))

    def _set_mark(self, entry: MarkEntry, now: float, told: Effect) -> list[Effect]:
        self.entry = entry
        return self._when_committed(now, told)

    def delete(self, status: Status, reason: str, *then: Effect) -> list[Effect]:
        """Remove the mark, and tell its member when that is committed."""
        ended = self._end_holder(status, reason)
        return [self._pending.append(self.key, None, *ended, *then)]

    def describe(self, session: Session, log: LogView) -> list[Effect]:
        """Tell how far the subscription is, as the leader has it in memory."""
        entry, mark = self.entry, self.processed_end
        begin = max(mark, log.start)
        told = TellMarks(
            session,
            mark,
            entry.anchor,
            entry.claim,
            log.highwater,
            max(0, log.highwater - begin),
            entry.changed_ms,
            self.holder_name,
            _lost_behind(mark, log, entry.lost),
            tuple(entry.skipped),
            held_bytes=log.held_bytes(begin),
        )
        return [told]

    def once_committed(self, told: list[Effect], now: float) -> list[Effect]:
        """*told*, when the mark in memory is committed."""
        return [effect for one in told for effect in self._when_committed(now, one)]

    # --- effects -----------------------------------------------------------------------

    def _agreeing_with(self, log: LogView) -> MarkEntry:
        """The entry, with a mark that this log can have and with what the log has no more."""
        entry = self.entry
        common = _common(entry.mark, entry.anchor, log)
        if common is None and entry.mark > log.end:
            common = log.end
        if common is not None:
            entry = attrs.evolve(
                entry,
                mark=common,
                anchor=log.anchor_before(common),
                lost=LostSpan(common, max(entry.mark, common)),
            )
        if entry.mark < log.start:
            entry = attrs.evolve(entry, lost=_lost_behind(entry.mark, log, entry.lost))
        return entry

    def _end_holder(self, status: Status, reason: str) -> list[Effect]:
        if self.holder is None:
            return []
        ended = TellDetached(self.holder, status, reason)
        self.holder, self.holder_name = None, NO_MEMBER
        return [ended]

    def _when_committed(self, now: float, answer: Effect) -> list[Effect]:
        """*answer*, once the entry in memory is committed."""
        if self.entry == self._appended:
            return self._pending.when_committed(self.key, answer)
        return self._append(now, answer)

    def _append(self, now: float, *then: Effect) -> list[Effect]:
        self.entry = self._appended = attrs.evolve(self.entry, changed_ms=self._times.of(now))
        self._changed_at = now
        self._unstored_count, self._unstored_since = 0, None
        entry = self.entry
        texts = len(self.key) + len(entry.name) + len(entry.topic) + len(entry.anchor)
        self._bucket.spend(RECORD_BYTES + texts + 20 * len(entry.skipped), now)
        self._store_after = now + self._bucket.wait_s(now)
        return [self._pending.append(self.key, entry, *then)]


def _common(offset: Offset, anchor: Anchor, log: LogView) -> Offset | None:
    """The last offset up to which *log* agrees with one that has *anchor* at *offset*; None: up to
    *offset*, as far as is known."""
    common = log.fork(offset, anchor)
    return log.end if common is None and anchor and offset > log.end else common


def _lost_behind(mark: Offset, log: LogView, lost: LostSpan | None) -> LostSpan | None:
    """What the log has no more behind *mark*; *lost* is known already."""
    if mark >= log.start:
        return lost
    return LostSpan(mark, log.start if lost is None else max(log.start, lost.end))


def _fault(offset: Offset, log: LogView) -> tuple[Status, str] | None:
    """Why no mark can stand at *offset*; None: one can, or could while the log had it."""
    if offset > log.end:
        reason = f"the log ends at offset {log.end}, before {offset}"
        return Status.OFFSET_OUT_OF_RANGE, reason
    if offset >= log.start and not log.has_place(offset):
        return Status.OFFSET_INSIDE_RECORD, f"no record begins at offset {offset}"
    return None


def _below(log: LogView) -> tuple[Status, str]:
    return Status.OFFSET_OUT_OF_RANGE, f"the log starts at offset {log.start}"
