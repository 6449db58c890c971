"""The table of endpoints covers the protocol."""

from __future__ import annotations

import attrs
import pytest

from octopi.wire import messages as m
from octopi.wire.endpoints import (
    CLIENT,
    EVERYWHERE,
    FOLLOW,
    MEMBERSHIP,
    NOTICES,
    PASSED_ON,
    PEER,
    REGISTERS,
    RELAY,
    REQUESTS,
    RING,
)

SOMEWHERE = EVERYWHERE.union(
    *(
        allowed
        for endpoint in (CLIENT, MEMBERSHIP, FOLLOW, PEER, REGISTERS, RING, RELAY)
        for allowed in (endpoint.to_decider, endpoint.to_leader, endpoint.back)
    )
)


@pytest.mark.parametrize("cls", m.TYPE_NAMES, ids=lambda cls: cls.__name__)
def test_every_message_may_be_sent_at_some_endpoint(cls: type) -> None:
    assert cls in SOMEWHERE


@pytest.mark.parametrize("cls", m.TYPE_NAMES, ids=lambda cls: cls.__name__)
def test_a_request_has_a_number_and_an_answer(cls: type) -> None:
    has_answer = "Answer: " in (cls.__doc__ or "")
    speaks_of_another = cls in NOTICES
    has_number = "request" in {field.name for field in attrs.fields(cls)}
    assert (cls in REQUESTS) == (has_answer and has_number and not speaks_of_another)


def test_a_register_takes_messages_to_the_decider_and_a_broker_those_to_a_leader() -> None:
    assert m.DrainBroker in CLIENT.accepted_by("register")
    assert m.Join in MEMBERSHIP.accepted_by("register") - MEMBERSHIP.accepted_by("broker")
    assert m.Produce in CLIENT.accepted_by("broker") - CLIENT.accepted_by("register")


def test_a_broker_takes_from_clients_whatever_a_register_takes() -> None:
    assert CLIENT.accepted_by("register") <= CLIENT.accepted_by("broker")
    own = {m.Authenticate, m.DescribeNode}  # a broker answers these for itself
    assert CLIENT.accepted_by("register") - own == PASSED_ON


def test_what_is_passed_on_is_not_passed_on_again() -> None:
    assert not PASSED_ON & (PEER.to_decider | PEER.to_leader)
    # Without a register, brokers ask each other; what they are asked they answer themselves.
    assert PEER.to_decider == {m.Ask}
    # A broker that doesn't lead refuses what another one has passed on.
    assert PEER.to_leader == {m.Ask, m.AskHandOver, m.AskHandOverState, m.ForwardProduce}


def test_only_registers_take_what_registers_send_each_other_and_nothing_comes_back() -> None:
    assert m.VoteRequest in REGISTERS.accepted_by("register")
    assert REGISTERS.to_leader == REGISTERS.back == frozenset()
    assert not REGISTERS.to_decider & (CLIENT.to_decider | MEMBERSHIP.to_decider | PEER.to_decider)


def test_only_brokers_take_what_brokers_of_a_ring_send_each_other() -> None:
    assert m.Meet in RING.accepted_by("broker") - RING.back
    assert m.Met in RING.back - RING.accepted_by("broker")
    assert RING.accepted_by("register") == frozenset()
    assert RING.is_for_nodes


def test_relays_say_the_same_in_both_directions_of_a_connection() -> None:
    assert RELAY.to_leader - RELAY.back == {m.RelayGreet}
    assert RELAY.back - RELAY.to_leader == {m.RelayGreeted}
    assert RELAY.accepted_by("register") == frozenset()
    assert RELAY.is_for_nodes


def test_each_answer_to_a_request_that_is_passed_on_is_one_message() -> None:
    for cls in PASSED_ON:
        answered = (cls.__doc__ or "").partition("Answer: ")[2]
        assert answered.startswith("`"), cls
        assert "then" not in answered.partition(".")[0], cls
