"""Lines that strangers cause are few: `octopi.logger.EventLogger.sparing`."""

from __future__ import annotations

import logging

import attrs
import pytest

from octopi.logger import get_logger

LOG = get_logger("octopi.tests")


@attrs.define(eq=False)
class HandClock:
    """Time that a test moves."""

    at: float = 100.0

    def now(self) -> float:
        return self.at


def told(caplog: pytest.LogCaptureFixture) -> list[tuple[str, object, object]]:
    return [
        (one.getMessage(), getattr(one, "peer", None), getattr(one, "left_out", None))
        for one in caplog.records
    ]


def test_of_each_kind_there_is_one_line_a_second_and_the_next_tells_how_many_were_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    clock = HandClock()
    for peer in range(1000):
        LOG.sparing(clock).info("refused", peer=peer)
        LOG.sparing(clock).warning("too slow", peer=peer)
    clock.at += 0.99
    LOG.sparing(clock).info("refused", peer=1000)
    clock.at += 0.01
    LOG.sparing(clock).info("refused", peer=1001)
    clock.at += 5
    LOG.sparing(clock).info("refused", peer=1002)
    assert told(caplog) == [
        ("refused", 0, None),
        ("too slow", 0, None),
        ("refused", 1001, 1000),
        ("refused", 1002, None),
    ]


def test_each_node_has_its_own_lines(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    here, there = HandClock(), HandClock()
    for clock in (here, there, here, there):
        LOG.sparing(clock).info("refused", peer=id(clock))
    assert [peer for _, peer, _ in told(caplog)] == [id(here), id(there)]


def test_a_traceback_is_a_line_like_others(caplog: pytest.LogCaptureFixture) -> None:
    clock = HandClock()
    for _ in range(100):
        try:
            raise ValueError("on purpose")
        except ValueError:
            LOG.sparing(clock).exception("request_failed")
    [record] = caplog.records
    assert record.exc_info is not None
    assert (record.levelname, record.funcName) == (
        "ERROR",
        test_a_traceback_is_a_line_like_others.__name__,
    )


def test_what_nobody_hears_is_not_counted(caplog: pytest.LogCaptureFixture) -> None:
    clock = HandClock()
    caplog.set_level(logging.WARNING)
    LOG.sparing(clock).info("refused", peer=1)
    caplog.set_level(logging.INFO)
    LOG.sparing(clock).info("refused", peer=2)
    assert told(caplog) == [("refused", 2, None)]
