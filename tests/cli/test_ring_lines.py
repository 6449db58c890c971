"""What `octopi-node ring show` says about a hand-over to registers."""

from __future__ import annotations

import attrs
import pytest

from octopi.cli.commands.ring import hand_over_line
from octopi.identifiers import BrokerId
from octopi.wire.ring import RingDescription

UNDER_WAY = RingDescription(
    1,
    "c",
    3,
    4,
    (),
    None,
    True,
    None,
    (),
    (),
    registers=("ws://a:7000", "ws://b:7000"),
    ending="closing",
    ending_awaits=(BrokerId(2), BrokerId(3)),
)


@pytest.mark.parametrize(
    ("stage", "line"),
    [
        (
            "closing",
            "being handed over to ws://a:7000 ws://b:7000, stage closing: waits for broker 2 3",
        ),
        (
            "given_up",
            "the hand-over to ws://a:7000 ws://b:7000 was given up: nothing has changed",
        ),
        ("ended", "handed over to ws://a:7000 ws://b:7000"),
    ],
)
def test_a_hand_over_is_told_with_its_stage_and_for_whom_it_waits(stage: str, line: str) -> None:
    assert hand_over_line(attrs.evolve(UNDER_WAY, ending=stage)) == line
