"""Random walks through a queue: what it promises holds at each step."""

from __future__ import annotations

from typing import Any

import pytest

from tests.subscriptions.queue_world import QueueWorld

KINDS: dict[str, dict[str, Any]] = {
    "one key": {"keys": "aaa"},
    "two keys": {"keys": "abab", "window": 4},
    "without keys": {"keys": "----", "is_ordered": False},
    "mixed": {"keys": "a-ba-", "window": 3, "members": 3},
    "one attempt": {"keys": "aab", "attempts": 1},
    "never given up": {"keys": "aab", "attempts": None},
    "a long log": {"keys": "abcabc-abcabc-", "window": 5, "attempts": 3, "members": 4},
}


@pytest.mark.parametrize("kind", KINDS)
def test_no_random_walk_breaks_a_promise_of_a_queue(kind: str) -> None:
    for seed in range(60):
        world = QueueWorld(seed, **KINDS[kind])
        try:
            world.walk(300)
        except AssertionError as error:
            tail = "\n".join(world.trace[-60:])
            pytest.fail(f"seed {seed}: {error!r}\n{tail}")
