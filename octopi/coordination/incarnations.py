"""Which life of a broker asks to join: the one that is live, a later one, or another one.

A broker counts its starts, and each has a random nonce (docs/protocol.md, "Incarnations and
generations").
"""

from __future__ import annotations

from collections.abc import Mapping

from octopi.coordination.cluster_state import ClusterState
from octopi.coordination.seals import Seals
from octopi.errors import RefusedError, Status
from octopi.identifiers import BrokerId, Incarnation
from octopi.wire.messages import Join


def is_same_life(state: ClusterState, live: Mapping[BrokerId, Incarnation], join: Join) -> bool:
    """Whether the life that asks to join is live: its last connection broke, as only one side
    may have noticed.  *live*: broker -> incarnation."""
    if join.broker is None or not join.cluster:
        return False
    known = state.brokers.get(join.broker)
    return (
        known is not None
        and live.get(join.broker) == join.incarnation
        and known.nonce == join.nonce
    )


def is_later_life(state: ClusterState, join: Join) -> bool:
    """Whether the life that asks to join has followed upon the registered one in its data
    directory, which belongs to one process at a time."""
    known = state.brokers.get(join.broker) if join.broker is not None else None
    return (
        known is not None and join.incarnation > known.incarnation and known.nonce in join.ancestors
    )


def is_proven(state: ClusterState, join: Join) -> bool:
    """Whether a broker that asks to join has shown that it is the one whose id it claims: it knows
    the nonce of the incarnation that was let in last, which only that broker was told and has
    stored, or the credential that came with the id."""
    if join.broker is None:
        return False
    known = state.brokers.get(join.broker)
    if known is not None and known.nonce in {join.nonce, *join.ancestors}:
        return True
    return Seals(state.secret).knows_broker(join.broker, join.credential)


def lost_data(state: ClusterState, broker: BrokerId, join: Join) -> bool:
    """Whether *broker* comes with another data directory than it was here with: a copy that another
    life went on from.

    Raises:
      RefusedError: BROKER_FENCED, if the id was given to another data directory, if what was here
          had come further, or it can't be told apart from this life.
    """
    known = state.brokers.get(broker)
    if known is None:
        return False
    if join.cluster and known.nonce in {join.nonce, *join.ancestors}:
        return False
    if not is_proven(state, join):
        # An id without its data directory would be anyone's for the asking, and the broker that
        # has it would be shut out.
        raise RefusedError(
            f"the id {broker} belongs to another data directory, which was here with incarnation "
            f"{known.incarnation}: start this broker without an id, and move the replicas of "
            f"broker {broker} to the id that it gets",
            Status.BROKER_FENCED,
        )
    holds = any(broker in one.replicas for one in state.partitions.values())
    if join.incarnation < known.incarnation + holds:
        raise RefusedError(
            f"broker {broker} was here with incarnation {known.incarnation}; this data "
            f"directory is new, or an older copy, with incarnation {join.incarnation}: start "
            "an empty one without an id, and move the replicas to the id that it gets",
            Status.BROKER_FENCED,
        )
    return True
