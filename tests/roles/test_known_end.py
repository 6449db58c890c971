"""A broker never tells an end of a log below an acknowledged record."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from octopi.errors import NotReadyError
from octopi.identifiers import Offset, PartitionId
from octopi.roles.broker.readable_log import ReadableLog
from octopi.wire.messages import TopicOptions, TopicRecord


def a_log(led: Any, highwater: int) -> ReadableLog:  # noqa: ANN401
    """A log with that published mark, of a partition that this broker leads, as *led*."""
    log = ReadableLog(TopicRecord("orders", "5f0c", [0], TopicOptions()), PartitionId(0))
    leader = SimpleNamespace(logs={"5f0c": led})
    log.replica = cast(Any, SimpleNamespace(machine=SimpleNamespace(leader=leader)))
    log.publish(Offset(highwater))
    return log


def test_a_new_leader_that_has_not_published_its_commit_does_not_know_the_log_end() -> None:
    # What it committed is published behind effects that wait for the disk.
    led = SimpleNamespace(knows_end=lambda highwater: highwater >= 50)
    with pytest.raises(NotReadyError, match="has not yet committed and published what it had"):
        a_log(led, 36).require_end()


def test_a_leader_that_has_published_its_highwater_mark_knows_the_log_end() -> None:
    led = SimpleNamespace(knows_end=lambda highwater: highwater >= 50)
    a_log(led, 50).require_end()
