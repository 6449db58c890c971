"""Whom the active register makes a voter, and whom it takes out.

A register without its disk is replaced by the one that comes back at its address.  Apart from that,
the voters become those in the active register's list: registers are added when they have
everything, and others are taken out.

No voter is taken out while one that is heard has another list.  So who starts one register with a
wrong list takes nobody out, and lists that are given to one register after the other take effect
when all that run have the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from octopi.agreement.journal.history import JournalHistory
from octopi.agreement.journal.leading import StandbyProgress
from octopi.agreement.journal.voters import voter_at
from octopi.limits import REGISTER_QUORUM_S, REGISTERS_MAX
from octopi.wire.registers import RegisterId, Voters


class ActiveReplica(Protocol):
    """The active register; see `octopi.agreement.journal.replica.JournalReplica`."""

    @property
    def identity(self) -> RegisterId: ...
    @property
    def addresses(self) -> tuple[str, ...]: ...
    @property
    def history(self) -> JournalHistory: ...
    @property
    def committed(self) -> int: ...
    @property
    def progress(self) -> Mapping[str, StandbyProgress]: ...


def next_voters(active: ActiveReplica, now: float) -> Voters | None:
    """The next voters, which differ in one register; None: they are as they should be, or can't be
    changed now."""
    return _mended(active) or _without_leaving(active, now)


def _mended(active: ActiveReplica) -> Voters | None:
    """Take out a voter at whose address another register is, or add that one when it has
    everything."""
    voters = active.history.voters
    for address in active.addresses:
        progress = active.progress[address]
        there, voter = progress.identity, voter_at(address, voters)
        if there is None or there == voter:
            continue
        others = tuple(one for one in voters if one != voter)
        if voter is not None:
            return others
        if len(others) < REGISTERS_MAX and progress.stored_by(there) >= active.committed:
            return tuple(sorted([*others, there]))
    return None


def _without_leaving(active: ActiveReplica, now: float) -> Voters | None:
    """Take out a voter that is not in the list."""
    leaving = _leaving(active, now)
    if not leaving or active.identity in leaving:
        return None
    return tuple(one for one in active.history.voters if one != leaving[0])


def gives_way(active: ActiveReplica, now: float) -> bool:
    """Whether the active register is itself to be taken out, and one that stays has everything, so
    that it can be active instead."""
    leaving = _leaving(active, now)
    if active.identity not in leaving:
        return False
    staying = [one for one in active.history.voters if one not in leaving]
    end = active.history.end
    return any(active.progress[one.address].stored_by(one) >= end for one in staying)


def _leaving(active: ActiveReplica, now: float) -> Voters:
    """The voters to be taken out."""
    if unlike(active, now):
        return ()
    return tuple(one for one in active.history.voters if one.address not in active.addresses)


def unlike(active: ActiveReplica, now: float) -> list[str]:
    """The addresses of voters that are heard, and have another list than the active register, or
    have not said yet which."""
    addresses = []
    for voter in active.history.voters:
        progress = active.progress.get(voter.address)
        if voter == active.identity or progress is None:
            continue
        is_heard = now - progress.heard_at <= REGISTER_QUORUM_S
        if is_heard and progress.registers != active.addresses:
            addresses.append(voter.address)
    return addresses
