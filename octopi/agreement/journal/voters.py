"""Registers, and those of them that vote."""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeAlias

import attrs

from octopi.identifiers import DirectoryId


@attrs.frozen(order=True)
class RegisterId:
    """A register.  One that comes back with an empty disk has another directory, so it is another
    register: it doesn't know for whom it voted, and lacks what it had stored."""

    address: str
    directory: DirectoryId


Voters: TypeAlias = tuple[RegisterId, ...]
"""The registers whose votes count, sorted; one of an address at most."""


def most_of(have: Collection[RegisterId], voters: Voters) -> bool:
    """Whether *have* contains more than half of *voters*."""
    return 2 * len(set(have).intersection(voters)) > len(voters)


def voter_at(address: str, voters: Voters) -> RegisterId | None:
    """The one of *voters* with this address."""
    return next((one for one in voters if one.address == address), None)
