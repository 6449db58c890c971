"""What a member tells the leader of one of its logs, and what it may conclude from the answers.

The leader keeps the mark: the offset below which everything is processed.  It answers an `attach`
when the member's claim is committed, and from then on takes marks of that claim only.

If all in-sync replicas of the log lost records, those may be gone that a mark is about, and others
may stand in their place.  So a mark has the anchor of its offset (`octopi.position`), and the
leader ends the attachment when its log has another history there.  Then the member forgets what it
read and marked, and begins again at the mark that the leader knows.

Marks are absolute, so late, lost and doubled ones do no harm, and only the newest matters.  It is
sent soon after it was set, and sent again when the connection was broken and the leader, perhaps a
new one, knows an older one.  A mark that is to be *confirmed* is answered when it is committed.

A member that hears nothing from the leader stops handing out messages after half the session
timeout: a pause of the network or of the program may be long enough for the log to have another
member.  Each answer counts from when its question was sent, since the leader knew the member's
claim for the newest at some moment after that.  While messages wait to be handed out, the mark is
confirmed now and then for that reason alone.

Pure: calls are events, results are lists of effects, to be performed in their order.  Times are
seconds on the monotonic clock of the member.
"""

from __future__ import annotations

import math
from collections import deque
from enum import Enum, auto
from typing import Final, TypeAlias

import attrs

from octopi.clients.leader_errors import may_pass_at_a_leader
from octopi.errors import OctopiError, RefusedError, Status
from octopi.identifiers import Offset
from octopi.position import NO_ANCHOR, Anchor

LostRange: TypeAlias = tuple[Offset, Offset]
"""Records of a log that are gone: from where to where (exclusive, bytes)."""

MARK_SENDING_S: Final = 0.1
"""A mark waits so long for newer ones before it is sent."""
_PROBES: Final = 4
"""Questions in a session timeout, of which the half may stay unanswered."""


@attrs.frozen
class SendMark:
    """Tell the leader how far the program is."""

    offset: Offset
    acknowledge: int | None
    """The number to answer with when the mark is committed; None: no answer."""
    anchor: Anchor = NO_ANCHOR
    """Of the offset, where the program read."""


class AttachRemedy(Enum):
    """What to do after an attachment ended."""

    ATTACH_AGAIN = auto()
    """Look up the log's leader, and attach there with the same claim.  If the leader knows no mark,
    the log may have lost it: `octopi.clients.subscribing.leader_session` finds that out."""
    BEGIN_AGAIN = auto()
    """The leader's log has not what was marked: `MarkSession.begin_again`, and attach again."""
    LOST = auto()
    """Another member has the log, or its mark was reset."""
    STOP = auto()
    """Trying again can't help."""


def attach_remedy(error: OctopiError) -> AttachRemedy:
    """What to do after an attachment ended with *error*."""
    match error:
        case RefusedError(status=Status.MEMBER_FENCED):
            return AttachRemedy.LOST
        case RefusedError(status=Status.HISTORY_FORKED):
            return AttachRemedy.BEGIN_AGAIN
        case RefusedError(status=Status.UNKNOWN_SUBSCRIPTION):
            return AttachRemedy.ATTACH_AGAIN
        case _:
            return AttachRemedy.ATTACH_AGAIN if may_pass_at_a_leader(error) else AttachRemedy.STOP


class MarkSession:
    """The mark of one log, as the member with one claim sees it.

    Invariants: the mark goes back only where it begins again; what is confirmed was marked before;
    nothing is sent while there is no attachment.
    """

    def __init__(self, session_timeout_s: float) -> None:
        self._session_timeout_s = session_timeout_s
        self.is_attached = False
        """Whether the leader takes marks now."""
        self._asked_at: float | None = None
        """When the attachment was asked for that is to be answered."""
        self.start: Offset | None = None
        """Where reading begins: the mark at the first attachment; None: that is to be told."""
        self.marked: Offset = Offset(0)
        """The newest mark of the program."""
        self.anchor: Anchor = NO_ANCHOR
        """Of `marked`, where the program read; empty: not known."""
        self._loss: LostRange | None = None
        """What the leader told last to be lost."""
        self._sent: Offset = Offset(0)
        """The newest mark that was sent on this attachment, or that it was answered with."""
        self._sent_at = -math.inf
        self._word_at: float | None = None
        """When the newest question was sent that the leader has answered."""
        self.silent_at = -math.inf
        """Until when messages may be handed out."""
        self._numbers = 0
        self._unanswered: deque[tuple[int, float, Offset]] = deque()
        """Confirmations asked for on this attachment: number, when, which mark."""
        self.confirmed: Offset = Offset(0)
        """The newest mark that is known to be committed."""
        self._to_confirm: Offset | None = None
        """The program waits for the commit of this mark."""
        self.is_wanted = False
        """Whether messages wait to be handed out."""

    # --- the attachment ----------------------------------------------------------------

    def attaching(self, now: float) -> None:
        """The leader is asked for an attachment."""
        self._asked_at = now
        self.is_attached = False
        self._unanswered.clear()

    def is_set_back(self, mark: Offset, loss: LostRange | None) -> bool:
        """Whether the answer to a later attachment tells that what was marked is lost: *mark* is
        older than the confirmed one, or *loss*, which all replicas lost, is news.  Then
        `begin_again`, before `attached`."""
        is_news = loss is not None and loss != self._loss
        self._loss = loss
        return self.start is not None and (is_news or mark < self.confirmed)

    def begin_again(self) -> None:
        """What was marked is of records that are lost: the next attachment is the first one."""
        self.is_attached = False
        self.is_wanted = False
        self.start = self._word_at = self._to_confirm = None
        self.marked = self._sent = self.confirmed = Offset(0)
        self.anchor = NO_ANCHOR
        self.silent_at = -math.inf
        self._unanswered.clear()

    def attached(self, mark: Offset, now: float, anchor: Anchor = NO_ANCHOR) -> list[SendMark]:
        """The leader has committed the claim, and *mark* with *anchor* is what it knows."""
        assert self._asked_at is not None, "nobody asked for it"
        self.is_attached = True
        self._heard(self._asked_at)
        if self.start is None:
            self.start = mark
        if mark > self.marked or (mark == self.marked and not self.anchor):
            self.marked, self.anchor = mark, anchor
        self._sent = mark
        self.confirmed = max(self.confirmed, mark)
        if self._is_waited_for:
            return [self._ask(now)]
        return [self._tell(now)] if self.marked > self._sent else []

    def disconnected(self) -> None:
        """The attachment has ended, and may be had again."""
        self.is_attached = False
        self._unanswered.clear()

    # --- marks -------------------------------------------------------------------------

    def mark(self, offset: Offset, now: float, anchor: Anchor = NO_ANCHOR) -> list[SendMark]:
        """The program has processed everything below *offset*, which has *anchor*."""
        if offset <= self.marked:
            return []
        self.marked, self.anchor = offset, anchor
        if self.is_attached and now >= self._sent_at + MARK_SENDING_S:
            return [self._tell(now)]
        return []

    def flush(self, now: float) -> list[SendMark]:
        """Nothing more will be marked: what waits is sent now."""
        return [self._tell(now)] if self.is_attached and self.marked > self._sent else []

    def commit(self, now: float) -> list[SendMark]:
        """The program wants to know when its mark is committed: once `is_committed` of what is
        `marked` now."""
        if self.is_committed(self.marked):
            return []
        self._to_confirm = self.marked
        return [self._ask(now)] if self.is_attached else []

    @property
    def is_settled(self) -> bool:
        """Whether all that was marked is known to be committed."""
        return self.start is None or self.confirmed >= self.marked

    def is_committed(self, offset: Offset) -> bool:
        """Whether a mark at *offset* or behind it is known to be committed."""
        return self.start is not None and self.confirmed >= offset

    def acknowledged(self, number: int) -> None:
        """The leader has committed the mark that was sent with that number, and all before it."""
        while self._unanswered and self._unanswered[0][0] <= number:
            _, sent_at, offset = self._unanswered.popleft()
            self._heard(sent_at)
            self.confirmed = max(self.confirmed, offset)
        if not self._is_waited_for:
            self._to_confirm = None

    # --- time --------------------------------------------------------------------------

    def may_hand_out(self, now: float) -> bool:
        """Whether the leader was heard of lately."""
        return now < self.silent_at

    def due_at(self) -> float | None:
        """When to call `tick`; None: there is nothing to do."""
        if not self.is_attached:
            return None
        times = []
        if self.marked > self._sent:
            times.append(self._sent_at + MARK_SENDING_S)
        if self.is_wanted:
            times.append(self._asked_last_at + self._session_timeout_s / _PROBES)
        return min(times, default=None)

    def tick(self, now: float) -> list[SendMark]:
        """Send what is due."""
        due_at = self.due_at()
        if due_at is None or now < due_at:
            return []
        is_probe_due = now >= self._asked_last_at + self._session_timeout_s / _PROBES
        return [self._ask(now) if self.is_wanted and is_probe_due else self._tell(now)]

    # --- sending -----------------------------------------------------------------------

    @property
    def _is_waited_for(self) -> bool:
        return self._to_confirm is not None and not self.is_committed(self._to_confirm)

    @property
    def _asked_last_at(self) -> float:
        if self._unanswered:
            return self._unanswered[-1][1]
        assert self._word_at is not None
        return self._word_at

    def _tell(self, now: float) -> SendMark:
        self._sent, self._sent_at = self.marked, now
        return SendMark(self.marked, None, self.anchor)

    def _ask(self, now: float) -> SendMark:
        self._numbers += 1
        self._sent, self._sent_at = self.marked, now
        self._unanswered.append((self._numbers, now, self.marked))
        return SendMark(self.marked, self._numbers, self.anchor)

    def _heard(self, sent_at: float) -> None:
        self._word_at = sent_at if self._word_at is None else max(self._word_at, sent_at)
        self.silent_at = self._word_at + self._session_timeout_s / 2

    def check_invariants(self) -> None:
        """Assert what the class promises."""
        assert self.is_attached or not self._unanswered
        assert self._sent <= self.marked or not self.is_attached
        assert self.confirmed <= self.marked
