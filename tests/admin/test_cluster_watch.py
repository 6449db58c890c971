"""Pages that are asked for without pause have a node look at its cluster now and then."""

from __future__ import annotations

from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock

from octopi.admin.cluster_watch import CachedSnapshot, ClusterWatch
from octopi.environment import Environment
from octopi.limits import LOOK_INTERVAL_S, LOOK_SHARE_MAX
from octopi.operating_system import SystemClock, SystemRandomness
from tests.kit.disk import MemoryDisk
from tests.kit.links import MemoryNet

SECONDS = 40


@pytest.mark.parametrize(
    ("takes_s", "every_s"),
    [(0.0, LOOK_INTERVAL_S), (2.0, 2.0 + 2.0 / LOOK_SHARE_MAX)],
    ids=["a fast look", "a slow look"],
)
async def test_frequent_requests_for_pages_do_not_make_a_node_look_at_its_cluster_more_often(
    takes_s: float, every_s: float, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    began: list[float] = []

    async def look(watch: ClusterWatch) -> CachedSnapshot:
        began.append(trio.current_time())
        await trio.sleep(takes_s)
        return cast("CachedSnapshot", object())

    monkeypatch.setattr(ClusterWatch, "_look", look)
    environment = Environment(SystemClock(), MemoryNet(), MemoryDisk(), SystemRandomness())
    watch = ClusterWatch(environment, list, "test", cast("Any", None))
    while trio.current_time() < SECONDS:
        await watch.snapshot()
        await trio.sleep(0.05)
    assert 2 < len(began) <= SECONDS / every_s + 2
