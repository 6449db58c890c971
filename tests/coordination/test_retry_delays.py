"""Pauses that double, up to a bound, and begin anew after a while."""

from octopi.coordination.retry_delays import RetryDelays


def test_pauses_double_up_to_the_longest_and_begin_anew_after_a_quiet_time() -> None:
    pauses, now, lengths = RetryDelays(1.0, 5.0), 100.0, []
    assert pauses.is_over(7, now)
    for _ in range(5):
        pauses.begin(7, now)
        lengths.append(pauses.ends_at(7) - now)
        assert not pauses.is_over(7, now)
        now = pauses.ends_at(7)
        assert pauses.is_over(7, now)
    assert lengths == [1.0, 2.0, 4.0, 5.0, 5.0]
    pauses.begin(7, now + 5.5)
    assert pauses.ends_at(7) == now + 6.5
    pauses.forget(7)
    assert pauses.is_over(7, 0.0)
