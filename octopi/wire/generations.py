"""Messages by which an operator gives a topic other partitions, and by which the logs that it has
are sealed for that (`octopi.coordination.generations`)."""

from __future__ import annotations

from typing import Annotated

import attrs

from octopi.field_bounds import Within
from octopi.generation_record import GenerationNumber
from octopi.limits import GROW_TIMEOUT_S, PARTITIONS_PER_TOPIC_MAX
from octopi.model import EpochNumber, Id, PartitionNumber, Place, Verb
from octopi.wire.common import Text
from octopi.wire.declarations import (
    CLIENT_TO_DECIDER,
    DECIDER_TO_MEMBER,
    MEMBER_TO_DECIDER,
    answer,
    on_its_topic,
    on_the_cluster,
    request,
)


@request(
    "grow_topic",
    CLIENT_TO_DECIDER,
    needs=on_its_topic(Verb.ADMIN),
    asked_s=2 * GROW_TIMEOUT_S,
    since=2,
)
@attrs.frozen
class GrowTopic:
    """Have a topic grow to *partition_count* partitions.

    Answer: `octopi.wire.client.TopicDescription`, when the generation with them is in force."""

    request: int
    topic: Text
    partition_count: Annotated[int, Within(1, PARTITIONS_PER_TOPIC_MAX)]


@request(
    "move_topic",
    CLIENT_TO_DECIDER,
    needs=on_its_topic(Verb.ADMIN),
    asked_s=2 * GROW_TIMEOUT_S,
    since=2,
)
@attrs.frozen
class MoveTopic:
    """Have a topic of one partition go on in another *partition*.

    Answer: `octopi.wire.client.TopicDescription`, when the generation with it is in force."""

    request: int
    topic: Text
    partition: PartitionNumber


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
