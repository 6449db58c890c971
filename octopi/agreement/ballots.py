"""Ballots: the attempts at changing an agreed value, in an order of their own."""

from __future__ import annotations

from typing import Final

import attrs

from octopi.identifiers import BrokerId, Incarnation


@attrs.frozen(order=True)
class Ballot:
    """One attempt of one proposer.  A ballot is never used twice: a proposer counts its rounds up,
    and its incarnation is counted up durably before it proposes anything."""

    round: int
    broker: BrokerId
    incarnation: Incarnation


NO_BALLOT: Final = Ballot(0, BrokerId(0), Incarnation(0))
"""Below all ballots; the first value of an instance counts as accepted in it."""
