"""Which connections a node accepts, and what a subject may use over all of its connections."""

from __future__ import annotations

import pytest
import trio

from octopi.errors import RefusedError, Status
from octopi.limits import CONNECTIONS_PER_TOKEN_MAX, DECISIONS_KEPT_COUNT
from octopi.security.authenticator import Authenticator, TokenLimits
from octopi.wire import messages as m
from octopi.wire.endpoints import CLIENT
from tests.security.tokens import key_ring, token


class HandClock:
    """A clock that stands until somebody moves it."""

    def __init__(self) -> None:
        self.at = 0.0

    def now(self) -> float:
        return self.at

    def wall_ms(self) -> int:
        return round(self.at * 1000)

    async def sleep_until(self, deadline: float) -> None:
        raise NotImplementedError

    def timeout(self, seconds: float) -> trio.CancelScope:
        raise NotImplementedError


def test_connecting_again_gives_a_subject_no_second_allowance() -> None:
    clock = HandClock()
    door = Authenticator(key_ring(), clock, TokenLimits(bytes_per_s=100))
    for text in (token(subscribe="*"), token(publish="*")):
        entry = door.enter(text, CLIENT)
        assert entry.bucket is not None
        entry.bucket.spend(500, clock.now())
        entry.leave()
    entry = door.enter(token(subscribe="*"), CLIENT)
    assert entry.bucket is not None
    assert entry.bucket.wait_s(clock.now()) == pytest.approx(9.0)
    other = door.enter(token(subject="other", subscribe="*"), CLIENT)
    assert other.bucket is not None
    assert other.bucket.wait_s(clock.now()) == 0


def test_a_subject_without_connections_and_debts_is_forgotten() -> None:
    clock = HandClock()
    door = Authenticator(key_ring(), clock, TokenLimits(bytes_per_s=100))
    for number in range(50):
        entry = door.enter(token(subject=f"subject-{number}", subscribe="*"), CLIENT)
        assert entry.bucket is not None
        entry.bucket.spend(150, clock.now())
        entry.leave()
    assert door.subject_count == 50
    clock.at = 2.0
    for _ in range(10):  # each looks at a few of those that are gone
        door.enter(token(subscribe="*"), CLIENT).leave()
    assert door.subject_count <= 1


def test_a_connection_that_ended_makes_room_only_once() -> None:
    door = Authenticator(key_ring(), HandClock(), TokenLimits(connections_max=2))
    first, _ = (door.enter(token(subscribe="*"), CLIENT) for _ in range(2))
    for _ in range(2):
        with pytest.raises(RefusedError) as caught:
            door.enter(token(subscribe="*"), CLIENT)
        assert caught.value.status is Status.OVER_LIMIT
        first.leave()
        first.leave()
        first = door.enter(token(subscribe="*"), CLIENT)


def test_a_subject_has_the_default_number_of_connections() -> None:
    door = Authenticator(key_ring(), HandClock())
    for _ in range(CONNECTIONS_PER_TOKEN_MAX):
        door.enter(token(subscribe="*"), CLIENT)
    with pytest.raises(RefusedError) as caught:
        door.enter(token(subscribe="*"), CLIENT)
    assert caught.value.status is Status.OVER_LIMIT
    door.enter(token(subject="other", subscribe="*"), CLIENT)


def test_a_connection_that_names_ever_new_topics_has_few_decisions_remembered() -> None:
    entry = Authenticator(key_ring(), HandClock()).enter(token(subscribe="*"), CLIENT)
    for number in range(3 * DECISIONS_KEPT_COUNT):
        entry.check(m.Fetch(1, f"t{number}", 0, 0, 1, 0))
        assert len(entry._allowed) <= DECISIONS_KEPT_COUNT
    with pytest.raises(RefusedError):
        entry.check(m.Produce(1, "t0", 0, b""))
