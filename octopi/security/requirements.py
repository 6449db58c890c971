"""What each message needs to be granted; one table for all roles and endpoints.

Pure.  What is not in the table is denied to everybody, so a new message is closed until
somebody thinks about it.  Answers that list topics leave out those that the asker may do
nothing with, and `DescribeTopic` creates only for who may; the sessions see to that.
"""

from __future__ import annotations

from typing import Final

from octopi.security.grants import Grants, Verb
from octopi.wire import messages as m
from octopi.wire.endpoints import FOLLOW, MEMBERSHIP, Endpoint

_ON_ITS_TOPIC: Final[dict[type, Verb]] = {
    m.CreateTopic: Verb.CREATE,
    m.DeleteTopic: Verb.ADMIN,
    m.Produce: Verb.PUBLISH,
    m.FindOffset: Verb.SUBSCRIBE,
    m.Fetch: Verb.SUBSCRIBE,
    m.Subscribe: Verb.SUBSCRIBE,
}

_ON_THE_CLUSTER: Final[dict[type, Verb]] = {
    m.DeleteTopicById: Verb.ADMIN,
    m.DrainBroker: Verb.ADMIN,
    m.AddPartitions: Verb.ADMIN,
    m.MoveReplica: Verb.ADMIN,
    m.RecoverPartition: Verb.ADMIN,
    m.RemoveBroker: Verb.ADMIN,
    **dict.fromkeys(MEMBERSHIP.to_register | FOLLOW.to_broker, Verb.REPLICATE),
}

_ANYTHING_ON_ITS_TOPIC: Final = frozenset({m.DescribeTopic})

_FREE: Final = frozenset(
    {
        m.Authenticate,
        m.Credit,  # about a subscription that was granted
        m.DescribeCluster,
        m.DescribeEvents,
        m.DescribeLogs,
        m.DescribeSubscriptions,
        m.ListTopics,
        m.Unsubscribe,
    }
)
"""For who has any valid token."""


def denied(grants: Grants, message: object) -> str | None:
    """Why *message* must not be carried out for who has *grants*; None: it may."""
    cls = type(message)
    if cls in _FREE:
        return None
    topic: str = getattr(message, "topic", "")
    if cls in _ANYTHING_ON_ITS_TOPIC:
        return None if grants.covers(topic) else f"the token grants nothing on topic {topic!r}"
    verb = _ON_ITS_TOPIC.get(cls)
    if verb is not None:
        return None if grants.allows(verb, topic) else not_granted(verb, topic)
    verb = _ON_THE_CLUSTER.get(cls)
    if verb is not None and grants.allows(verb, None):
        return None
    return f"the token does not grant {verb or m.TYPE_NAMES[cls]} on the cluster"


def denied_at(grants: Grants, endpoint: Endpoint) -> str | None:
    """Why who has *grants* must not connect to *endpoint*; None: it may."""
    if endpoint in (MEMBERSHIP, FOLLOW) and not grants.allows(Verb.REPLICATE, None):
        return f"the token does not grant {Verb.REPLICATE} on the cluster"
    return None


def not_granted(verb: Verb, topic: str) -> str:
    """What to say to who may not."""
    return f"the token does not grant {verb} on topic {topic!r}"
