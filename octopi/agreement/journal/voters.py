"""The registers whose votes count, and when they are enough."""

from __future__ import annotations

from collections.abc import Collection

from octopi.wire.registers import RegisterId, Voters


def most_of(have: Collection[RegisterId], voters: Voters) -> bool:
    """Whether *have* contains more than half of *voters*."""
    return 2 * len(set(have).intersection(voters)) > len(voters)


def voter_at(address: str, voters: Voters) -> RegisterId | None:
    """The one of *voters* with this address."""
    return next((one for one in voters if one.address == address), None)
