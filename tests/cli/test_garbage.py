"""When a node collects garbage."""

from __future__ import annotations

import gc

import pytest
import trio
import trio.testing

from octopi.cli import garbage


class Collector:
    """Stands for Python's: how long a full collection takes, and what there is to collect."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, took_s: float) -> None:
        self.collected_at: list[float] = []
        self.survived_count = 1
        self._took_s = took_s
        self._worked_s = 0.0
        monkeypatch.setattr(gc, "collect", self._collect)
        monkeypatch.setattr(gc, "freeze", lambda: None)
        monkeypatch.setattr(gc, "get_count", lambda: (0, 0, self.survived_count))
        monkeypatch.setattr(garbage.time, "perf_counter", lambda: self._worked_s)  # type: ignore[attr-defined]

    def _collect(self) -> int:
        self.collected_at.append(trio.current_time())
        self._worked_s += self._took_s
        return 0


async def collecting(collector: Collector, seconds: float) -> list[float]:
    """When full collections began in so many seconds, from the first one on."""
    with trio.move_on_after(seconds):
        await garbage.collect_garbage()
    first, *others = collector.collected_at
    return [at - first for at in others]


async def test_full_collections_take_at_most_a_hundredth_of_the_time(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    began = await collecting(Collector(monkeypatch, took_s=1.5), 400)
    assert began == pytest.approx([garbage.INTERVAL_S_MIN, 155, 305])


async def test_short_collections_are_seconds_apart(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    began = await collecting(Collector(monkeypatch, took_s=0.001), 18)
    assert began == pytest.approx([5, 10, 15])


async def test_without_new_objects_no_garbage_is_collected(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    collector = Collector(monkeypatch, took_s=0.001)
    collector.survived_count = 0
    assert await collecting(collector, 1_000) == []


async def test_python_begins_no_full_collection_by_itself_while_a_node_collects(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    collector = Collector(monkeypatch, took_s=0.001)
    usual = gc.get_threshold()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(garbage.collect_garbage)
        await trio.testing.wait_all_tasks_blocked()
        assert gc.get_threshold()[2] > 1_000_000
        nursery.cancel_scope.cancel()
    assert gc.get_threshold() == usual
    assert len(collector.collected_at) == 1


@pytest.mark.parametrize("last", [0, 1])
async def test_python_collects_as_before_when_the_last_node_of_a_process_has_ended(
    last: int, autojump_clock: trio.testing.MockClock
) -> None:
    usual = gc.get_threshold()
    scopes = [trio.CancelScope(), trio.CancelScope()]

    async def collect(scope: trio.CancelScope) -> None:
        with scope:
            await garbage.collect_garbage()

    async with trio.open_nursery() as nursery:
        for scope in scopes:
            nursery.start_soon(collect, scope)
            await trio.testing.wait_all_tasks_blocked()
        scopes[1 - last].cancel()
        await trio.testing.wait_all_tasks_blocked()
        assert gc.get_threshold()[2] > 1_000_000
        scopes[last].cancel()
    assert gc.get_threshold() == usual
    assert gc.get_freeze_count() == 0
