"""How far each member has written a stream in one epoch, and whether it wrote the same."""

from __future__ import annotations

from collections import Counter
from enum import Enum, unique

from octopi.identifiers import BrokerId, Offset
from octopi.limits import RELAY_AHEAD_MAX, RELAY_POINTS_MAX
from octopi.relay.buffer import RelayBuffer, StreamPoint
from octopi.relay.digest import Digest
from octopi.relay.relay_set import RelaySet


@unique
class Agreement(Enum):
    """How the digests of a stream at one end compare."""

    OPEN = "a quorum has mine, or still may"
    OFF_QUORUM = "a quorum has another one"
    NONE = "no quorum has any one, or ever will"


class WrittenMarks:
    """What the members have told of one stream in one epoch.

    A member counts for an end if its digest there is this relay's own; then everything before that
    is the same.  What is told of ends that this relay has not reached is kept until it has.
    """

    def __init__(self, me: BrokerId, relay_set: RelaySet) -> None:
        self._me = me
        self._set = relay_set
        self._same: dict[BrokerId, Offset] = {}
        """The greatest end at which a member has the digest that this relay has."""
        self._ahead: dict[BrokerId, dict[Offset, Digest]] = {}
        self._other: dict[Offset, dict[BrokerId, Digest]] = {}
        """Digests that differ from this relay's."""

    def hear(self, member: BrokerId, point: StreamPoint, buffer: RelayBuffer) -> None:
        """*member*, which may be this relay, has written up to *point*."""
        if member not in self._set:
            return
        if point.end > buffer.end.end:
            ahead = self._ahead.setdefault(member, {})
            ahead[point.end] = point.digest
            if len(ahead) > RELAY_AHEAD_MAX:
                del ahead[min(ahead)]
            return
        if buffer.digest_at(point.end) == point.digest:
            self._same[member] = max(point.end, self._same.get(member, Offset(0)))
        elif point.end >= buffer.start.end:
            self._other.setdefault(point.end, {})[member] = point.digest
            if len(self._other) > RELAY_POINTS_MAX:
                del self._other[min(self._other)]

    def reached(self, buffer: RelayBuffer) -> None:
        """The buffer goes on further than before: see who had told of its end."""
        for member, ahead in self._ahead.items():
            for end in [one for one in ahead if one <= buffer.end.end]:
                self.hear(member, StreamPoint(end, ahead.pop(end)), buffer)

    def replaced(self, kept: Offset, buffer: RelayBuffer) -> None:
        """The buffer has other transactions behind *kept* than before."""
        self._same = {member: min(end, kept) for member, end in self._same.items()}
        self._other.clear()
        self.reached(buffer)

    def is_level(self, member: BrokerId, buffer: RelayBuffer) -> bool:
        """Whether *member* has all that this relay has, and the same."""
        return self._same.get(member, Offset(-1)) >= buffer.end.end

    def committed(self) -> Offset | None:
        """The greatest end that a quorum has written as this relay has, itself among them; None:
        there is none."""
        mine = self._same.get(self._me)
        ends = sorted(self._same.values(), reverse=True)
        if mine is None or len(ends) < self._set.quorum:
            return None
        return min(mine, ends[self._set.quorum - 1])

    def agreement(self) -> tuple[Agreement, StreamPoint | None, list[BrokerId]]:
        """Whether this relay's digests are those of a quorum; if they are not, a point of the
        quorum and who has it."""
        for end, digests in self._other.items():
            (digest, count), *_ = Counter(digests.values()).most_common(1)
            if count >= self._set.quorum:
                members = [one for one in digests if digests[one] == digest]
                return Agreement.OFF_QUORUM, StreamPoint(end, digest), members
            alike = {self._me, *(one for one, same in self._same.items() if same >= end)}
            alike.difference_update(digests)
            unknown = len(self._set) - len(alike) - len(digests)
            if max(count, len(alike)) + unknown < self._set.quorum:
                return Agreement.NONE, None, []
        return Agreement.OPEN, None, []
