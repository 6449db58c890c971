"""Makes a program a member of a durable subscription, for a block."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from octopi.clients.background import background_tasks
from octopi.clients.cluster_handle import ClusterHandle
from octopi.clients.subscribing.administration import (
    Creation,
    SubscriptionAdministration,
    first_partition,
    member_name,
)
from octopi.clients.subscribing.membership import MembershipOptions
from octopi.clients.subscribing.subscribed_log import LogReading
from octopi.clients.subscribing.subscription import Subscription
from octopi.identifiers import TopicId, TopicName
from octopi.model import SubscriptionOptions
from octopi.wire.messages import TopicInfo


@asynccontextmanager
async def open_subscription(
    cluster: ClusterHandle,
    info: TopicInfo,
    name: str,
    *,
    mode: str,
    options: SubscriptionOptions,
    start: str,
    create: Creation,
    member: str | None,
    take_over: bool,
    is_auto: bool,
    skip_gaps: bool,
    window_bytes: int,
    reconnect_timeout_s: float | None,
) -> AsyncIterator[Subscription]:
    """See `octopi.clients.client.Client.subscription`."""
    static_member = None if member is None else member_name(member)
    administration = SubscriptionAdministration(cluster.router)
    definition = await administration.have(info, name, mode, options, start, create)
    session_timeout_s = definition.options.session_timeout_ms / 1000
    reading = LogReading(
        topic=TopicName(definition.topic),
        topic_id=TopicId(definition.topic_id),
        sid=definition.sid,
        window_bytes=window_bytes,
        is_auto=is_auto,
        skip_gaps=skip_gaps,
        reconnect_timeout_s=reconnect_timeout_s,
        session_timeout_s=session_timeout_s,
        release_timeout_s=definition.options.release_timeout_ms / 1000,
    )
    membership = MembershipOptions(
        reading.topic, first_partition(info), reading.sid, take_over, session_timeout_s
    )
    async with background_tasks() as nursery:
        subscription = Subscription(
            cluster, nursery, definition, reading, membership, static_member
        )
        try:
            await subscription.begin()
            yield subscription
            await subscription.finish()
        finally:
            subscription.close()
