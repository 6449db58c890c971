"""Messages by which the logs of a topic are sealed for its next generation
(`octopi.coordination.generations`)."""

from __future__ import annotations

import attrs

from octopi.generation_record import GenerationNumber
from octopi.model import EpochNumber, Id, PartitionNumber, Place, Verb
from octopi.wire.declarations import (
    DECIDER_TO_MEMBER,
    MEMBER_TO_DECIDER,
    answer,
    on_the_cluster,
    request,
)


@request("seal_topic", DECIDER_TO_MEMBER, since=2)
@attrs.frozen
class SealTopic:
    """Register to leader: from now on the log of a topic takes no messages of lower generations.

    Answer: `TopicSealed`, when the seal and all that the log holds are committed.  It is refused if
    that is not so after a while; the register orders it again."""

    request: int
    topic_id: Id
    partition: PartitionNumber
    epoch: EpochNumber
    """The epoch that the broker leads."""
    generation: GenerationNumber
    """The next one."""


@answer("topic_sealed", MEMBER_TO_DECIDER, needs=on_the_cluster(Verb.REPLICATE), since=2)
@attrs.frozen
class TopicSealed:
    """Answer to `SealTopic`."""

    request: int
    epoch: EpochNumber
    """The epoch that the broker led all the time."""
    end: Place
    """Where the log ended when it was sealed: no message of a lower generation lies behind it, now
    or later."""
