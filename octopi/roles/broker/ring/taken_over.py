"""The first start of a broker without a register, after one has handed the cluster over."""

from __future__ import annotations

from octopi.ring.hand_over import HandOver
from octopi.roles.broker.identity import BrokerIdentity
from octopi.roles.broker.ring.options import RingOptions
from octopi.roles.broker.ring.own_acceptor import OwnAcceptor
from octopi.roles.broker.ring.store import KeptRing, StoredRing
from octopi.roles.broker.taking_over import check_takes_over


def take_over(
    hand_over: HandOver,
    identity: BrokerIdentity,
    acceptor: OwnAcceptor,
    kept: KeptRing,
    options: RingOptions,
) -> bool:
    """Have the broker *identity* be in the cluster that was handed over, if it was in no ring yet;
    say whether it wasn't.

    Raises:
      RefusedError, StorageError: if it is not one of those that take over.
    """
    assert acceptor.identity is not None, "a broker of a register has an id"
    directory = acceptor.identity.directory
    check_takes_over(hand_over, identity, directory, options.data_directory)
    if kept.content.was_member:
        return False
    broker = acceptor.identity.broker
    node = hand_over.node(broker)
    assert node is not None, "it was checked"
    kept.content = StoredRing(
        is_admitted=True,
        point=node.point,
        cluster=hand_over.cluster,
        known=hand_over.others(broker),
    )
    return True
