"""The operator's chores for a run's durable subscription: its marks are set, and it is deleted."""

from __future__ import annotations

from random import Random
from typing import Protocol

from octopi.clients.client import Client
from octopi.clients.consuming.start_position import Start
from octopi.errors import (
    MemberFencedError,
    OctopiError,
    OffsetInsideRecordError,
    OffsetOutOfRangeError,
    SubscriptionBusyError,
    UnknownSubscriptionError,
)
from octopi.identifiers import PartitionId
from octopi.model import SubscriptionState
from octopi.retry import may_pass
from octopi.simulation.history.events import Acknowledged, LogName
from sim.run.client_log import ClientLog
from sim.run.group_notes import NAME


class SubscriptionNotes(Protocol):
    """What is noted of the subscription's members, and of what the operator does."""

    topic: str

    def resetting(self, partition: PartitionId) -> None:
        """An operator begins to set the mark of a log."""

    def was_reset(self, partition: PartitionId, offset: int) -> None:
        """The mark was set to *offset*."""


async def reset_marks(
    client: Client, client_log: ClientLog, notes: SubscriptionNotes, randomness: Random
) -> None:
    """Set the mark of one log to its start, its end, or a message, also while a member has it."""
    logs = [one for one in client_log.logs if one.topic == notes.topic]
    if not logs:
        return
    log = randomness.choice(logs)
    places: list[Start] = ["earliest", "latest", *_some_offsets(client_log, log, randomness)]
    notes.resetting(log.partition)
    try:
        (done,) = await client.admin.reset_subscription(
            notes.topic, NAME, to=randomness.choice(places), partition=log.partition, force=True
        )
    except OctopiError as error:
        # The subscription may not exist, or be in use.  If an acknowledged message was lost, its
        # offset may lie inside of another record.
        is_lost = client_log.plan.may_lose and isinstance(error, OffsetInsideRecordError)
        if not (is_lost or isinstance(error, _ORDINARY) or may_pass(error)):
            raise
    else:
        notes.was_reset(log.partition, int(done.after))


_ORDINARY = (
    MemberFencedError,
    OffsetOutOfRangeError,
    SubscriptionBusyError,
    UnknownSubscriptionError,
)


def _some_offsets(client_log: ClientLog, log: LogName, randomness: Random) -> list[int]:
    known = [
        int(one.offset)
        for one in client_log.history.events
        if isinstance(one, Acknowledged) and one.log == log
    ]
    return [randomness.choice(known)] if known else []


async def delete_subscription(client: Client, notes: SubscriptionNotes) -> None:
    """Delete it; members make it anew."""
    try:
        await client.admin.delete_subscription(notes.topic, NAME)
    except OctopiError as error:
        if not (isinstance(error, UnknownSubscriptionError) or may_pass(error)):
            raise


async def finish_deletion(client: Client, notes: SubscriptionNotes) -> None:
    """Delete the subscription again if a deletion of it has begun and has not ended, as its members
    are told to: the operator was interrupted, or what it did last was lost with all replicas."""
    try:
        known = await client.admin.subscriptions(notes.topic)
        if any((one.name, one.state) == (NAME, SubscriptionState.DELETING) for one in known):
            await client.admin.delete_subscription(notes.topic, NAME)
    except UnknownSubscriptionError:
        pass  # the deletion has ended meanwhile
