"""The founders of a cluster without a register: the brokers whose own address is in the list of
those by which they join.

Founders form the cluster together, and a majority of them is enough.  So all have to be started
with the same list: two lists could have two majorities, and make two clusters.
"""

from __future__ import annotations

from collections.abc import Iterable

from octopi.identifiers import BrokerId, RingPoint
from octopi.ring.points import RING_SIZE


def founder_list(addresses: Iterable[str]) -> tuple[str, ...]:
    """The *addresses* of founders in the form in which lists are compared: each once, in one
    spelling, in one order."""
    return tuple(sorted({address.lower().removesuffix("/") for address in addresses}))


def is_founder(address: str, addresses: Iterable[str]) -> bool:
    """Whether the broker with *address*, which was started with the list *addresses*, is a
    founder."""
    return founder_list([address])[0] in founder_list(addresses)


def founder_id(address: str, addresses: Iterable[str]) -> BrokerId:
    """The id of the founder with *address*: its place in the list, from 1."""
    return BrokerId(1 + founder_list(addresses).index(founder_list([address])[0]))


def founder_point(broker: BrokerId, count: int) -> RingPoint:
    """The point of one of *count* founders.  All arcs between them are equal."""
    return RingPoint((broker - 1) * RING_SIZE // count)


def founders_fault(own: Iterable[str], address: str, others: Iterable[str]) -> str:
    """Why a founder with the list *own* can't form a cluster with the founder at *address*, which
    has the list *others*; empty if it can.  A broker without a list is no founder, and only
    joins."""
    mine, theirs = set(founder_list(own)), set(founder_list(others))
    if not mine or not theirs or mine == theirs:
        return ""
    differs = [
        *(f"{one} is in its list only" for one in sorted(theirs - mine)),
        *(f"{one} is not in its list" for one in sorted(mine - theirs)),
    ]
    return (
        f"the founder at {address} was started with another list of founders "
        f"({', '.join(differs)}): start all founders with the same list"
    )
