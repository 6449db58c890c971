"""When the machines of subscriptions have something to do."""

from __future__ import annotations

from hypothesis import given, strategies as st

from octopi.subscriptions.times import Timetable, WallTimes

SETTINGS = st.lists(st.tuples(st.sampled_from("abc"), st.none() | st.integers(0, 9)), max_size=20)


@given(SETTINGS)
def test_each_key_is_due_once_at_its_earliest_time(
    settings: list[tuple[str, int | None]],
) -> None:
    table = Timetable()
    first: dict[str, int] = {}
    for key, at in settings:
        table.set(key, at)
        if at is not None:
            first[key] = min(at, first.get(key, at))
    assert table.next_at == min(first.values(), default=None)
    found = [(now, key) for now in range(10) for key in table.due(now, 100)]
    assert sorted(found) == sorted((at, key) for key, at in first.items())
    assert table.next_at is None


def test_a_bounded_number_of_keys_is_due_at_a_time() -> None:
    table = Timetable()
    for key in "abcde":
        table.set(key, 1.0)
    found = [table.due(1.0, 2) for _ in range(4)]
    assert [len(one) for one in found] == [2, 2, 1, 0]


def test_wall_clock_times_are_computed_from_the_monotonic_clock() -> None:
    times = WallTimes(10.0, 1_000_000)
    assert times.of(12.5) == 1_002_500
    assert times.monotonic(1_002_500) == 12.5
