"""A follower proves to the leader which broker it is."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from octopi.coordination.seals import Seals
from octopi.roles.broker.stream_keys import StreamKeys
from octopi.wire.messages import Acknowledge, BrokerInfo, Follow

FOLLOW = Follow(0, 3, 2, 5, 7, "1" * 16, [], 100)


def told(seals: Seals, to: int, brokers: list[int]) -> StreamKeys:
    keys = StreamKeys()
    learn(keys, seals, to, brokers)
    return keys


def learn(keys: StreamKeys, seals: Seals, to: int, brokers: list[int]) -> None:
    keys.learn(
        BrokerInfo(one, "ws://a:1", 1, True, 0, stream_key=seals.stream_key(to, one))
        for one in brokers
    )


def signed(keys: StreamKeys, follow: Follow = FOLLOW, leader: int = 1) -> Follow:
    message = keys.signed(leader, follow)
    assert isinstance(message, Follow)
    return message


def test_a_stream_key_proves_to_a_leader_which_broker_follows() -> None:
    seals = Seals("5e" * 16)
    leader, follower, other = (told(seals, one, [1, 2, 3]) for one in (1, 2, 3))
    proven = signed(follower)
    assert leader.is_proven(proven)
    assert not leader.is_proven(signed(other))
    assert not leader.is_proven(FOLLOW)
    assert not other.is_proven(proven), "it is a proof for broker 1"


@pytest.mark.parametrize("change", ["partition", "epoch", "incarnation", "attempt"])
def test_a_proof_of_a_stream_key_is_good_for_one_session(change: str) -> None:
    seals = Seals("5e" * 16)
    leader, follower = (told(seals, one, [1, 2]) for one in (1, 2))
    proven = signed(follower)
    other: dict[str, Any] = {change: 9}
    assert not leader.is_proven(attrs.evolve(proven, **other))
    assert leader.is_proven(attrs.evolve(proven, topic_id="2" * 16, log_end=0))


def test_followers_are_believed_after_the_register_lost_its_secret() -> None:
    before, after = Seals("5e" * 16), Seals("6e" * 16)
    leader, follower = (told(before, one, [1, 2]) for one in (1, 2))
    learn(leader, after, 1, [1, 2])
    assert leader.is_proven(signed(follower)), "it has not heard of the new one yet"
    learn(follower, after, 2, [1, 2])
    assert leader.is_proven(signed(follower))


def test_a_leader_without_stream_keys_believes_every_follower() -> None:
    keys = told(Seals(""), 1, [2])
    assert keys.is_proven(FOLLOW)
    assert signed(keys).proof == ""
    acknowledge = Acknowledge(0, 3, 2, 5, 7, "1" * 16, 100)
    assert told(Seals("5e" * 16), 2, [1]).signed(1, acknowledge) is acknowledge
