"""When an epoch may begin, and with which history: votes, answers, and what follows from them."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from octopi.identifiers import BrokerId, Offset, TopicId
from octopi.limits import RELAY_ANSWER_S
from octopi.relay.buffer import StreamPoint
from octopi.relay.incarnations import (
    NO_LIFE,
    Lives,
    RelayLife,
    Testimony,
    newest_lives,
    stale_in,
)
from octopi.relay.messages import RelayAnswer, RelayVote
from octopi.relay.relay_set import RelaySet
from octopi.relay.timelines import NEVER, RelayEpoch


@attrs.frozen
class StreamTarget:
    """What a relay has to hold of a stream before it is part of an epoch."""

    point: StreamPoint
    sources: tuple[BrokerId, ...]
    """Who has it."""


@attrs.frozen
class EpochPlan:
    """How an epoch begins for a relay."""

    epoch: RelayEpoch
    relay_set: RelaySet
    """Who is a member in it."""
    lives: Lives
    targets: dict[TopicId, StreamTarget]
    """All streams that there are."""
    held: RelayEpoch = NEVER
    """The epoch whose history goes on."""
    founds: bool = False
    """Whether a timeline begins with it."""
    voters: frozenset[BrokerId] = frozenset()
    """Whose votes it rests on."""


@attrs.frozen
class _CastVote:
    at: float
    life: RelayLife
    vote: RelayVote


class Votes:
    """The votes for the epoch of which this relay is the sequencer.

    They count for half a second: each voter repeats its vote while it waits.
    """

    def __init__(self) -> None:
        self._cast: dict[BrokerId, _CastVote] = {}

    def clear(self) -> None:
        """Another epoch is promised."""
        self._cast.clear()

    def add(self, voter: BrokerId, life: RelayLife, vote: RelayVote, now: float) -> None:
        """*voter* votes in that *life*."""
        self._cast[voter] = _CastVote(now, life, vote)

    def plan(
        self, epoch: RelayEpoch, lives: Lives, known_set: RelaySet, now: float
    ) -> EpochPlan | None:
        """How *epoch* begins; None: there are not enough votes.  *lives*, *known_set*: those that
        are known.

        A quorum of votes counts only if none of the voters knows of a later life of another one.
        The quorum is that of the set in which the history was held that goes on.  A founding is
        made by the newest set; it has to have the votes of all that are not gone, too, which is
        for the caller to check.
        """
        cast = self._valid(epoch, lives, now)
        if not cast:
            return None
        held = max(one.vote.held for one in cast.values())
        best = {voter: one.vote for voter, one in cast.items() if one.vote.held == held}
        founds = held.timeline != epoch.timeline
        relay_set = known_set if founds else next(iter(best.values())).relay_set
        if sum(one in relay_set for one in cast) < relay_set.quorum:
            return None
        known = newest_lives([lives, *(one.vote.lives for one in cast.values())])
        voters = frozenset(cast)
        return EpochPlan(epoch, relay_set, known, longest_of(best), held, founds, voters)

    def _valid(self, epoch: RelayEpoch, lives: Lives, now: float) -> dict[BrokerId, _CastVote]:
        cast = {
            voter: one
            for voter, one in self._cast.items()
            if one.vote.epoch == epoch
            and now - one.at <= RELAY_ANSWER_S
            and one.life >= lives.get(voter, NO_LIFE)
        }
        stale = stale_in(Testimony(one, cast[one].life, cast[one].vote.lives) for one in cast)
        return {voter: one for voter, one in cast.items() if voter not in stale}


def longest_of(votes: dict[BrokerId, RelayVote]) -> dict[TopicId, StreamTarget]:
    """Of each stream the longest history among votes from one epoch, and who has it.  They are
    prefixes of each other, but no voter needs to have the longest one of every stream.

    If memory was wrong somewhere, two may end alike and differ; then the one counts of which more
    was delivered, since a quorum has written that.
    """
    best: dict[TopicId, tuple[Offset, Offset]] = {}
    targets: dict[TopicId, StreamTarget] = {}
    for voter, vote in sorted(votes.items()):
        for topic_id, point, highwater in vote.streams:
            known = targets.get(topic_id)
            if known is None or (point.end, highwater) > best[topic_id]:
                sources = known.sources if known is not None and known.point == point else ()
                best[topic_id] = (point.end, highwater)
                targets[topic_id] = StreamTarget(point, (voter, *sources))
            elif point == known.point:
                targets[topic_id] = StreamTarget(point, (*known.sources, voter))
    return targets


@attrs.frozen
class _JoinAnswer:
    at: float
    life: RelayLife
    answer: RelayAnswer


class JoinAnswers:
    """What others answered to this relay, which knows nothing and asks to take part.

    They count for half a second: it asks again and again.
    """

    def __init__(self) -> None:
        self._answers: dict[BrokerId, _JoinAnswer] = {}

    def clear(self) -> None:
        """It has another life, or takes part."""
        self._answers.clear()

    def add(self, member: BrokerId, life: RelayLife, answer: RelayAnswer, now: float) -> None:
        """*member* has answered in that *life*."""
        self._answers[member] = _JoinAnswer(now, life, answer)

    def plan(self, lives: Lives, now: float) -> EpochPlan | None:
        """How this relay may join; None: not yet.

        A quorum of others, by the set of the latest epoch among them, has to be part of the same
        timeline, and the sequencer of that epoch has to be one of those who answered.  None of them
        may know of a later life of another one.
        """
        valid = {
            member: one
            for member, one in self._answers.items()
            if now - one.at <= RELAY_ANSWER_S and one.life >= lives.get(member, NO_LIFE)
        }
        timelines = [one.answer.epoch.timeline for one in valid.values()]
        if not timelines:
            return None
        most = max(timelines, key=lambda one: (timelines.count(one), one))
        valid = {member: one for member, one in valid.items() if one.answer.epoch.timeline == most}
        testimonies = [
            Testimony(member, one.life, one.answer.lives) for member, one in valid.items()
        ]
        latest = max(one.answer.epoch for one in valid.values())
        told = next(one.answer for one in valid.values() if one.answer.epoch == latest)
        relay_set, sequencer = told.relay_set, told.relay_set.sequencer(latest)
        if sum(one in relay_set for one in valid) < relay_set.quorum or stale_in(testimonies):
            return None
        from_it = valid.get(sequencer)
        if from_it is None or from_it.answer.epoch != latest or from_it.answer.streams is None:
            return None
        known = newest_lives([lives, *_lives_of(testimonies)])
        sources = (sequencer,)
        targets = {topic: StreamTarget(point, sources) for topic, point in from_it.answer.streams}
        return EpochPlan(latest, relay_set, known, targets)


def _lives_of(testimonies: Iterable[Testimony]) -> list[Lives]:
    return [one.lives for one in testimonies]
