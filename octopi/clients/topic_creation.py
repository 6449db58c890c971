"""Creates and alters topics: `octopi.clients.client.Client.create_topic`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import attrs

from octopi.clients.options import Unchanged, not_negative
from octopi.clients.routing import RequestRouter
from octopi.errors import (
    ConnectionLostError,
    NotReadyError,
    TopicExistsError,
    UnknownTopicError,
)
from octopi.identifiers import PartitionId, TopicName
from octopi.wire.messages import (
    AlterTopic,
    CreateTopic,
    TopicDescription,
    TopicInfo,
    TopicKind,
    TopicOptions,
)


async def create_checked(
    router: RequestRouter,
    topic: TopicName,
    partitions: int,
    partition_ids: Sequence[int] | None,
    options: TopicOptions,
    *,
    exist_ok: bool,
    kind: str,
) -> TopicInfo:
    """See `octopi.clients.client.Client.create_topic`."""
    wanted = None if partition_ids is None else [PartitionId(one) for one in partition_ids]
    count = partitions if wanted is None else len(wanted)
    not_negative(
        partitions=count, partition_ids=min(wanted or [PartitionId(0)]), **attrs.asdict(options)
    )
    info = await create_topic(router, topic, count, wanted, options, exist_ok=exist_ok, kind=kind)
    router.lookup.remember(info)
    return info


async def create_topic(
    router: RequestRouter,
    topic: TopicName,
    count: int,
    partitions: list[PartitionId] | None,
    options: TopicOptions,
    *,
    exist_ok: bool,
    beside: str = "",
    kind: str = TopicKind.LOG,
) -> TopicInfo:
    """Create *topic* on *count* partitions, on these *partitions*, or on those of the topic
    *beside*.

    Raises:
      TopicExistsError: if it exists.  With *exist_ok* the existing topic is returned, even if its
          options differ.
      RefusedError: INVALID_OPTION, UNKNOWN_PARTITION or UNKNOWN_TOPIC, if the cluster can't create
          it so.
    """
    is_lost = False

    async def attempt() -> TopicInfo:
        nonlocal is_lost
        try:
            answer = await router.ask_register_once(
                lambda request: CreateTopic(
                    request, topic, count, partitions, options, beside, kind=kind
                ),
                TopicDescription,
            )
        except ConnectionLostError:
            is_lost = True
            raise
        except TopicExistsError:
            if not (exist_ok or is_lost):
                raise
            try:
                info = await router.describe_once(topic, False)
            except UnknownTopicError:
                # The next attempt creates it.
                raise NotReadyError(f"topic {topic} existed, and was deleted meanwhile") from None
            # An attempt whose answer was lost may have created it.
            is_ours = info.options == options and (bool(beside) or len(info.partitions) == count)
            is_ours = is_ours and info.kind == kind
            if exist_ok or (is_lost and is_ours):
                return info
            raise
        return answer.topic

    return await router.retry(f"create topic {topic}", attempt)


async def alter_topic(
    router: RequestRouter,
    topic: TopicName,
    options: Mapping[str, int | Unchanged | None],
    times: Mapping[str, timedelta | Unchanged | None],
) -> TopicInfo:
    """Change the *options* of *topic*, and the *times* among its options.

    Raises:
      InvalidOptionError: if a number is negative.
      UnknownTopicError: if there is no such topic.
      RefusedError: INVALID_OPTION, if the cluster can't alter it so.
    """
    changes: dict[str, Any] = {
        name: value for name, value in options.items() if not isinstance(value, Unchanged)
    }
    for name, time in times.items():
        if not isinstance(time, Unchanged):
            changes[name] = milliseconds(time)
    not_negative(**changes)
    values = attrs.evolve(TopicOptions(), **changes)
    answer = await router.ask_register(
        f"alter topic {topic}",
        lambda request: AlterTopic(request, topic, list(changes), values),
        TopicDescription,
    )
    return answer.topic


def milliseconds(time: timedelta | None) -> int | None:
    """*time* in milliseconds."""
    return None if time is None else time // timedelta(milliseconds=1)
