"""What a broker of the ring wants done, in order."""

from __future__ import annotations

from typing import TypeAlias

import attrs

from octopi.ring.lookup import LookupOutcome
from octopi.wire.ring import Leave, Meet, RingAnswer, RingNode, RingRefusal, RingRequest


@attrs.frozen
class SendToNode:
    """Send *message*; it may be lost.  If the connection is refused, tell `Chord.failed`."""

    node: RingNode
    message: RingRequest | Leave


@attrs.frozen
class SendToAddress:
    """Send *message* to whoever is there; otherwise as `SendToNode`."""

    address: str
    message: Meet


@attrs.frozen
class AnswerNode:
    """Send *answer* to whoever asked."""

    answer: RingAnswer


@attrs.frozen
class StoreBook:
    """Store the address book, and wait until it is durable, before the effects that follow."""


@attrs.frozen
class EnterRing:
    """This broker is a member of the ring now.  Partitions may look for their holders."""


@attrs.frozen
class RefuseJoining:
    """This broker can't join, and does not try again."""

    why: RingRefusal


@attrs.frozen
class ConcludeLookup:
    """The outcome of a look-up, with the number under which it was asked for."""

    number: int
    outcome: LookupOutcome


RingEffect: TypeAlias = (
    SendToNode | SendToAddress | AnswerNode | StoreBook | EnterRing | RefuseJoining | ConcludeLookup
)
