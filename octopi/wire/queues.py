"""Messages about queues: the messages of a log, dealt one by one to members of a subscription.

A member attaches at each log's leader (`octopi.wire.subscriptions.Attach`), with the credit that it
begins with.  Each *delivery* is one dealing of a message; it is named by the message's offset and
by its attempt, which counts the deliveries of that message from 1.  A delivery belongs to its
attach: when that ends, answers to it count no more.
"""

from __future__ import annotations

from typing import Annotated

import attrs

from octopi.field_bounds import AtMost, Within
from octopi.identifiers import Offset
from octopi.limits import COUNTED_MAX, DEAL_COUNT_MAX, DELAY_MS_MAX, SETTLE_COUNT_MAX
from octopi.model import Place
from octopi.wire.common import Records, Text
from octopi.wire.declarations import ANY_TOKEN, CLIENT_TO_LEADER, TO_CLIENT, answer, notice

Attempt = Annotated[int, Within(1, COUNTED_MAX)]
"""Which delivery of its message it is, from 1."""


@notice("queue_credit", CLIENT_TO_LEADER, needs=ANY_TOKEN)
@attrs.frozen
class QueueCredit:
    """Deal so many messages, and bytes of their records, in all since the attach.  They are totals,
    so that a grant which arrives late or twice does no harm; smaller than before: no effect.  No
    answer."""

    request: int
    messages: Annotated[int, Within(0, COUNTED_MAX)]
    bytes: Annotated[int, Within(0, COUNTED_MAX)]


@answer("deal", TO_CLIENT)
@attrs.frozen
class Deal:
    """Messages of a queue for this member.  Each is to be answered (`Settle`) within the ack
    timeout of the subscription, or else it is dealt to another member."""

    request: int
    offsets: Annotated[list[Offset], AtMost(DEAL_COUNT_MAX)]
    """Of the messages.  They are in the order in which they are to be worked on, which isn't always
    that of the log."""
    attempts: Annotated[list[int], AtMost(DEAL_COUNT_MAX)]
    """Of each message, in the same order."""
    records: Records
    """The messages as they lie on disk, one behind the other, in the same order."""


@attrs.frozen
class Release:
    """A delivery that is given back: the message is dealt again."""

    offset: Place
    attempt: Attempt
    delay_ms: Annotated[int, Within(0, DELAY_MS_MAX)] = 0
    """Not sooner than after this."""


@attrs.frozen
class Rejection:
    """A delivery of a message that can never be processed: it becomes a dead letter at once."""

    offset: Place
    attempt: Attempt
    reason: Text = ""


@attrs.frozen
class Extension:
    """A delivery that needs a whole ack timeout more, from now on."""

    offset: Place
    attempt: Attempt


@notice("settle", CLIENT_TO_LEADER, needs=ANY_TOKEN)
@attrs.frozen
class Settle:
    """Answers to deliveries of the `Attach` with this request: in all lists together at most 1,000
    of them.  Answer: `QueueSettled` if `confirm`, or if some of them don't count."""

    request: int
    acknowledged: Annotated[list[Place], AtMost(SETTLE_COUNT_MAX)]
    """Offsets of messages that were processed."""
    attempts: Annotated[list[Attempt], AtMost(SETTLE_COUNT_MAX)]
    """The deliveries of these messages, in the same order."""
    released: Annotated[list[Release], AtMost(SETTLE_COUNT_MAX)]
    rejected: Annotated[list[Rejection], AtMost(SETTLE_COUNT_MAX)]
    extended: Annotated[list[Extension], AtMost(SETTLE_COUNT_MAX)]
    confirm: bool
    """Whether to answer when all that was acknowledged up to here is committed."""
    acknowledge: int
    """The number of this message, which `QueueSettled` repeats."""


@answer("settled", TO_CLIENT)
@attrs.frozen
class QueueSettled:
    """Answer to `Settle`.  With `confirm`: what counts of it, and of all before it, is committed;
    a later leader knows it, too."""

    request: int
    acknowledge: int
    stale: Annotated[list[Offset], AtMost(SETTLE_COUNT_MAX)]
    """Messages of which another delivery is the newest, or none is open: these answers changed
    nothing."""
