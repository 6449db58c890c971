"""Which topics can be read and written over HTTP: those that never got other partitions."""

from __future__ import annotations

from octopi.errors import RefusedError, Status
from octopi.model import TopicRecord


def check_fixed_list(topic: TopicRecord) -> None:
    """Check that *topic* has always had its partitions.  Over HTTP nobody can tell readers in which
    order its logs are to be read, and writers name no list of partitions.

    Raises:
      RefusedError: WRONG_KIND.
    """
    if any(one.sealed for one in topic.generations):
        raise RefusedError(
            f"topic {topic.topic} got other partitions while it was in use, and can't be read or "
            "written over HTTP any more: use a client (`octopi-node consume` is one)",
            Status.WRONG_KIND,
        )
