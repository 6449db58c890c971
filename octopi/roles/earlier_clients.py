"""What clients of earlier versions are told of topics that got other partitions.

Such a client can't decode generations, and would read and write by the list of partitions alone: in
the wrong order.  So it is refused the description of such a topic, and the topic is missing in the
lists that it gets.
"""

from __future__ import annotations

from typing import Final

import attrs

from octopi.errors import RefusedError, Status
from octopi.transport.pending_requests import Numbered
from octopi.wire import messages as m
from octopi.wire.codec import decode, encode

GENERATIONS_SINCE: Final = 2
"""The first version of the protocol whose clients decode `octopi.wire.common.GenerationInfo`."""

_TOPICS: Final = frozenset({m.TopicDescription, m.TopicList, m.Failure})


def described_to(version: int, info: m.TopicInfo) -> m.TopicInfo:
    """*info* for a client that speaks *version* of the protocol.

    Raises:
      RefusedError: UNSUPPORTED_VERSION, if the client can't follow the topic.
    """
    if version < GENERATIONS_SINCE and info.generations:
        raise RefusedError(
            f"topic {info.topic} got other partitions while it was in use, and this client is of "
            "an earlier version, which would read its messages in the wrong order: install the "
            "version of the nodes (`octopi-node --version`)",
            Status.UNSUPPORTED_VERSION,
        )
    return info


def listed_to(version: int, topics: list[m.TopicInfo]) -> list[m.TopicInfo]:
    """Those of *topics* that a client can follow that speaks *version* of the protocol."""
    if version >= GENERATIONS_SINCE:
        return topics
    return [one for one in topics if not one.generations]


def passed_to(version: int, question: Numbered, answer: bytes) -> bytes:
    """The encoded *answer* to *question*, which came through this node, for a client that speaks
    *version* of the protocol.

    Raises:
      RefusedError: see `described_to`.
    """
    if version >= GENERATIONS_SINCE or not isinstance(question, m.DescribeTopic | m.ListTopics):
        return answer
    match decode(answer, _TOPICS):
        case m.TopicDescription(topic=info):
            described_to(version, info)
        case m.TopicList() as page:
            return encode(attrs.evolve(page, topics=listed_to(version, page.topics)))
    return answer
