"""The page of a failed test says what was promised, what came instead, and between which events it
went wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

import octopi.testing
from octopi.simulation.faults.actions import Kill, Pause
from octopi.simulation.faults.injector import FAULT
from octopi.simulation.kernel.world import Event, Violation
from octopi.simulation.report.recording import Broken, Happening
from octopi.testing import Cluster, Host, OperationHistory, RegisterChecker, StuckError
from octopi.testing.failure_page import broken_of
from octopi.testing.planned_faults import PlannedFault
from tests.simulation.test_html import text_of

STRUCK: tuple[Happening, ...] = tuple(
    Event(number, number / 10, "till", 1, what, facts)
    for number, (what, facts) in enumerate(
        [("boot", {}), (FAULT, {"action": Kill(1.0)}), ("kill", {}), (FAULT, {"action": Kill(1.0)})]
    )
)


def told(error: BaseException, *faults: PlannedFault) -> Broken:
    return broken_of(error, 9.0, STRUCK, faults)


def test_an_assertion_is_promised_in_the_words_of_the_program() -> None:
    try:
        assert sum((1, 2)) == 4, "3 hats"
    except AssertionError as error:
        found = told(error, PlannedFault(Kill(1.0), "till"))
    assert found.promise.startswith(
        'assert sum((1, 2)) == 4, "3 hats" (test_failure_page.py, line '
    )
    assert "3 hats" in found.seen
    assert found.events == (1,), "the fault strikes once, and only the first one is meant"
    (note,) = found.notes
    assert (note.at, note.who, note.is_in_conflict) == (9.0, "the test", True)


def test_a_fault_that_did_not_strike_is_in_conflict_with_nothing() -> None:
    assert told(ValueError("no"), PlannedFault(Pause(1.0), "till")).events == ()
    assert told(ValueError("no"), PlannedFault(Kill(1.0), "another")).events == ()


def test_what_always_holds_is_promised_and_the_event_at_which_it_did_not_is_seen() -> None:
    event = STRUCK[2]
    assert isinstance(event, Event)
    found = told(Violation("always", f"no more is sold than there was, at {event}", (event,)))
    assert found.promise == "no more is sold than there was"
    assert found.seen.startswith("not so at ")
    assert found.events == (2,)


def test_what_was_waited_for_is_promised() -> None:
    found = told(StuckError("not within 60 s: all is sold; it is False", "all is sold"))
    assert (found.rule, found.promise) == ("StuckError", "all is sold")


async def test_operations_that_contradict_each_other_are_the_ones_in_conflict() -> None:
    history = OperationHistory()
    for number in (1, 2):
        with history.invoke("ann", "write", number):
            await trio.lowlevel.checkpoint()
    with history.invoke("bob", "read") as operation:
        operation.ok(1)
    with pytest.raises(AssertionError) as caught:
        RegisterChecker().check(history)
    found = told(caught.value)
    assert found.promise.startswith("there is an order of all operations")
    assert {note.text.partition(":")[0] for note in found.notes} == {"ann", "bob"}


async def forgetful(cluster: Cluster) -> None:
    counts: list[int] = []

    async def program(host: Host) -> None:
        for count in range(4):
            await cluster.sleep(0.5)
            host.step("counted")
            counts.append(count)

    cluster.program("counter", program)
    with cluster.random_faults(["kill"], hosts=["counter"]):
        await cluster.sleep(4)
    await cluster.sleep(6)
    assert counts == [0, 1, 2, 3]


def page_of(test: Any, directory: Path, **options: Any) -> str:  # noqa: ANN401
    with pytest.raises(AssertionError):
        octopi.testing.run(test, brokers=1, **options)
    (path,) = directory.iterdir()
    return text_of(path.read_text())


def test_a_failed_test_has_the_whole_account_on_its_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OCTOPI_TEST_PAGES", str(tmp_path))
    monkeypatch.delenv("OCTOPI_TEST_SEED", raising=False)
    text = page_of(forgetful, tmp_path)
    for said in (
        "The test fails",
        "Promised assert counts == [0, 1, 2, 3] (test_failure_page.py, line",
        'cluster.kill("counter", ',
        "The same run without this fault passes.",
        "kill, restart 1 s",
        "the test fails: ",
    ):
        assert said in text


def test_a_page_of_a_test_that_nobody_made_smaller_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OCTOPI_TEST_PAGES", str(tmp_path))
    monkeypatch.delenv("OCTOPI_TEST_SEED", raising=False)
    text = page_of(forgetful, tmp_path, shrink_s=0.0)
    assert "nobody has made them fewer" in text
    assert "The same run" not in text.replace("The same run has the digest", "")
