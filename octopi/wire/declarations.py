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
    """Producers, consumers, operators."""
    MEMBERSHIP = "membership"
    """A broker, and the service that decides."""
    FOLLOW = "follow"
    """The follower and the leader of a partition."""


class Recipient(Enum):
    """Who handles a message."""

    CLIENT = "client"
    """The program that connected at the endpoint for clients."""
    DECIDER = "decider"
    """Decides about topics, partitions and brokers; today the register."""
    LEADER = "leader"
    """Holds the logs of partitions, as their leader or as another replica; a broker."""
    PEER = "peer"
    """The broker that connected, as a member of the cluster or as a follower."""


@attrs.frozen
class MessageRoute:
    """A direction in which a message may be sent on connections of a plane."""

    plane: Plane
    to: Recipient

    @property
    def is_checked(self) -> bool:
        """Whether the receiver asks the sender's token for a permission.  The side that connected
        checks none: it has chosen the node."""
        return self.to in (Recipient.DECIDER, Recipient.LEADER)


CLIENT_TO_DECIDER: Final = MessageRoute(Plane.CLIENT, Recipient.DECIDER)
CLIENT_TO_LEADER: Final = MessageRoute(Plane.CLIENT, Recipient.LEADER)
TO_CLIENT: Final = MessageRoute(Plane.CLIENT, Recipient.CLIENT)
MEMBER_TO_DECIDER: Final = MessageRoute(Plane.MEMBERSHIP, Recipient.DECIDER)
DECIDER_TO_MEMBER: Final = MessageRoute(Plane.MEMBERSHIP, Recipient.PEER)
FOLLOWER_TO_LEADER: Final = MessageRoute(Plane.FOLLOW, Recipient.LEADER)
LEADER_TO_FOLLOWER: Final = MessageRoute(Plane.FOLLOW, Recipient.PEER)


@attrs.frozen
class Permission:
    """What the token of a sender has to grant."""

    verb: Verb | None
    """None: any verb is enough."""
    on_its_topic: bool
    """On the topic that the message names (its field ``topic``); else on the cluster.  The verb
    ``consume``: on the subscription of that topic that it names (its field ``name``); without such
    a field on any, and who handles the message has to look which one it is."""
    also: Verb | None = None
    """Needed as well, on the topic that the message names."""


ANY_TOKEN: Final = Permission(None, on_its_topic=False)
"""Each valid token is enough."""
ANYTHING_ON_ITS_TOPIC: Final = Permission(None, on_its_topic=True)


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
    """Takes a request number into use until it is answered."""
    ANSWER = "answer"
    """Answers a request, or belongs to one."""
    NOTICE = "notice"
    """Is about what is there already; it begins nothing that needs a number."""
    CONNECTION = "connection"
    """Belongs to the connection itself, at each endpoint, in both directions."""


@attrs.frozen
class Declaration:
    """All that is declared about a message class."""

    name: str
    """What stands under ``"type"`` in its bytes."""
    kind: MessageKind
    routes: frozenset[MessageRoute]
    needs: Permission | None
    """None: it is sent on no route that checks permissions."""


DECLARATIONS: Final[dict[type, Declaration]] = {}
"""Message class -> what it declares."""

MESSAGES: Final[dict[str, type]] = {}
"""Type name -> message class."""

TYPE_NAMES: Final[dict[type, str]] = {}
"""Message class -> type name."""


def request(
    name: str, *routes: MessageRoute, needs: Permission | None = None
) -> Callable[[_C], _C]:
    """Declare a message that asks for an answer; it has a field ``request``, its number."""
    return _declare(name, MessageKind.REQUEST, routes, needs)


def answer(name: str, *routes: MessageRoute, needs: Permission | None = None) -> Callable[[_C], _C]:
    """Declare a message that answers a request."""
    return _declare(name, MessageKind.ANSWER, routes, needs)


def notice(name: str, *routes: MessageRoute, needs: Permission | None = None) -> Callable[[_C], _C]:
    """Declare a message without an answer that has the notice's own number."""
    return _declare(name, MessageKind.NOTICE, routes, needs)


def connection(name: str) -> Callable[[_C], _C]:
    """Declare a message of the connection itself."""
    return _declare(name, MessageKind.CONNECTION, (), None)


def _declare(
    name: str, kind: MessageKind, routes: tuple[MessageRoute, ...], needs: Permission | None
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
        DECLARATIONS[cls] = Declaration(name, kind, frozenset(routes), needs)
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
