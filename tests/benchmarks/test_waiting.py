"""A busy machine is refused, waited for, or marked."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from benchmarks import waiting
from benchmarks.machine_load import Load, Program
from benchmarks.waiting import BusyError, before_round, begin

QUIET = Load(0.0, 0.0, 0.0)
BUSY = Load(0.5, 0.0, 0.9, (Program("cc1", os.getpid(), 0.93),))


def following(*loads: Load) -> tuple[Callable[[], Load], Iterator[Load]]:
    """A machine with these loads, one after the other; and those that weren't asked for yet."""
    rest = iter(loads)
    return lambda: next(rest), rest


def test_a_quiet_machine_is_measured() -> None:
    for way in waiting.WAYS:
        at_rest, rest = following(QUIET)
        assert begin(way, at_rest) == (QUIET, [])
        assert list(rest) == []


def test_a_busy_machine_is_refused_with_what_takes_it_and_what_to_do() -> None:
    at_rest, _ = following(BUSY)
    with pytest.raises(BusyError) as refused:
        begin("refuse", at_rest)
    said = str(refused.value)
    assert "other programs take 50% of the processors (a quiet machine: at most 5%)" in said
    assert f"process {os.getpid()} takes 0.93 of a processor: " in said
    assert "python" in said  # the command line, which says more than the name
    assert "`--busy wait`" in said
    assert "`--busy mark`" in said


def test_a_busy_machine_is_measured_and_marked_if_that_is_asked_for() -> None:
    at_rest, _ = following(BUSY)
    load, why = begin("mark", at_rest)
    assert load == BUSY
    assert why[0] == "other programs take 50% of the processors"


def test_a_run_waits_for_a_quiet_machine(capsys: pytest.CaptureFixture[str]) -> None:
    at_rest, rest = following(BUSY, BUSY, QUIET, BUSY)
    assert begin("wait", at_rest) == (QUIET, [])
    assert list(rest) == [BUSY]
    assert "waiting for a quiet machine: other programs take 50%" in capsys.readouterr().err


def test_a_round_waits_only_if_that_is_asked_for() -> None:
    for way, left in (("refuse", 2), ("mark", 2), ("wait", 0)):
        at_rest, rest = following(BUSY, QUIET)
        before_round(way, at_rest)  # type: ignore[arg-type]
        assert len(list(rest)) == left


def test_waiting_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "WAIT_MAX_S", 0.0)
    at_rest, _ = following(BUSY)
    with pytest.raises(BusyError, match="also after 0 minutes"):
        begin("wait", at_rest)
    at_rest, _ = following(BUSY)
    before_round("wait", at_rest)  # measured all the same, and marked
