"""Whether a hand-over took place that a register had announced, and whose register then lost what
it had decided.

Each broker is in one of three states about a hand-over: open, taken over, or given up.  The last
two are for good and durable, but that a broker which gave up takes over as soon as it knows that
giving up can't succeed any more.  Brokers decide without a register only where a majority of the
acceptors has taken over, and report to another register only when so many have given up that no
majority of any acceptors is left.  So at most one of the two happens.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto

import attrs

from octopi.identifiers import BrokerId
from octopi.limits import RECORD_ACCEPTORS_FIRST
from octopi.ring.cluster_record import ClusterRecord
from octopi.ring.groups import acceptor_count


@attrs.frozen
class ToldState:
    """What another broker says about one hand-over."""

    is_taken_over: bool
    is_given_up: bool
    may_give_up: bool
    """Whether it would give up if it were asked to."""


class HandOverFate(Enum):
    """What a broker does about a hand-over."""

    TAKE_OVER = auto()
    """It takes over from one that has."""
    GIVE_UP = auto()
    """It gives up, durably, and asks the others to."""
    GIVEN_UP = auto()
    """Enough have given up: it never takes place."""
    WAIT = auto()
    """Too few have answered."""


def spared_max(record: ClusterRecord) -> int:
    """How many of the brokers of *record* are no majority of the acceptors of anything."""
    growth = record.growths[0]
    brokers = len(growth.members)
    smallest = min(
        acceptor_count(growth.replicas, brokers),
        min(RECORD_ACCEPTORS_FIRST, brokers - (brokers + 1) % 2),
    )
    return (smallest - 1) // 2


def fate(
    record: ClusterRecord,
    has_given_up: bool,
    others: Mapping[BrokerId, ToldState],
    *,
    is_patient: bool,
) -> HandOverFate:
    """What a broker of *record* does that has not taken over.

    *others*: what the others have said, of those that answered.  *is_patient*: whether it waits for
    those that are silent, which may have taken over, though the others were enough to give up.
    """
    count, spared = len(record.growths[0].members), spared_max(record)
    taken_over = sum(one.is_taken_over for one in others.values())
    if taken_over > (spared if has_given_up else 0):
        return HandOverFate.TAKE_OVER
    given_up = has_given_up + sum(one.is_given_up for one in others.values())
    if has_given_up and given_up >= count - spared:
        return HandOverFate.GIVEN_UP
    if is_patient and not has_given_up and len(others) < count - 1:
        return HandOverFate.WAIT
    willing = 1 + sum(
        (one.is_given_up or one.may_give_up) and not one.is_taken_over for one in others.values()
    )
    return HandOverFate.GIVE_UP if willing >= count - spared else HandOverFate.WAIT
