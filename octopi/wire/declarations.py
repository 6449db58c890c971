"""How a message is declared: its type name, its kind, its routes, and the permission it needs.

Each message class carries one of the decorators `request`, `answer`, `notice` and `connection`.
The tables of the endpoints (`octopi.wire.endpoints`) and of the permissions
(`octopi.security.authorization`) are derived from the declarations.  A class that does not say what
these tables need raises `TypeError` when its module is imported.

Routes name services, not roles of nodes: which node decides about topics, or leads a partition, can
change without a change to the messages.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final, TypeVar

import attrs

from octopi.model import Verb

_C = TypeVar("_C", bound=type)


class Plane(Enum):
    """A kind of connection: each has an endpoint of its own."""

    CLIENT = "client"
    """Between producers, consumers or operators, and nodes."""
    MEMBERSHIP = "membership"
    """Between a broker and the decider."""
    FOLLOW = "follow"
    """Between the follower and the leader of a partition."""
    PEER = "peer"
    """Between a node and another one that it asks on behalf of a client."""
    REGISTERS = "registers"
    """Between the registers of a cluster."""
    RING = "ring"
    """Between the brokers of a cluster without a register."""
    RELAY = "relay"
    """Between the brokers of a relay set, and receivers."""


class Recipient(Enum):
    """The service or program that handles a message."""

    CLIENT = "client"
    """The program that connected at the endpoint for clients."""
    DECIDER = "decider"
    """The service that decides about topics, partitions and brokers; today the register."""
    LEADER = "leader"
    """A broker that holds logs of partitions, as their leader or as another replica."""
    PEER = "peer"
    """The broker that connected: as a member of the cluster, as a follower, to ask, as another one
    of the ring, or as another relay."""


@attrs.frozen
class MessageRoute:
    """A direction in which a message may be sent on connections of a plane."""

    plane: Plane
    to: Recipient

    @property
    def is_checked(self) -> bool:
        """Whether the receiver checks that the sender's token grants the permission.  The side that
        connected checks none, since it has chosen the node."""
        return self.to in (Recipient.DECIDER, Recipient.LEADER)


CLIENT_TO_DECIDER: Final = MessageRoute(Plane.CLIENT, Recipient.DECIDER)
CLIENT_TO_LEADER: Final = MessageRoute(Plane.CLIENT, Recipient.LEADER)
TO_CLIENT: Final = MessageRoute(Plane.CLIENT, Recipient.CLIENT)
MEMBER_TO_DECIDER: Final = MessageRoute(Plane.MEMBERSHIP, Recipient.DECIDER)
DECIDER_TO_MEMBER: Final = MessageRoute(Plane.MEMBERSHIP, Recipient.PEER)
FOLLOWER_TO_LEADER: Final = MessageRoute(Plane.FOLLOW, Recipient.LEADER)
LEADER_TO_FOLLOWER: Final = MessageRoute(Plane.FOLLOW, Recipient.PEER)
PEER_TO_DECIDER: Final = MessageRoute(Plane.PEER, Recipient.DECIDER)
PEER_TO_LEADER: Final = MessageRoute(Plane.PEER, Recipient.LEADER)
DECIDER_TO_PEER: Final = MessageRoute(Plane.PEER, Recipient.PEER)
REGISTER_TO_REGISTER: Final = MessageRoute(Plane.REGISTERS, Recipient.DECIDER)
BROKER_TO_BROKER: Final = MessageRoute(Plane.RING, Recipient.LEADER)
BROKER_TO_BROKER_BACK: Final = MessageRoute(Plane.RING, Recipient.PEER)
RELAY_TO_RELAY: Final = MessageRoute(Plane.RELAY, Recipient.LEADER)
RELAY_TO_RELAY_BACK: Final = MessageRoute(Plane.RELAY, Recipient.PEER)


@attrs.frozen
class Permission:
    """What the token of a sender has to grant."""

    verb: Verb | None
    """The verb; None: any verb is enough."""
    on_its_topic: bool
    """Whether the verb is needed on the topic that the message names (in its field ``topic``);
    otherwise on the cluster.  ``consume`` is needed on the subscription that the message names (in
    its field ``name``).  If it has no such field, a grant for any subscription of the topic is
    enough here, and the handler of the message checks the right one."""
    also: Verb | None = None
    """Another verb that is needed, on the topic that the message names."""


ANY_TOKEN: Final = Permission(None, on_its_topic=False)
"""Any valid token is enough."""
ANYTHING_ON_ITS_TOPIC: Final = Permission(None, on_its_topic=True)
"""A token that grants any verb on the topic is enough."""


def on_its_topic(verb: Verb) -> Permission:
    """*verb* on the topic that the message names."""
    return Permission(verb, on_its_topic=True)


def on_its_subscription(*, also: Verb | None = None) -> Permission:
    """``consume`` on the subscription that the message is about, and *also* on its topic."""
    return Permission(Verb.CONSUME, on_its_topic=True, also=also)


def on_the_cluster(verb: Verb) -> Permission:
    """*verb* on ``*``."""
    return Permission(verb, on_its_topic=False)


class MessageKind(Enum):
    """What a message does with request numbers."""

    REQUEST = "request"
    """It has a new request number, which is in use until the request is answered."""
    ANSWER = "answer"
    """It answers a request, or follows such an answer."""
    NOTICE = "notice"
    """It is about something that exists already, and takes no new request number."""
    CONNECTION = "connection"
    """It belongs to the connection itself, at each endpoint, in both directions."""


@attrs.frozen
class Declaration:
    """The declaration of a message class."""

    name: str
    """Its type name: the value of ``"type"`` in its bytes."""
    kind: MessageKind
    routes: frozenset[MessageRoute]
    needs: Permission | None
    """The permission that it needs; None: it has no route on which permissions are checked."""
    asked_s: float | None = None
    """How long (s) a broker that passes it on to the decider waits for the answer; None: brokers
    don't pass it on."""
    since: int = 1
    """The first version of the protocol that has it; it is not sent to peers that speak only an
    earlier one (`octopi.transport.connection.Connection.version`)."""


DECLARATIONS: Final[dict[type, Declaration]] = {}
"""Message class -> its declaration."""

MESSAGES: Final[dict[str, type]] = {}
"""Type name -> message class."""

TYPE_NAMES: Final[dict[type, str]] = {}
"""Message class -> type name."""


def request(
    name: str,
    *routes: MessageRoute,
    needs: Permission | None = None,
    asked_s: float | None = None,
    since: int = 1,
) -> Callable[[_C], _C]:
    """Declare a message that asks for an answer; its field ``request`` has its number.  One that
    only the decider answers also says how long a broker waits that passes it on (*asked_s*).
    *since*: see `Declaration`."""
    return _declare(name, MessageKind.REQUEST, routes, needs, asked_s, since)


def answer(
    name: str, *routes: MessageRoute, needs: Permission | None = None, since: int = 1
) -> Callable[[_C], _C]:
    """Declare a message that answers a request.  *since*: see `Declaration`."""
    return _declare(name, MessageKind.ANSWER, routes, needs, since=since)


def notice(
    name: str, *routes: MessageRoute, needs: Permission | None = None, since: int = 1
) -> Callable[[_C], _C]:
    """Declare a message that takes no new request number (`MessageKind.NOTICE`).  *since*: see
    `Declaration`."""
    return _declare(name, MessageKind.NOTICE, routes, needs, since=since)


def connection(name: str) -> Callable[[_C], _C]:
    """Declare a message that belongs to the connection itself."""
    return _declare(name, MessageKind.CONNECTION, (), None)


def _declare(
    name: str,
    kind: MessageKind,
    routes: tuple[MessageRoute, ...],
    needs: Permission | None,
    asked_s: float | None = None,
    since: int = 1,
) -> Callable[[_C], _C]:
    def declare(cls: _C) -> _C:
        fields = attrs.fields_dict(cls)
        if name in MESSAGES:
            raise TypeError(
                f"{cls.__name__}: the type name {name!r} is {MESSAGES[name].__name__}'s"
            )
        if kind is not MessageKind.CONNECTION and not routes:
            raise TypeError(f"{cls.__name__} does not say where it is sent (a route)")
        if any(route.is_checked for route in routes) != (needs is not None):
            wants = "does not say which permission it needs" if needs is None else "needs none"
            raise TypeError(f"{cls.__name__} {wants}: see octopi.wire.declarations.Permission")
        if kind is MessageKind.REQUEST and "request" not in fields:
            raise TypeError(f"{cls.__name__} is a request without a field 'request'")
        if needs is not None and needs.on_its_topic and "topic" not in fields:
            raise TypeError(f"{cls.__name__} needs a permission on its topic, and names none")
        is_only_decided = CLIENT_TO_DECIDER in routes and CLIENT_TO_LEADER not in routes
        if is_only_decided != (asked_s is not None):
            wants = "does not say how long" if is_only_decided else "needs not say how long"
            raise TypeError(f"{cls.__name__} {wants} a broker waits that passes it on (asked_s)")
        DECLARATIONS[cls] = Declaration(name, kind, frozenset(routes), needs, asked_s, since)
        MESSAGES[name] = cls
        TYPE_NAMES[cls] = name
        return cls

    return declare


def of_kind(kind: MessageKind) -> frozenset[type]:
    """The message classes of *kind*."""
    return frozenset(cls for cls, one in DECLARATIONS.items() if one.kind is kind)


def sent_on(route: MessageRoute) -> frozenset[type]:
    """The message classes that may be sent on *route*."""
    return frozenset(cls for cls, one in DECLARATIONS.items() if route in one.routes)


def passed_on() -> frozenset[type]:
    """The requests of clients that a broker passes on to the decider."""
    return frozenset(cls for cls, one in DECLARATIONS.items() if one.asked_s is not None)
