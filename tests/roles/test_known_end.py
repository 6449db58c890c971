"""A broker never tells an end of a log below an acknowledged record."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from octopi.errors import NotReadyError
from octopi.roles.broker.services.context import ClientContext


def context(led: Any) -> ClientContext:  # noqa: ANN401
    """That of a connection with a broker that leads partition 0, and in it *led*."""
    leader = SimpleNamespace(logs={"5f0c": led})
    replica = SimpleNamespace(machine=SimpleNamespace(leader=leader))
    manager = SimpleNamespace(replica=lambda partition: replica, store=None)
    unused = cast(Any, None)
    return ClientContext(unused, cast(Any, manager), unused, unused, unused)


def a_log(highwater: int) -> Any:  # noqa: ANN401
    return SimpleNamespace(topic=SimpleNamespace(topic_id="5f0c"), highwater=highwater)


def test_a_new_leader_that_has_not_published_its_commit_does_not_know_the_log_end() -> None:
    # What it committed is published behind effects that wait for the disk.
    led = SimpleNamespace(knows_end=lambda highwater: highwater >= 50)
    with pytest.raises(NotReadyError, match="has not yet committed and published what it had"):
        context(led).require_end(a_log(36), 0)


def test_a_leader_that_has_published_its_highwater_mark_knows_the_log_end() -> None:
    led = SimpleNamespace(knows_end=lambda highwater: highwater >= 50)
    context(led).require_end(a_log(50), 0)
