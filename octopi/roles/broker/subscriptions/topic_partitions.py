"""Which partitions a durable subscription of a topic can have."""

from __future__ import annotations

from octopi.errors import RefusedError, Status
from octopi.generation_gates import all_partitions
from octopi.generation_record import GenerationState
from octopi.model import QUEUE_MODES, TopicRecord
from octopi.wire.messages import CreateSubscription


def check_partitions(message: CreateSubscription, topic: TopicRecord) -> None:
    """Check that *message* names the partitions of *topic*, those of its first list first.  It may
    lack some that the topic has only just got: the subscription gets them later.  It may have those
    of a generation that was under way when this broker was told last.

    Raises:
      RefusedError: INVALID_OPTION.
    """
    generations = [one for one in topic.generations if one.state != GenerationState.CANCELLED]
    if any(one.sealed for one in generations) and message.mode in QUEUE_MODES:
        raise RefusedError(
            f"topic {topic.topic} got other partitions while it was in use, and mode "
            f"{message.mode} is for topics that never did: use exclusive or failover",
            Status.INVALID_OPTION,
        )
    known = all_partitions(generations) or topic.partitions
    first = all_partitions(generations[:1]) or topic.partitions
    named = message.partitions
    if known[: len(named)] != named or len(named) < len(first):
        raise RefusedError(
            f"topic {topic.topic} has the partitions {known[:20]}", Status.INVALID_OPTION
        )
