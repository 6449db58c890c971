"""Entropy that is the same in each run."""

from __future__ import annotations

import os
import random
import secrets
import uuid
from types import FrameType

import pytest
from wsproto.frame_protocol import FrameProtocol
from wsproto.utilities import generate_nonce

from octopi.simulation.kernel.entropy import seeded
from octopi.simulation.kernel.sandbox import OutsideReachedError
from octopi.simulation.network.streams import WebSocketTier
from tests.simulation.worlds import Small, run_small


def everything() -> list[object]:
    """Whatever this process knows of chance."""
    return [
        os.urandom(8),
        secrets.token_bytes(8),
        uuid.uuid1(),
        uuid.uuid4(),
        random.random(),
        random.Random().random(),
        random.SystemRandom().random(),
        generate_nonce(),
        FrameProtocol(client=True, extensions=[]).send_data(b"masked"),
    ]


def always(what: str, caller: FrameType) -> bool:
    return True


def drawn(seed: int) -> list[object]:
    with seeded(random.Random(seed), always):
        return everything()


def test_a_seed_gives_the_same_randomness_and_another_seed_gives_other() -> None:
    one, same, other = drawn(1), drawn(1), drawn(2)
    assert one == same
    assert not any(mine == theirs for mine, theirs in zip(one, other, strict=True))


def test_websocket_frames_are_masked_with_seeded_entropy() -> None:
    with seeded(random.Random(1), always):
        frame = FrameProtocol(client=True, extensions=[]).send_data(b"masked")
    with seeded(random.Random(1), always):
        key = os.urandom(4)
    assert frame[2:6] == key


def test_a_seeded_generator_is_left_alone() -> None:
    expected = random.Random(5).random()
    with seeded(random.Random(1), always):
        assert random.Random(5).random() == expected
        random.seed(5)
        assert random.random() == expected


def test_the_watcher_decides_which_callers_get_seeded_entropy() -> None:
    asked: list[tuple[str, str]] = []

    def never(what: str, caller: FrameType) -> bool:
        asked.append((what, os.path.basename(caller.f_code.co_filename)))
        return False

    with seeded(random.Random(1), never):
        one = [os.urandom(8), random.Random().random(), uuid.uuid1()]
    with seeded(random.Random(1), never):
        other = [os.urandom(8), random.Random().random(), uuid.uuid1()]
    assert not any(mine == theirs for mine, theirs in zip(one, other, strict=True))
    assert asked[0] == ("os.urandom", "test_entropy.py")
    assert asked[1] == ("random.seed", "random.py")
    assert asked[2] == ("uuid.uuid1", "test_entropy.py")


def test_entropy_is_restored_after_a_failure() -> None:
    state = random.getstate()
    with pytest.raises(ZeroDivisionError), seeded(random.Random(1), always):
        raise ZeroDivisionError
    assert random.getstate() == state
    assert os.urandom(8) != os.urandom(8)
    assert random.Random().random() != random.Random().random()


def test_only_websockets_get_seeded_entropy_outside_of_the_environment() -> None:
    async def main(small: Small) -> None:
        here, there = await small.pair()
        await here.send(b"masked")
        assert await there.receive() == b"masked"

        async def draw() -> None:
            os.urandom(8)

        small.start("here", draw)
        await there.receive()

    with pytest.raises(OutsideReachedError, match=r"os\.urandom was called by .*test_entropy\.py"):
        run_small(WebSocketTier, main)
