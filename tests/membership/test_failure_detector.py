"""Silence for too long is failure; the watcher's own absence is not."""

from octopi.membership.failure_detector import FailureDetector


def test_a_silent_broker_fails_after_the_timeout_and_not_before() -> None:
    detector = FailureDetector(1.0)
    detector.heard(1, 10.0)
    detector.heard(2, 10.5)
    assert detector.next_failure_at() == 11.0
    assert detector.failed(10.4) == []
    assert detector.failed(10.9) == []
    assert detector.failed(11.2) == [1]
    assert detector.failed(11.6) == [1, 2]


def test_a_broker_that_is_heard_again_or_forgotten_has_not_failed() -> None:
    detector = FailureDetector(1.0)
    detector.heard(1, 0.0)
    detector.heard(2, 0.0)
    for tenth in range(1, 12):
        detector.failed(tenth / 10)
    detector.heard(1, 1.15)
    detector.forget(2)
    assert detector.failed(1.2) == []
    detector.forget(1)
    assert detector.next_failure_at() is None


def test_time_in_which_nobody_looked_is_nobodys_silence() -> None:
    detector = FailureDetector(1.0)
    detector.heard(1, 0.0)
    assert detector.failed(0.2) == []
    assert detector.failed(60.0) == [], "the register itself was suspended"
    assert detector.failed(60.3) == []
    assert detector.failed(60.6) == [1], "but then the broker stays silent"


def test_news_that_comes_late_does_not_make_a_broker_older() -> None:
    detector = FailureDetector(1.0)
    detector.heard(1, 5.0)
    detector.heard(1, 4.0)
    assert detector.next_failure_at() == 6.0
