"""Writes the cluster's history: a thin part with tasks around what to write.

A node writes as an ordinary client, so its messages are replicated and retained as all others.
Nothing that goes wrong here ends the node: it is logged sparingly, and tried again.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

import attrs

from octopi.clients.client import connect
from octopi.clients.credentials import Token
from octopi.clients.producing.producer import Producer
from octopi.environment import Clock, Environment
from octopi.errors import OctopiError
from octopi.history.event_messages import HistoryMessage
from octopi.identifiers import TopicName
from octopi.limits import (
    HISTORY_INTERVAL_S,
    HISTORY_LOOK_S,
    HISTORY_RETENTION_BYTES,
    HISTORY_RETENTION_S,
    HISTORY_RETRY_S_MAX,
    HISTORY_SEGMENT_BYTES,
)
from octopi.logger import get_logger
from octopi.security.join_secret import SecretSource

_log = get_logger(__name__)

_NAME: Final = "octopi-history"
"""The name of the connections."""

_ZERO: Final = datetime(1970, 1, 1, tzinfo=UTC)


class PendingMessages(Protocol):
    """What is to be written to one topic."""

    dropped_count: int

    def pending(self) -> Sequence[HistoryMessage]:
        """The oldest messages that are not written yet."""

    def written(self, count: int) -> None:
        """The first *count* messages of the last `pending` are in the topic."""


@attrs.frozen
class HistoryAccess:
    """How a node reaches its own cluster as a client."""

    environment: Environment
    servers: Sequence[str]
    """Addresses of nodes, the first to ask first."""
    token: Token
    secrets: SecretSource | None
    interval_s: float = HISTORY_INTERVAL_S
    """How often a broker notes its rates."""
    look_s: float = HISTORY_LOOK_S


async def write(messages: PendingMessages, topic: TopicName, access: HistoryAccess) -> None:
    """Write *messages* until cancelled; after an error, try again, later and later.

    It begins one interval after the node: the brokers of a cluster that starts have joined by then,
    so that the topic's partition gets all its replicas at once."""
    clock = access.environment.clock
    await clock.sleep_until(clock.now() + access.interval_s)
    wait_s = access.look_s
    while True:
        try:
            async with connect(
                access.servers,
                name=_NAME,
                token=access.token,
                environment=access.environment,
                secrets=access.secrets,
            ) as client:
                await _until_pending(messages, clock, access.look_s)
                await client.create_topic(
                    topic,
                    retention=timedelta(seconds=HISTORY_RETENTION_S),
                    retention_bytes=HISTORY_RETENTION_BYTES,
                    segment_bytes=HISTORY_SEGMENT_BYTES,
                    exist_ok=True,
                )
                async with client.producer(create_topics=False) as producer:
                    wait_s = access.look_s
                    while True:
                        await _write_pending(producer, messages, topic, clock)
                        await _until_pending(messages, clock, access.look_s)
        except OctopiError as error:
            _log.sparing(clock).info("history not written", topic=topic, why=str(error))
        except Exception:  # such as a token that can't be read, or a bug: the node goes on
            _log.sparing(clock).exception("history not written", topic=topic)
        await clock.sleep_until(clock.now() + wait_s)
        wait_s = min(HISTORY_RETRY_S_MAX, 2 * wait_s)


async def _until_pending(messages: PendingMessages, clock: Clock, look_s: float) -> None:
    while not messages.pending():
        await clock.sleep_until(clock.now() + look_s)


async def _write_pending(
    producer: Producer, messages: PendingMessages, topic: TopicName, clock: Clock
) -> None:
    """Write what is pending, at most one batch of it.  A message whose outcome is unknown is
    written again later, so it may be there twice."""
    dropped_count = messages.dropped_count
    receipts = [
        await producer.submit(topic, one.value, timestamp=_ZERO + timedelta(milliseconds=one.at_ms))
        for one in messages.pending()
    ]
    for count, receipt in enumerate(receipts, 1):
        await receipt
        messages.written(count)
    if messages.dropped_count > dropped_count:
        _log.sparing(clock).warning("history dropped", topic=topic, total=messages.dropped_count)
