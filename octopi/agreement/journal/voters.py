"""Votes: whose count, when they are enough, and which are only asked for as a trial."""

from __future__ import annotations

from collections.abc import Collection

from octopi.wire.registers import RegisterId, ToRegister, VoteAnswer, VoteRequest, Voters


def most_of(have: Collection[RegisterId], voters: Voters) -> bool:
    """Whether *have* contains more than half of *voters*."""
    return 2 * len(set(have).intersection(voters)) > len(voters)


def voter_at(address: str, voters: Voters) -> RegisterId | None:
    """The one of *voters* with this address."""
    return next((one for one in voters if one.address == address), None)


def is_of_trial(message: ToRegister) -> bool:
    """Whether the term of *message* is only asked about."""
    match message:
        case VoteRequest(is_trial=True):
            return True
        case VoteAnswer(is_trial=True, is_granted=True):
            return True
    return False
