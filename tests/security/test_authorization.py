"""The authorisation matrix: every message that a client or broker may send, every verb."""

from __future__ import annotations

import attrs
import pytest

from octopi.security.authorization import denied, denied_at
from octopi.security.grants import Grants, Verb, grants
from octopi.wire import messages as m
from octopi.wire.endpoints import CLIENT, FOLLOW, MEMBERSHIP, Endpoint

OPTIONS = m.TopicOptions()
TOPIC = "orders"

NEEDED: dict[type, Verb | None] = {
    m.CreateTopic: Verb.CREATE,
    m.DeleteTopic: Verb.ADMIN,
    m.Produce: Verb.PUBLISH,
    m.FindOffset: Verb.SUBSCRIBE,
    m.Fetch: Verb.SUBSCRIBE,
    m.Subscribe: Verb.SUBSCRIBE,
    m.DeleteTopicById: Verb.ADMIN,
    m.DrainBroker: Verb.ADMIN,
    m.AddPartitions: Verb.ADMIN,
    m.MoveReplica: Verb.ADMIN,
    m.RecoverPartition: Verb.ADMIN,
    m.RemoveBroker: Verb.ADMIN,
    m.Inventory: Verb.REPLICATE,
    m.Join: Verb.REPLICATE,
    m.OrderCarriedOut: Verb.REPLICATE,
    m.AcceptEpoch: Verb.REPLICATE,
    m.AlterInSync: Verb.REPLICATE,
    m.Resign: Verb.REPLICATE,
    m.Stopping: Verb.REPLICATE,
    m.Done: Verb.REPLICATE,
    m.Goodbye: Verb.REPLICATE,
    m.BrokerStatus: Verb.REPLICATE,
    m.Follow: Verb.REPLICATE,
    m.Acknowledge: Verb.REPLICATE,
    m.Authenticate: None,
    m.Credit: None,
    m.DescribeCluster: None,
    m.DescribeEvents: None,
    m.DescribeLogs: None,
    m.DescribeReadings: None,
    m.DescribeTopic: None,
    m.ListTopics: None,
    m.Unsubscribe: None,
}
"""What each message needs; None: any verb (on its topic, if it names one)."""

MAY_BE_SENT = frozenset().union(
    *(one.to_decider | one.to_leader for one in (CLIENT, MEMBERSHIP, FOLLOW))
)


def example(cls: type) -> object:
    """A message of that class, about `TOPIC` if it is about one."""
    message: object = object.__new__(cls)
    for field in attrs.fields(cls):
        object.__setattr__(message, field.name, TOPIC if field.name == "topic" else 1)
    return message


def test_nothing_that_may_be_sent_is_forgotten() -> None:
    assert set(NEEDED) == MAY_BE_SENT


@pytest.mark.parametrize("cls", NEEDED, ids=lambda cls: cls.__name__)
@pytest.mark.parametrize("verb", Verb)
def test_each_message_needs_its_verb(cls: type, verb: Verb) -> None:
    needed = NEEDED[cls]
    is_enough = needed in {None, verb}
    assert (denied(grants({verb: ["*"]}), example(cls)) is None) == is_enough
    others: dict[str, list[str]] = {one: ["*"] for one in Verb if one is not verb}
    assert (denied(grants(others), example(cls)) is None) == (needed != verb)


@pytest.mark.parametrize("cls", NEEDED, ids=lambda cls: cls.__name__)
def test_a_verb_granted_on_other_topics_does_not_count(cls: type) -> None:
    elsewhere = grants({verb: ["other", "orders.*", "**"[:1] + "x"] for verb in Verb})
    has_topic = "topic" in {field.name for field in attrs.fields(cls)}
    free = NEEDED[cls] is None and cls is not m.DescribeTopic
    assert (denied(elsewhere, example(cls)) is None) == free
    here = grants({verb: ["ord*"] for verb in Verb})
    assert (denied(here, example(cls)) is None) == (has_topic or free)


@pytest.mark.parametrize(
    "cls", [one for one in m.TYPE_NAMES if one not in NEEDED], ids=lambda cls: cls.__name__
)
def test_a_message_without_a_declared_permission_is_denied_to_every_sender(cls: type) -> None:
    assert denied(grants({verb: ["*"] for verb in Verb}), example(cls)) is not None


@pytest.mark.parametrize("endpoint", [MEMBERSHIP, FOLLOW, CLIENT], ids=lambda one: one.path)
@pytest.mark.parametrize("verb", Verb)
def test_only_brokers_come_to_the_endpoints_of_brokers(endpoint: Endpoint, verb: Verb) -> None:
    allowed = endpoint is CLIENT or verb is Verb.REPLICATE
    assert (denied_at(grants({verb: ["*"]}), endpoint) is None) == allowed
    if endpoint is not CLIENT:
        assert denied_at(grants({verb: ["a*"]}), endpoint) is not None


def test_a_refusal_quotes_what_it_was_given() -> None:
    text = denied(Grants({}), m.Produce(1, "a\nb\x1b[2J", 0, b""))
    assert text == r"the token does not grant publish on topic 'a\nb\x1b[2J'"
