"""The endpoints: paths of the WebSocket upgrade, and which messages may be sent there.

A connection belongs to one endpoint until it ends.  ``hello``, ``heartbeat`` and ``failure`` may be
sent at all of them; ``challenge`` and ``proof`` only when a connection of a node, or of an
operator's client, is opened.  All tables here are derived from the declarations of the messages
(`octopi.wire.declarations`).
"""

from __future__ import annotations

from typing import Final

import attrs

from octopi.limits import (
    HEARTBEAT_INTERVAL_S,
    HEARTBEAT_TIMEOUT_S,
    MEMBERSHIP_HEARTBEAT_INTERVAL_S,
    MEMBERSHIP_HEARTBEAT_TIMEOUT_S,
)
from octopi.wire import messages as m


@attrs.frozen
class Endpoint:
    """The messages and times of one path."""

    path: str
    to_decider: frozenset[type]
    """Messages that the connecting side may send to a register."""
    to_leader: frozenset[type]
    """Messages that the connecting side may send to a broker: those that it answers itself, and
    those that it passes on."""
    back: frozenset[type]
    """Messages that the node may send back."""
    heartbeat_interval_s: float
    """Each side sends a message at least this often."""
    heartbeat_timeout_s: float
    """Each side closes the connection after a silence of this length."""
    is_for_nodes: bool = False
    """Whether both sides have to prove that they belong to the cluster
    (`octopi.security.join_secret`)."""

    def accepted_by(self, role: str) -> frozenset[type]:
        """The messages that a node in *role*, ``register`` or ``broker``, accepts here."""
        return self.to_decider if role == "register" else self.to_leader


EVERYWHERE: Final = m.of_kind(m.MessageKind.CONNECTION)

REQUESTS: Final = m.of_kind(m.MessageKind.REQUEST)
"""Messages with a request number, which is in use until the request is answered."""

NOTICES: Final = m.of_kind(m.MessageKind.NOTICE)
"""Messages about something that exists already, such as a reading.  All messages that are neither
here nor in `REQUESTS` are answers, or belong to the connection itself."""

PASSED_ON: Final = m.passed_on()
"""Requests of clients that a broker passes on to the register, each in one `Ask`."""


def _endpoint(
    plane: m.Plane, path: str, interval_s: float, timeout_s: float, is_for_nodes: bool
) -> Endpoint:
    def sent(*services: m.Recipient) -> frozenset[type]:
        return frozenset().union(*(m.sent_on(m.MessageRoute(plane, one)) for one in services))

    return Endpoint(
        path,
        to_decider=sent(m.Recipient.DECIDER),
        to_leader=sent(m.Recipient.LEADER) | (PASSED_ON if plane is m.Plane.CLIENT else set()),
        back=sent(m.Recipient.CLIENT, m.Recipient.PEER),
        heartbeat_interval_s=interval_s,
        heartbeat_timeout_s=timeout_s,
        is_for_nodes=is_for_nodes,
    )


CLIENT: Final = _endpoint(
    m.Plane.CLIENT, "/v1/client", HEARTBEAT_INTERVAL_S, HEARTBEAT_TIMEOUT_S, is_for_nodes=False
)
"""Producers, consumers, operators and the console."""

MEMBERSHIP: Final = _endpoint(
    m.Plane.MEMBERSHIP,
    "/v1/membership",
    MEMBERSHIP_HEARTBEAT_INTERVAL_S,
    MEMBERSHIP_HEARTBEAT_TIMEOUT_S,
    is_for_nodes=True,
)
"""A broker at its register: silence on this connection means that the broker has failed."""

FOLLOW: Final = _endpoint(
    m.Plane.FOLLOW,
    "/v1/follow",
    MEMBERSHIP_HEARTBEAT_INTERVAL_S,
    MEMBERSHIP_HEARTBEAT_TIMEOUT_S,
    is_for_nodes=True,
)
"""A follower at its leader: one connection for each partition that it follows there."""

PEER: Final = _endpoint(
    m.Plane.PEER,
    "/v1/peer",
    MEMBERSHIP_HEARTBEAT_INTERVAL_S,
    MEMBERSHIP_HEARTBEAT_TIMEOUT_S,
    is_for_nodes=True,
)
"""A broker at its register, to ask what clients of the broker asked it: one connection, which the
broker opens when it first has something to ask.  In a cluster without a register: a broker at
another one, likewise."""

REGISTERS: Final = _endpoint(
    m.Plane.REGISTERS,
    "/v1/registers",
    MEMBERSHIP_HEARTBEAT_INTERVAL_S,
    MEMBERSHIP_HEARTBEAT_TIMEOUT_S,
    is_for_nodes=True,
)
"""A register at another one of the same cluster: one connection in each direction, over which only
the side that connected speaks."""

RING: Final = _endpoint(
    m.Plane.RING,
    "/v1/ring",
    HEARTBEAT_INTERVAL_S,
    HEARTBEAT_TIMEOUT_S,
    is_for_nodes=True,
)
"""A broker of a cluster without a register at another one: one connection in each direction, which
is opened when it is needed.  Only the side that connected asks."""

RELAY: Final = _endpoint(
    m.Plane.RELAY,
    "/v1/relay",
    MEMBERSHIP_HEARTBEAT_INTERVAL_S,
    MEMBERSHIP_HEARTBEAT_TIMEOUT_S,
    is_for_nodes=True,
)
"""A relay at another one: one connection for the two, made by the one with the greater id, over
which both speak."""
