"""Whom a relay hears, what they say of themselves, and when it fences itself."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection

import attrs

from octopi.identifiers import BrokerId
from octopi.limits import RELAY_ANSWER_S, RELAY_BACK_S, RELAY_LOST_S, RELAY_SILENCE_S
from octopi.relay.messages import RelayBeat, RelayStatus
from octopi.relay.relay_set import RelaySet
from octopi.relay.timelines import NEVER, RelayEpoch, Timeline

_LEADS = (RelayStatus.NORMAL, RelayStatus.CHANGING)


@attrs.define
class _Heard:
    at: float
    beat: RelayBeat | None = None
    beat_at: float = -math.inf


class Hearing:
    """What a relay hears of the other members of its set."""

    def __init__(self, me: BrokerId, relay_set: RelaySet, now: float) -> None:
        self._me = me
        self.relay_set = relay_set
        """The members that count."""
        self._born = now
        self._heard: dict[BrokerId, _Heard] = {}
        self.stuck_since: float | None = None
        """Since when no timeline is held by a quorum of those that are heard; None: one is."""

    def heard(self, member: BrokerId, now: float) -> None:
        """A message of *member* has come."""
        self._heard.setdefault(member, _Heard(now)).at = now

    def told(self, member: BrokerId, beat: RelayBeat) -> None:
        """*member*, which was heard, says what it is."""
        known = self._heard[member]
        known.beat, known.beat_at = beat, known.at

    def forget(self, member: BrokerId) -> None:
        """*member* has another life: what it said of itself is not true any more."""
        if member in self._heard:
            self._heard[member].beat = None

    def fresh(self, now: float) -> set[BrokerId]:
        """The members that were heard within the last 0.5 s, and this relay."""
        return {self._me} | {
            one for one, known in self._heard.items() if now - known.at <= RELAY_SILENCE_S
        }

    def beats(self, now: float) -> dict[BrokerId, RelayBeat]:
        """What the fresh members said last."""
        fresh = self.fresh(now)
        return {
            one: known.beat
            for one, known in self._heard.items()
            if one in fresh and known.beat is not None
        }

    def trusted(self, now: float, *, may_lead: bool) -> set[BrokerId]:
        """The fresh members that don't say that they have nothing, or are fenced; this relay, if it
        *may_lead*."""
        beats = self.beats(now)
        trusted = {
            one for one in self.fresh(now) if one not in beats or beats[one].status in _LEADS
        }
        if not may_lead:
            trusted.discard(self._me)
        return trusted

    def misses(self, sequencer: BrokerId, now: float) -> bool:
        """Whether a quorum, of which this relay is one, does not hear *sequencer*, or hears that it
        has no history any more.  One broken connection to it is no reason for a change."""
        trusted = self.trusted(now, may_lead=True)
        blind = sum(sequencer not in beat.hears for beat in self._counted(now))
        return blind + (sequencer not in trusted) >= self.relay_set.quorum

    def _counted(self, now: float) -> list[RelayBeat]:
        """What the fresh members of the set said last."""
        return [beat for one, beat in self.beats(now).items() if one in self.relay_set]

    def normal_in(self, epoch: RelayEpoch, now: float) -> list[BrokerId]:
        """The fresh members that are part of *epoch*; its sequencer first."""
        sequencer = self.relay_set.sequencer(epoch)
        found = [
            one
            for one, beat in self.beats(now).items()
            if beat.status is RelayStatus.NORMAL and beat.epoch == epoch
        ]
        return sorted(found, key=lambda one: (one != sequencer, one))

    def holders(self, mine: RelayBeat, now: float) -> Counter[Timeline]:
        """How many hold each timeline: they were part of it last, and have promised no other one.
        *mine*: what this relay says of itself."""
        said = self._counted(now) + ([mine] if self._me in self.relay_set else [])
        return Counter(
            beat.held.timeline
            for beat in said
            if beat.held != NEVER and beat.held.timeline == beat.epoch.timeline
        )

    def live_timeline(self, now: float) -> Timeline | None:
        """The timeline of which a quorum of the others are a part, if there is one."""
        normal = Counter(
            beat.epoch.timeline for beat in self._counted(now) if beat.status is RelayStatus.NORMAL
        )
        quorum = self.relay_set.quorum
        return next((one for one, count in normal.items() if count >= quorum), None)

    def is_gone(self, member: BrokerId, now: float) -> bool:
        """Whether *member* has been silent for so long that it has stopped; it is, sooner, if it
        said last that it is empty, as one that is starting again and again."""
        known = self._heard.get(member)
        silence = now - (known.at if known is not None else self._born)
        is_empty = known is not None and self._is_still_empty(known)
        return silence > (2 * RELAY_SILENCE_S if is_empty else RELAY_LOST_S)

    def _is_still_empty(self, known: _Heard) -> bool:
        """Whether a member that said that it is empty can't have joined since: there was no
        timeline any more that it could have joined."""
        beat, stuck_since = known.beat, self.stuck_since
        said_so = beat is not None and beat.status is RelayStatus.JOINING and beat.held == NEVER
        return said_so and stuck_since is not None and known.beat_at > stuck_since + RELAY_ANSWER_S

    def are_all(self, members: Collection[BrokerId], relay_set: RelaySet, now: float) -> bool:
        """Whether *members* are a quorum of *relay_set*, and all its others are gone."""
        return sum(one in relay_set for one in members) >= relay_set.quorum and all(
            one in members or self.is_gone(one, now) for one in relay_set.others(self._me)
        )

    def hears_quorum(self, relay_set: RelaySet, now: float) -> bool:
        """Whether this relay hears a quorum of *relay_set*, itself included."""
        return sum(one in relay_set for one in self.fresh(now)) >= relay_set.quorum


@attrs.define
class Fence:
    """Whether a relay is fenced: it hears no quorum, or has not for long enough."""

    closed: bool = False
    heard_since: float | None = None
    """Since when it hears a quorum again."""

    def closes(self, *, hears_quorum: bool) -> bool:
        """Whether a relay fences itself now."""
        if self.closed or hears_quorum:
            return False
        self.closed, self.heard_since = True, None
        return True

    def opens(self, now: float, *, hears_quorum: bool) -> bool:
        """Whether a fenced relay goes on now."""
        if not self.closed:
            return False
        if not hears_quorum:
            self.heard_since = None
            return False
        if self.heard_since is None:
            self.heard_since = now
        if now - self.heard_since < RELAY_BACK_S:
            return False
        self.closed = False
        return True
