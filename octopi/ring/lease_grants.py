"""What an acceptor of a partition grants its leader, and what it doesn't accept meanwhile.

An acceptor has two values at most that say who leads: the one that it accepted last, which may not
be chosen, and the newest one that it knows to be chosen.  It grants the right to lead
(`octopi.agreement.lease`) only to a leader of whom both say that it leads, in an epoch after which
none was announced.  While it grants the right, and hears the leader, it accepts nothing that
announces another epoch or changes the acceptors, unless the leader itself proposes it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import attrs

from octopi.coordination.agreed_partition import decode_partition
from octopi.identifiers import BrokerId, Epoch, Incarnation
from octopi.wire.agreement import AcceptValue, AgreedValue


@attrs.frozen
class LeaseHolder:
    """The process of a broker that leads a partition, and in which epoch."""

    broker: BrokerId
    incarnation: Incarnation
    epoch: Epoch


def granted(accepted: AgreedValue | None, chosen: AgreedValue | None) -> LeaseHolder | None:
    """Whom an acceptor grants the right to lead; None: nobody.

    *accepted*: what it accepted last; *chosen*: the newest value that it knows to be chosen.

    Raises:
      ValueError: if one of them is about no partition.
    """
    counted = _newest(accepted, chosen)
    leaders = {_holder(one) for one in counted}
    return leaders.pop() if len(leaders) == 1 else None


def may_accept(
    message: AcceptValue,
    accepted: AgreedValue | None,
    chosen: AgreedValue | None,
    is_suspected: Callable[[BrokerId, Incarnation], bool],
) -> bool:
    """Whether an acceptor that has these values may accept *message*: it takes no right away that
    it granted.

    Raises:
      ValueError: if one of the values is about no partition.
    """
    holder = granted(accepted, chosen)
    if holder is None or is_suspected(holder.broker, holder.incarnation):
        return True
    ballot, value = message.ballot, message.value
    if (ballot.broker, ballot.incarnation) == (holder.broker, holder.incarnation):
        return True
    known = {one.acceptors for one in _newest(accepted, chosen)}
    return _holder(value) == holder and known == {value.acceptors}


def _newest(*values: AgreedValue | None) -> list[AgreedValue]:
    """Those of *values* that none of the others comes after."""
    known = [one for one in values if one is not None]
    newest = max((one.change for one in known), default=0)
    return [one for one in known if one.change == newest]


def _holder(value: AgreedValue) -> LeaseHolder | None:
    """Who leads by *value*; None: another epoch is announced, or nobody is in sync."""
    return _holder_in(value.content)


@lru_cache(maxsize=1_000)  # each pulse of a leader asks again about what was decided long ago
def _holder_in(content: bytes) -> LeaseHolder | None:
    agreed = decode_partition(content)
    record = agreed.record
    if agreed.announced != record.epoch:
        return None
    return LeaseHolder(record.leader, record.leader_incarnation, record.epoch)
