"""The texts of the checker: in words, with the events in conflict."""

from collections.abc import Callable

import pytest

from octopi.simulation.history.checker import Rule, check
from octopi.simulation.history.events import (
    Acknowledged,
    Delivered,
    Failed,
    History,
    HistoryError,
    Invoked,
    OutcomeUnknown,
)
from tests.simulation.stories import LOG, SIZE, Story, value

Change = Callable[[Story], None]


def test_an_anomaly_names_the_two_events_in_conflict_and_shows_their_context() -> None:
    story = Story()
    story.drop(Delivered, 2, "c2")
    [fault] = story.faults()
    skipping, before = story.find(Delivered, 3, "c2"), story.find(Delivered, 1, "c2")
    assert fault.events == (before, skipping)
    assert fault.values == (value(3), value(2))
    lines = fault.explain(History(story.events)).splitlines()
    assert lines[0] == (
        "POLL_SKIP in orders/0: c2 is handed 'p1-3' in orders/0 from 300 to 400, and 200 comes "
        "next, where 'p1-2' is; but a consumer is handed all that lies between two messages"
    )
    assert [int(line.split()[1]) for line in lines if line.startswith(">")] == [before, skipping]
    assert f"  {story.find(Invoked, 2):6}     6.000000 s  p1 sends 'p1-2' to orders/0" in lines


def test_anomalies_come_in_the_order_in_which_they_showed() -> None:
    story = Story()
    story.change(story.find(Delivered, 3, "c1"), value=value(3)[:-1] + b"!")
    story.drop(Delivered, 2, "c2")
    story.change(story.find(Acknowledged, 2), epoch=2)
    faults = story.faults()
    assert [one.rule for one in faults] == [Rule.EPOCH_WENT_BACK, Rule.CORRUPT, Rule.POLL_SKIP]
    assert faults == story.faults()


def test_a_corrupt_message_is_described_with_its_changed_value() -> None:
    story = Story()
    story.change(story.find(Delivered, 3, "c2"), value=value(3)[:-1] + b"!")
    [fault] = story.faults()
    assert "'p1-3' at 300 is changed from byte 42 on, of 43 (now 43)" in fault.text
    story = Story()
    story.change(story.find(Delivered, 4, "c2"), value=value(4)[:-9])
    [fault] = story.faults()
    assert "'p1-4' at 400 is cut or lengthened from 43 to 34 bytes" in fault.text


def test_two_sends_of_one_value_cannot_be_judged() -> None:
    story = Story()
    story.invoke(3)
    with pytest.raises(HistoryError, match=r"event 28: p1 sends 'p1-3' .* as event 8 did; give"):
        story.faults()


@pytest.mark.parametrize(
    "outcome",
    [
        Acknowledged(1, LOG, b"?", 0, 58, 1),
        Failed(1, b"?", "refused"),
        OutcomeUnknown(1, b"?", "time-out"),
    ],
)
def test_an_outcome_without_a_send_cannot_be_judged(
    outcome: Acknowledged | Failed | OutcomeUnknown,
) -> None:
    with pytest.raises(HistoryError, match="note Invoked before you send"):
        check(History([outcome]))


def test_a_send_that_is_noted_after_its_delivery_cannot_be_judged() -> None:
    history = History([Delivered(1, "c1", LOG, 0, SIZE, value(0))])
    history.note(Invoked(2, "p1", "orders", 0, value(0)))
    with pytest.raises(HistoryError, match=r"event 1: .* seen before, in event 0; note Invoked"):
        check(history)


def test_the_values_of_a_program_need_no_names() -> None:
    sizes = [58, 59]
    history = History(
        [
            Invoked(1, "p", "orders", None, b"a"),
            Invoked(2, "p", "orders", None, b"bc"),
            Acknowledged(3, LOG, b"a", 0, sizes[0], 1),
            Delivered(4, "c", LOG, 0, sizes[0], b"a"),
            Delivered(5, "c", LOG, sizes[0], sum(sizes), b"bc"),
        ]
    )
    assert check(history) == []
    history.events[-1] = Delivered(5, "c", LOG, sizes[0], sum(sizes), b"b!")
    # Nobody said that b"bc" is there, so it may as well come from nowhere.
    assert [fault.rule for fault in check(history)] == [Rule.PHANTOM]
