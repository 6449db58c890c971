"""Whether a token grants what a message needs, for all roles and endpoints.

Pure.  Each message declares what it needs (`octopi.wire.declarations.Permission`).  A message that
declares nothing is sent to clients or to brokers alone, and is denied to every sender.  Answers
that list topics leave out topics on which the token grants nothing, and `DescribeTopic` creates a
topic only with the permission for it; the sessions ensure both.
"""

from __future__ import annotations

from typing import Final

from octopi.identifiers import is_system_topic
from octopi.security.grants import Grants, Verb
from octopi.wire import messages as m
from octopi.wire.endpoints import Endpoint

_NEEDS: Final = {cls: one.needs for cls, one in m.DECLARATIONS.items() if one.needs is not None}

_ON_ITS_TOPIC: Final[dict[type, Verb]] = {
    cls: needs.verb for cls, needs in _NEEDS.items() if needs.verb and needs.on_its_topic
}

_ON_THE_CLUSTER: Final[dict[type, Verb]] = {
    cls: needs.verb for cls, needs in _NEEDS.items() if needs.verb and not needs.on_its_topic
}

_ANYTHING_ON_ITS_TOPIC: Final = frozenset(
    cls for cls, needs in _NEEDS.items() if needs == m.ANYTHING_ON_ITS_TOPIC
)

_FREE: Final = frozenset(cls for cls, needs in _NEEDS.items() if needs == m.ANY_TOKEN)
"""Allowed with any valid token."""


def denied(grants: Grants, message: object) -> str | None:
    """Why *grants* don't allow *message*; None if they do."""
    cls = type(message)
    if cls in _FREE:
        return None
    topic: str = getattr(message, "topic", "")
    if cls in _ANYTHING_ON_ITS_TOPIC:
        return None if grants.covers(topic) else f"the token grants nothing on topic {topic!r}"
    verb = _ON_ITS_TOPIC.get(cls)
    if verb is not None:
        name: str | None = getattr(message, "name", None) if verb is Verb.CONSUME else None
        if not grants.allows(verb, topic, name):
            return not_granted(verb, topic, name)
        also = _NEEDS[cls].also
        is_enough = also is None or grants.allows_with(also, topic)
        return None if is_enough else not_granted(also or verb, topic)
    verb = _ON_THE_CLUSTER.get(cls)
    if verb is not None and grants.allows(verb, None):
        return None
    return f"the token does not grant {verb or m.TYPE_NAMES[cls]} on the cluster"


def denied_at(grants: Grants, endpoint: Endpoint) -> str | None:
    """Why *grants* don't allow to connect to *endpoint*; None if they do."""
    if endpoint.is_for_nodes and not grants.allows(Verb.REPLICATE, None):
        return f"the token does not grant {Verb.REPLICATE} on the cluster"
    return None


def not_granted(verb: Verb, topic: str, subscription: str | None = None) -> str:
    """The text of a refusal."""
    if is_system_topic(topic) and verb not in (Verb.SUBSCRIBE, Verb.CONSUME):
        return f"only nodes may change topic {topic!r}, which is the cluster's own history: read it"
    if subscription is not None:
        return f"the token does not grant {verb} on subscription {f'{topic}/{subscription}'!r}"
    return f"the token does not grant {verb} on topic {topic!r}"
