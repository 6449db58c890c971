"""Makes a program a member of a durable subscription, for a block."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from typing import Any, Final

from octopi.clients.background import background_tasks
from octopi.clients.cluster_handle import ClusterHandle
from octopi.clients.options import one_of, within
from octopi.clients.subscribing.administration import Creation, SubscriptionAdministration
from octopi.clients.subscribing.dealt_log import QueueReading
from octopi.clients.subscribing.log_gates import LogGates
from octopi.clients.subscribing.log_reading import LogReading
from octopi.clients.subscribing.membership import MembershipOptions
from octopi.clients.subscribing.queue_subscription import QueueSubscription
from octopi.clients.subscribing.subscription import Subscription
from octopi.clients.subscribing.subscription_options import (
    PREFETCH,
    PREFETCH_BYTES,
    check_mode,
    check_prefetch,
    is_queue,
    member_name,
    subscription_options,
)
from octopi.identifiers import TopicId, TopicName, topic_name
from octopi.limits import CONSUMER_WINDOW_BYTES, RECONNECT_TIMEOUT_S
from octopi.model import SubscriptionDefinition, SubscriptionMode, SubscriptionOptions
from octopi.wire.messages import TopicInfo

_FOREVER_S: Final = 86_400.0 * 365
_WINDOW_BYTES_MAX: Final = 2**40


def open_member(
    cluster: ClusterHandle, topic: str, name: str, mode: str, options: Mapping[str, Any]
) -> AbstractAsyncContextManager[Subscription] | AbstractAsyncContextManager[QueueSubscription]:
    """See `octopi.clients.client.Client.subscription`.

    Raises:
      InvalidOptionError: if one of *options* is for other modes.
      TypeError: if there is no such option.
    """
    check_mode(mode, options)
    if is_queue(mode):
        return _open_queue(cluster, topic, name, mode, **options)
    return _open_subscription(cluster, topic, name, mode, **options)


@asynccontextmanager
async def _open_subscription(
    cluster: ClusterHandle,
    topic: str,
    name: str,
    mode: str,
    *,
    member: str | None = None,
    create: Creation = "create_or_attach",
    start: str = "earliest",
    take_over: bool = False,
    on_gap: str = "fail",
    mark: str = "auto",
    session_timeout_s: float = 10.0,
    release_timeout_s: float = 10.0,
    expires: timedelta | None = timedelta(days=7),
    window_bytes: int = CONSUMER_WINDOW_BYTES,
    reconnect_timeout_s: float | None = RECONNECT_TIMEOUT_S,
) -> AsyncIterator[Subscription]:
    within("window_bytes", window_bytes, 1, _WINDOW_BYTES_MAX)
    one_of("on_gap", on_gap, "fail", "skip")
    one_of("mark", mark, "auto", "manual")
    _check(create, reconnect_timeout_s)
    options = subscription_options(mode, session_timeout_s, release_timeout_s, expires)
    static_member = None if member is None else member_name(member)
    info, definition = await _have(cluster, topic, name, mode, options, start, create)
    membership = _membership(definition, take_over=take_over)
    reading = LogReading(
        topic=membership.topic,
        topic_id=TopicId(definition.topic_id),
        sid=definition.sid,
        window_bytes=window_bytes,
        is_auto=mark == "auto",
        skip_gaps=on_gap == "skip",
        reconnect_timeout_s=reconnect_timeout_s,
        session_timeout_s=membership.session_timeout_s,
        release_timeout_s=definition.options.release_timeout_ms / 1000,
        gates=LogGates(cluster, info, definition),
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


@asynccontextmanager
async def _open_queue(
    cluster: ClusterHandle,
    topic: str,
    name: str,
    mode: str,
    *,
    member: str | None = None,
    create: Creation = "create_or_attach",
    start: str = "earliest",
    attempts: int | None = 5,
    ack_timeout_s: float = 30.0,
    prefetch: int = PREFETCH,
    window: int = 1_000,
    session_timeout_s: float = 10.0,
    expires: timedelta | None = timedelta(days=7),
    reconnect_timeout_s: float | None = RECONNECT_TIMEOUT_S,
) -> AsyncIterator[QueueSubscription]:
    check_prefetch(prefetch)
    _check(create, reconnect_timeout_s)
    options = subscription_options(
        mode, session_timeout_s, 10.0, expires, attempts, ack_timeout_s, window
    )
    static_member = None if member is None else member_name(member)
    _, definition = await _have(cluster, topic, name, mode, options, start, create)
    membership = _membership(definition, take_over=False)
    reading = QueueReading(
        topic=membership.topic,
        sid=definition.sid,
        ack_timeout_s=definition.options.ack_timeout_ms / 1000,
        prefetch_count=prefetch,
        prefetch_bytes=PREFETCH_BYTES,
        reconnect_timeout_s=reconnect_timeout_s,
        is_ordered=definition.mode == SubscriptionMode.KEY_SHARED,
    )
    async with background_tasks() as nursery:
        subscription = QueueSubscription(
            cluster, nursery, definition, reading, membership, static_member
        )
        try:
            await subscription.begin()
            yield subscription
            await subscription.finish()
        finally:
            subscription.close()


def _check(create: Creation, reconnect_timeout_s: float | None) -> None:
    one_of("create", create, "create", "attach", "create_or_attach")
    if reconnect_timeout_s is not None:
        within("reconnect_timeout_s", reconnect_timeout_s, 0, _FOREVER_S)


async def _have(
    cluster: ClusterHandle,
    topic: str,
    name: str,
    mode: str,
    options: SubscriptionOptions,
    start: str,
    create: Creation,
) -> tuple[TopicInfo, SubscriptionDefinition]:
    info = await cluster.router.describe_topic(topic_name(topic))
    administration = SubscriptionAdministration(cluster.router)
    return info, await administration.have(info, name, mode, options, start, create)


def _membership(definition: SubscriptionDefinition, *, take_over: bool) -> MembershipOptions:
    return MembershipOptions(
        TopicName(definition.topic),
        definition.partitions[0],
        definition.sid,
        definition.name,
        take_over,
        definition.options.session_timeout_ms / 1000,
    )
