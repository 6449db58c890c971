"""Which incarnation of a broker asks to join: the live one, a later one, or an unrelated one.

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
    """Whether the incarnation that asks to join is the live one.  Then its last connection broke,
    which the register may not have noticed.  It names no cluster if its disk was too full to store
    that it had joined.  *live*: broker -> incarnation."""
    if join.broker is None:
        return False
    known = state.brokers.get(join.broker)
    return (
        known is not None
        and live.get(join.broker) == join.incarnation
        and known.nonce == join.nonce
    )


def is_later_life(state: ClusterState, join: Join) -> bool:
    """Whether the incarnation that asks to join was started after the registered one, with the same
    data directory.  One process at a time has the directory, so the registered one has ended."""
    known = state.brokers.get(join.broker) if join.broker is not None else None
    return (
        known is not None and join.incarnation > known.incarnation and known.nonce in join.ancestors
    )


def is_proven(state: ClusterState, join: Join) -> bool:
    """Whether a broker that asks to join has shown that the id is its own: it knows the credential
    that it got with the id, or the nonce of the incarnation that was admitted last, which only that
    broker knows and has stored."""
    if join.broker is None:
        return False
    known = state.brokers.get(join.broker)
    if known is not None and known.nonce in {join.nonce, *join.ancestors}:
        return True
    return Seals(state.secret).knows_broker(join.broker, join.credential)


def lost_data(state: ClusterState, broker: BrokerId, join: Join) -> bool:
    """Whether *broker* joins with another data directory than the one that it joined with last: a
    copy from which another incarnation has continued.

    Raises:
      RefusedError: BROKER_FENCED, if the id was given to another data directory, or if this one may
          be older than the one that joined last: its incarnation is smaller, or the same while
          *broker* has replicas.
    """
    known = state.brokers.get(broker)
    if known is None:
        return False
    if known.nonce == join.nonce or (join.cluster and known.nonce in join.ancestors):
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
