"""What a broker does without a register, after one has handed the cluster over: its first start,
and its answers to brokers that have not taken over yet."""

from __future__ import annotations

import attrs

from octopi.environment import Environment
from octopi.errors import RefusedError, Status
from octopi.identifiers import BrokerId
from octopi.ring.hand_over import HandOver
from octopi.roles.broker.identity import BrokerIdentity
from octopi.roles.broker.ring.options import RingOptions
from octopi.roles.broker.ring.own_acceptor import OwnAcceptor
from octopi.roles.broker.ring.store import KeptRing, StoredRing
from octopi.roles.broker.taking_over import check_takes_over, load_entries
from octopi.roles.hand_over_pages import hand_over_page
from octopi.wire import messages as m


def refusal_with_register(data_directory: str) -> RefusedError:
    """Why the broker of *data_directory*, which has a register, can't be in a ring."""
    return RefusedError(
        f"{data_directory} belongs to a broker of a cluster with a register: start it with "
        "--register and --join, and let the register hand the cluster over (`octopi-node cluster "
        "to-ring`)",
        Status.WRONG_CLUSTER,
    )


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


@attrs.frozen
class TakenOver:
    """Answers brokers that ask whether this one has taken over."""

    environment: Environment
    data_directory: str
    hand_over: HandOver | None
    """None: this cluster never had a register."""
    broker: BrokerId | None

    async def state(self, message: m.AskHandOverState) -> m.HandOverState:
        """Whether it has taken over by the try that is asked about.

        Raises:
          RefusedError: if this cluster never had a register.
        """
        node = None
        if self.hand_over is not None and self.broker is not None:
            node = self.hand_over.node(self.broker)
        if self.hand_over is None or node is None:
            raise _no_register()
        has_taken_over = self.hand_over.attempt == message.attempt
        return m.HandOverState(message.request, node.directory, has_taken_over, False, False)

    def page(self, message: m.AskHandOver) -> m.HandOverPage:
        """What was handed over.

        Raises:
          RefusedError: if this cluster never had a register.
          StorageError: if it can't be read.
        """
        if self.hand_over is None:
            raise _no_register()
        return hand_over_page(message, load_entries(self.environment, self.data_directory))


def _no_register() -> RefusedError:
    return RefusedError("this cluster never had a register", Status.WRONG_CLUSTER)
