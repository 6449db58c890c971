"""What an operator does with a run's durable subscription: sets its marks, deletes it."""

from __future__ import annotations

from random import Random

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
from octopi.retry import may_pass
from octopi.simulation.history.events import Acknowledged, LogName
from sim.run.client_log import ClientLog
from sim.run.group_notes import NAME, GroupNotes


async def reset_marks(
    client: Client, client_log: ClientLog, notes: GroupNotes, randomness: Random
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
        # It may have been deleted, or be reset by another program, or have yet to be made; and a
        # message that was lost after its acknowledgement begins nowhere any more.
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


async def delete_subscription(client: Client, notes: GroupNotes) -> None:
    """Delete it; members make it anew."""
    try:
        await client.admin.delete_subscription(notes.topic, NAME)
    except OctopiError as error:
        if not (isinstance(error, UnknownSubscriptionError) or may_pass(error)):
            raise
