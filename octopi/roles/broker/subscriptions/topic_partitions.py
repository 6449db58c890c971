"""Which partitions a durable subscription of a topic can have."""

from __future__ import annotations

from octopi.errors import NotReadyError, RefusedError, Status
from octopi.generation_gates import all_partitions
from octopi.model import QUEUE_MODES, TopicRecord
from octopi.wire.messages import CreateSubscription


def check_partitions(message: CreateSubscription, topic: TopicRecord) -> None:
    """Check that *message* names the partitions of *topic*, those of its first list first.  It may
    lack some that the topic has only just got: the subscription gets them later.

    Raises:
      NotReadyError: if this broker wasn't told yet of partitions that are named.
      RefusedError: INVALID_OPTION.
    """
    known = all_partitions(topic.generations) or topic.partitions
    named = message.partitions
    if topic.generations and message.mode in QUEUE_MODES:
        raise RefusedError(
            f"topic {topic.topic} got other partitions while it was in use, and mode "
            f"{message.mode} is for topics that never did: use exclusive or failover",
            Status.INVALID_OPTION,
        )
    first = all_partitions(topic.generations[:1]) or topic.partitions
    if named[: len(known)] == known and len(named) > len(known):
        raise NotReadyError(f"this broker was not told yet that topic {topic.topic} has {named}")
    if known[: len(named)] != named or len(named) < len(first):
        raise RefusedError(
            f"topic {topic.topic} has the partitions {known[:20]}", Status.INVALID_OPTION
        )
