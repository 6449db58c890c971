"""The orders of a register to a broker, and what is answered to the announcement of a hand-over."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from octopi.errors import ConnectionLostError, RefusedError, Status, StorageError
from octopi.roles.answers import refuse
from octopi.transport.connection import Connection
from octopi.wire import messages as m

if TYPE_CHECKING:
    from octopi.roles.broker.controller_link import Decisions
    from octopi.roles.broker.hand_over_question import HandOverQuestion

Order = (
    m.InstallPartitions
    | m.InstallTopics
    | m.RemoveTopics
    | m.AnnounceEpoch
    | m.InSyncAltered
    | m.PrepareHandOver
    | m.BrokersStopping
    | m.InstallRelaySets
    | m.AnnounceHandOver
    | m.SealTopic
)
"""The orders of a register: all messages that it may send on the membership endpoint."""


async def answer_seal(decisions: Decisions, connection: Connection, order: m.SealTopic) -> None:
    """Seal a log, and answer where it ends."""
    with contextlib.suppress(ConnectionLostError):
        try:
            connection.post(await decisions.seal_topic(order))
        except RefusedError as error:
            refuse(connection, order.request, error)


async def answer_announcement(
    question: HandOverQuestion | None, connection: Connection, order: m.AnnounceHandOver
) -> None:
    """Store that a hand-over is announced, and answer whether that is done.  *question*: None if
    this broker is not prepared for one.

    Raises:
      ConnectionLostError: if the register is gone.
    """
    try:
        if question is None:
            raise RefusedError("this broker was started without --join", Status.INVALID_OPTION)
        await question.announce(order)
    except (RefusedError, StorageError) as error:
        refuse(connection, order.request, error)
    else:
        connection.post(m.Done(order.request))
