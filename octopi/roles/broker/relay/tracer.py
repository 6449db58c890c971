"""The trace steps of one relay partition at one broker: a table from effects to steps.

`octopi.roles.broker.relay.partition` has a step traced before an effect and another one after it.
There is a tracer only if the environment has an observer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from octopi.environment import Trace
from octopi.identifiers import BrokerId, Offset, PartitionId, TopicId
from octopi.relay.digest import Digest
from octopi.relay.effects import (
    BeginLife,
    EnterStatus,
    MoveHighwater,
    RelayEffect,
    SendToRelay,
    StoreGeneration,
    TellGap,
    TellTimeline,
)
from octopi.relay.member import RelayMember
from octopi.relay.messages import (
    RelayAnswer,
    RelayAsk,
    RelayCompare,
    RelayCompared,
    RelayFetch,
    RelayIncoming,
    RelayPart,
    RelayRefused,
    RelayStart,
    RelaySubmit,
    RelaySubmitted,
    RelayVote,
    RelayWritten,
)
from octopi.relay.receiver import AnswerProducer, ReceiverEffect
from octopi.tracing import steps
from octopi.tracing.step import Step

After = Callable[[], None]
"""Traces the step after an effect."""


def _nothing() -> None:
    """There is no step after the effect."""


class RelayTracer:
    """Traces what *relay* does in relay partition *number*."""

    def __init__(self, trace: Trace, number: PartitionId, relay: BrokerId) -> None:
        self._trace = trace
        self._number, self._relay = number, relay
        self._topics: dict[int, TopicId] = {}
        """The topic of each produce that waits, by its number."""
        self._steps: Final[dict[type, tuple[Callable[..., Step], Callable[..., Step]]]] = {
            RelaySubmit: (steps.M2Submitting, steps.M2Submitted),
            RelayIncoming: (steps.M3Publishing, steps.M3Published),
            RelaySubmitted: (steps.M4Placing, steps.M4Placed),
            RelayRefused: (steps.M4Placing, steps.M4Placed),
            RelayWritten: (steps.M5Telling, steps.M5Told),
            RelayVote: (steps.M10Voting, steps.M10Voted),
            RelayStart: (steps.M11Starting, steps.M11Started),
            RelayAsk: (steps.M15Asking, steps.M15Asked),
            RelayAnswer: (steps.M16Answering, steps.M16Answered),
            RelayCompare: (steps.M17Asking, steps.M17Asked),
            RelayFetch: (steps.M17Asking, steps.M17Asked),
            RelayCompared: (steps.M18Helping, steps.M18Helped),
            RelayPart: (steps.M18Helping, steps.M18Helped),
        }

    def received(self, number: int, topic_id: TopicId, count: int) -> None:
        """Trace that the receiver takes produce *number*."""
        self._topics[number] = topic_id
        self._trace(steps.M1Received(self._number, self._relay, topic_id, count))

    def delivering(self, topic_id: TopicId, offset: Offset, end: Offset, digest: Digest) -> None:
        """Trace that a reader gets the records between two offsets; *digest*: that behind the last
        transaction of them."""
        self._trace(steps.M8Delivering(self._number, self._relay, topic_id, offset, end, digest))

    def before(self, effect: RelayEffect | ReceiverEffect, member: RelayMember | None) -> After:
        """Trace the step before *effect*, which is performed next; return the function that traces
        the step after it.  *member*: the machine of this broker, if it is a member."""
        where = self._number, self._relay
        match effect:
            case SendToRelay(to, message):
                if (of_message := self._steps.get(type(message))) is None:
                    return _nothing  # a beat
                first, last = of_message
                return self._both(first(*where, to, message), last(*where, to, message))
            case AnswerProducer(number, outcome):
                topic_id = self._topics.pop(number)
                return self._both(
                    steps.M7Answering(*where, topic_id, outcome),
                    steps.M7Answered(*where, topic_id, outcome),
                )
            case StoreGeneration(generation):
                self._trace(steps.M12Storing(*where, generation))  # `stored` has the step after it
            case BeginLife(life):
                self._trace(steps.M13Emptied(*where, life.emptied))
            case TellGap(topic_id, start):
                self._trace(steps.M19Gap(*where, topic_id, start))
            case MoveHighwater(topic_id, highwater) if member is not None:
                stream = member.streams.by_topic.get(topic_id)
                digest = None if stream is None else stream.buffer.digest_at(highwater)
                self._trace(steps.M6Moved(*where, topic_id, member.epoch, highwater, digest))
            case EnterStatus(status, epoch) if member is not None:
                known = member.relay_set
                self._trace(
                    steps.M9Entered(*where, status, epoch, list(known.ranked), known.version)
                )
            case TellTimeline(epoch, founders) if member is not None:
                streams = member.streams.points
                self._trace(steps.M14Changed(*where, epoch, sorted(founders), streams))
            case _:
                pass
        return _nothing

    def stored(self, generation: int) -> None:
        """Trace that the generation is durable."""
        self._trace(steps.M12Stored(self._number, self._relay, generation))

    def _both(self, first: Step, last: Step) -> After:
        self._trace(first)
        return lambda: self._trace(last)
