"""The authorisation matrix: every message that a client or broker may send, every verb."""

from __future__ import annotations

import attrs
import pytest

from octopi.identifiers import PartitionId, SubscriptionId
from octopi.security.authorization import denied, denied_at
from octopi.security.grants import Grants, Verb, grants
from octopi.wire import messages as m
from octopi.wire.endpoints import CLIENT, FOLLOW, MEMBERSHIP, PEER, REGISTERS, RELAY, RING, Endpoint

OPTIONS = m.TopicOptions()
TOPIC = "orders"
SUBSCRIPTION = "billing"

NEEDED: dict[type, Verb | None] = {
    m.CreateTopic: Verb.CREATE,
    m.AlterTopic: Verb.ADMIN,
    m.DeleteTopic: Verb.ADMIN,
    m.Produce: Verb.PUBLISH,
    m.DescribeProducer: Verb.PUBLISH,
    m.FindOffset: Verb.SUBSCRIBE,
    m.Fetch: Verb.SUBSCRIBE,
    m.Subscribe: Verb.SUBSCRIBE,
    m.DeleteTopicById: Verb.ADMIN,
    m.DrainBroker: Verb.ADMIN,
    m.AddPartitions: Verb.ADMIN,
    m.MoveReplica: Verb.ADMIN,
    m.SetRelays: Verb.ADMIN,
    m.GrowTopic: Verb.ADMIN,
    m.MoveTopic: Verb.ADMIN,
    m.HandOverToRing: Verb.ADMIN,
    m.HandOverToRegisters: Verb.ADMIN,
    m.RecoverPartition: Verb.ADMIN,
    m.RemoveBroker: Verb.ADMIN,
    m.Inventory: Verb.REPLICATE,
    m.Join: Verb.REPLICATE,
    m.OrderCarriedOut: Verb.REPLICATE,
    m.TopicSealed: Verb.REPLICATE,
    m.AcceptEpoch: Verb.REPLICATE,
    m.AlterInSync: Verb.REPLICATE,
    m.Resign: Verb.REPLICATE,
    m.Stopping: Verb.REPLICATE,
    m.Done: Verb.REPLICATE,
    m.Goodbye: Verb.REPLICATE,
    m.BrokerStatus: Verb.REPLICATE,
    m.Ask: Verb.REPLICATE,
    m.ForwardProduce: Verb.REPLICATE,
    m.StreamExpired: Verb.REPLICATE,
    m.RelayReport: Verb.REPLICATE,
    m.BrokerLoad: Verb.REPLICATE,
    m.AskHandOver: Verb.REPLICATE,
    m.AskHandOverState: Verb.REPLICATE,
    m.RingReady: Verb.REPLICATE,
    m.Follow: Verb.REPLICATE,
    m.Acknowledge: Verb.REPLICATE,
    m.VoteRequest: Verb.REPLICATE,
    m.VoteAnswer: Verb.REPLICATE,
    m.EntriesSent: Verb.REPLICATE,
    m.SnapshotSent: Verb.REPLICATE,
    m.ActiveHeard: Verb.REPLICATE,
    m.EntriesStored: Verb.REPLICATE,
    m.EntriesMissed: Verb.REPLICATE,
    m.SnapshotTaken: Verb.REPLICATE,
    m.ActiveGone: Verb.REPLICATE,
    m.CreateSubscription: Verb.CONSUME,
    m.DescribeSubscription: Verb.CONSUME,
    m.ListSubscriptions: Verb.CONSUME,
    m.FinishSubscription: Verb.CONSUME,
    m.DeleteSubscription: Verb.CONSUME,
    m.ResetSubscription: Verb.CONSUME,
    m.FinishReset: Verb.CONSUME,
    m.JoinGroup: Verb.CONSUME,
    m.OpenMarks: Verb.CONSUME,
    m.Attach: Verb.CONSUME,
    m.SetMark: Verb.CONSUME,
    m.DeleteMarks: Verb.CONSUME,
    m.DescribeMarks: Verb.CONSUME,
    m.AcceptValue: Verb.REPLICATE,
    m.Admit: Verb.REPLICATE,
    m.FindHolder: Verb.REPLICATE,
    m.HostTopic: Verb.REPLICATE,
    m.Introduce: Verb.REPLICATE,
    m.KnownValues: Verb.REPLICATE,
    m.Leave: Verb.REPLICATE,
    m.Meet: Verb.REPLICATE,
    m.PrepareBallot: Verb.REPLICATE,
    m.Probe: Verb.REPLICATE,
    m.Stabilise: Verb.REPLICATE,
    m.Pulse: Verb.REPLICATE,
    m.AnnounceEpoch: Verb.REPLICATE,
    m.ValueChosen: Verb.REPLICATE,
    m.DescribeRing: None,
    m.Holding: None,
    m.Locate: None,
    m.OrderLeave: Verb.ADMIN,
    m.QueueCredit: None,
    m.Settle: None,
    m.LeaveGroup: None,
    m.Mark: None,
    m.Detach: None,
    m.Authenticate: None,
    m.CountMessages: None,
    m.Credit: None,
    m.DescribeCluster: None,
    m.DescribeEvents: None,
    m.DescribeLoads: None,
    m.DescribeLogs: None,
    m.DescribeNode: None,
    m.DescribeReadings: None,
    m.DescribeRelays: None,
    m.DescribeRelayStream: None,
    m.DescribeTopic: None,
    m.ListTopics: None,
    m.ReportPosition: None,
    m.Unsubscribe: None,
    **dict.fromkeys(sorted(RELAY.to_leader, key=lambda cls: cls.__name__), Verb.REPLICATE),
}
"""What each message needs; None: any verb (on its topic, if it names one)."""

NEEDED_AS_WELL: dict[type, Verb] = {
    m.DeleteSubscription: Verb.ADMIN,
    m.ResetSubscription: Verb.ADMIN,
    m.FinishReset: Verb.ADMIN,
    m.SetMark: Verb.ADMIN,
    m.DeleteMarks: Verb.ADMIN,
}

MAY_BE_SENT = frozenset().union(
    *(
        one.to_decider | one.to_leader
        for one in (CLIENT, MEMBERSHIP, FOLLOW, PEER, REGISTERS, RING, RELAY)
    )
)


def example(cls: type) -> object:
    """A message of that class, about `TOPIC` if it is about one."""
    message: object = object.__new__(cls)
    for field in attrs.fields(cls):
        value = {"topic": TOPIC, "name": SUBSCRIPTION}.get(field.name, 1)
        object.__setattr__(message, field.name, value)
    return message


def pairs(verb: Verb, topics: list[str]) -> list[str]:
    """Patterns of *verb* that cover these topics, and all their subscriptions."""
    return [f"{one}/*" for one in topics] if verb is Verb.CONSUME else topics


def test_the_matrix_has_every_message_that_may_be_sent() -> None:
    assert set(NEEDED) == MAY_BE_SENT


@pytest.mark.parametrize("cls", NEEDED, ids=lambda cls: cls.__name__)
@pytest.mark.parametrize("verb", Verb)
def test_each_message_needs_its_verb(cls: type, verb: Verb) -> None:
    needed = NEEDED[cls]
    also = NEEDED_AS_WELL.get(cls)
    is_enough = needed in {None, verb} and also is None
    assert (denied(grants({verb: ["*"]}), example(cls)) is None) == is_enough
    others: dict[str, list[str]] = {one: ["*"] for one in Verb if one is not verb}
    assert (denied(grants(others), example(cls)) is None) == (verb not in {needed, also})


@pytest.mark.parametrize("cls", NEEDED, ids=lambda cls: cls.__name__)
def test_a_verb_granted_on_other_topics_does_not_count(cls: type) -> None:
    topics = ["other", "orders.*", "**"[:1] + "x"]
    elsewhere = grants({verb: pairs(verb, topics) for verb in Verb})
    has_topic = "topic" in {field.name for field in attrs.fields(cls)}
    has_topic = has_topic and cls is not m.HostTopic  # which brokers send, with a whole record
    free = NEEDED[cls] is None and cls is not m.DescribeTopic
    assert (denied(elsewhere, example(cls)) is None) == free
    here = grants({verb: pairs(verb, ["ord*"]) for verb in Verb})
    assert (denied(here, example(cls)) is None) == (has_topic or free)


@pytest.mark.parametrize(
    "cls", [one for one in m.TYPE_NAMES if one not in NEEDED], ids=lambda cls: cls.__name__
)
def test_a_message_without_a_declared_permission_is_denied_to_every_sender(cls: type) -> None:
    assert denied(grants({verb: ["*"] for verb in Verb}), example(cls)) is not None


@pytest.mark.parametrize(
    "endpoint", [MEMBERSHIP, FOLLOW, REGISTERS, RING, RELAY, CLIENT], ids=lambda one: one.path
)
@pytest.mark.parametrize("verb", Verb)
def test_only_brokers_may_use_the_endpoints_of_brokers(endpoint: Endpoint, verb: Verb) -> None:
    allowed = endpoint is CLIENT or verb is Verb.REPLICATE
    assert (denied_at(grants({verb: ["*"]}), endpoint) is None) == allowed
    if endpoint is not CLIENT:
        assert denied_at(grants({verb: pairs(verb, ["a*"])}), endpoint) is not None


@pytest.mark.parametrize("cls", NEEDED_AS_WELL, ids=lambda cls: cls.__name__)
def test_some_messages_need_a_second_verb_on_the_topic(cls: type) -> None:
    pair = {Verb.CONSUME: ["orders/*"], Verb.ADMIN: ["orders"]}
    assert denied(grants(pair), example(cls)) is None
    assert denied(grants(pair | {Verb.ADMIN: ["other"]}), example(cls)) == (
        "the token does not grant admin on topic 'orders'"
    )


@pytest.mark.parametrize(
    ("pattern", "of_one", "of_another", "of_some"),
    [
        ("orders/billing", True, False, True),
        ("orders/*", True, True, True),
        ("*/billing", True, False, True),
        ("*", True, True, True),
        ("orders/b*", True, False, True),
        ("other/billing", False, False, False),
    ],
)
def test_a_message_that_names_its_subscription_needs_the_verb_on_that_one(
    pattern: str, of_one: bool, of_another: bool, of_some: bool
) -> None:
    held = grants({Verb.CONSUME: [pattern]})
    for name, expected in (("billing", of_one), ("shipping", of_another)):
        text = denied(held, m.DescribeSubscription(1, TOPIC, PartitionId(0), name))
        assert text is None or text == (
            f"the token does not grant consume on subscription 'orders/{name}'"
        )
        assert (text is None) == expected
    by_id = m.DescribeMarks(1, TOPIC, PartitionId(0), SubscriptionId("0" * 16))
    assert (denied(held, by_id) is None) == of_some


SYSTEM = "_octopi.events"


@pytest.mark.parametrize("cls", NEEDED, ids=lambda cls: cls.__name__)
def test_only_nodes_change_system_topics(cls: type) -> None:
    message = example(cls)
    if not hasattr(message, "topic"):
        return
    object.__setattr__(message, "topic", SYSTEM)
    changes = NEEDED[cls] in {Verb.CREATE, Verb.PUBLISH, Verb.ADMIN}
    clients = grants({verb: ["*"] for verb in Verb if verb is not Verb.REPLICATE})
    text = denied(clients, message)
    if changes:
        assert text is not None
        assert "only nodes may change topic '_octopi.events'" in text
        assert denied(grants({Verb.REPLICATE: ["*"]}), message) is None
        some = grants({Verb.REPLICATE: ["_octopi.*"]})
        assert denied(some, message) is not None
    else:
        assert (text is None) == (NEEDED[cls] is not Verb.REPLICATE)


def test_system_topics_are_read_as_all_others() -> None:
    reads = m.Fetch(1, SYSTEM, 0, 0, 1, 0)
    assert denied(grants({Verb.SUBSCRIBE: ["_octopi.*"]}), reads) is None
    assert denied(grants({Verb.SUBSCRIBE: ["orders"]}), reads) is not None
    assert not grants({verb: ["*"] for verb in ("create", "publish", "admin")}).covers(SYSTEM)


def test_a_refusal_quotes_control_characters_of_the_request() -> None:
    text = denied(Grants({}), m.Produce(1, "a\nb\x1b[2J", 0, b""))
    assert text == r"the token does not grant publish on topic 'a\nb\x1b[2J'"
