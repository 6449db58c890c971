"""The judge notices a client that sees something else than the list says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import pytest

from tests.conformance.driving import Command, Refused, shown_bytes
from tests.conformance.judge import Judge, Step

Messages = list[dict[str, Any]]


class _Nobody:
    """An operator who has nothing to do."""

    def do(self, topic: str, step: Step) -> None:
        """Nothing."""


class _Fake:
    """A client in memory, whose readings are changed by *lie*."""

    lacks: ClassVar[Mapping[str, str]] = {}

    def __init__(self, lie: Callable[[Messages], Messages]) -> None:
        self._lie = lie
        self._sent: Messages = []

    def do(self, command: Command) -> Any:  # noqa: ANN401
        """Carry out one command."""
        match command["do"]:
            case "send" if command["value"] == "refused":
                raise Refused("forbidden")
            case "send":
                at = len(self._sent)
                value = shown_bytes(command["value"].encode())
                log = {"topic": command["topic"], "partition": 0}
                self._sent.append({**log, "offset": at, "next": at + 1, "value": value})
                return {"partition": 0, "offset": at, "duplicate": False}
            case "next":
                return self._lie(self._sent)[: command["count"]]
            case "position":
                return f"v1:{self._sent[0]['topic']}@0123456789abcdef:0={len(self._sent)}~1-0"
        return None

    def reset(self) -> None:
        """Nothing is open."""

    def close(self) -> None:
        """Nothing is open."""


READ: list[Step] = [
    {"do": "send", "values": ["0", "1", "2"]},
    {"do": "read", "from": "earliest", "count": 3, "sees": ["0", "1", "2"]},
]
NUMBERS: list[Step] = [
    {"do": "send", "values": ["0", "1", "2"]},
    {"do": "consume", "as": "ann", "from": "earliest"},
    {"do": "numbers", "as": "ann", "count": 3},
]


def _run(steps: list[Step], lie: Callable[[Messages], Messages] = lambda sent: sent) -> None:
    driver = _Fake(lie)
    Judge(driver, driver, _Nobody(), "prefix-").run({"says": "it", "steps": steps})


@pytest.mark.parametrize("steps", [READ, NUMBERS], ids=["read", "numbers"])
def test_a_client_that_sees_what_was_sent_passes(steps: list[Step]) -> None:
    _run(steps)


@pytest.mark.parametrize("steps", [READ, NUMBERS], ids=["read", "numbers"])
@pytest.mark.parametrize(
    "lie",
    [
        lambda sent: [sent[0], *sent],
        lambda sent: sent[1:],
        lambda sent: sent[::-1],
        lambda sent: sent[:2],
        lambda sent: [{**one, "value": "39"} for one in sent],
    ],
    ids=["doubled", "lost", "out of order", "too few", "changed"],
)
def test_messages_that_are_not_those_that_were_sent_are_noticed(
    steps: list[Step], lie: Callable[[Messages], Messages]
) -> None:
    with pytest.raises(AssertionError):
        _run(steps, lie)


def test_a_position_that_is_not_behind_the_last_message_is_noticed() -> None:
    with pytest.raises(AssertionError):
        _run([READ[0], {"do": "read", "from": "earliest", "count": 2, "sees": ["0", "1"]}])


@pytest.mark.parametrize(
    "step",
    [
        {"do": "send", "value": "refused"},
        {"do": "send", "value": "refused", "refused": "closed"},
        {"do": "send", "value": "taken", "refused": "forbidden"},
        {"do": "send", "value": "taken", "sees": {"offset": 7}},
    ],
    ids=["refused", "for another reason", "not refused", "elsewhere"],
)
def test_a_refusal_or_receipt_that_the_list_does_not_say_is_noticed(step: Step) -> None:
    with pytest.raises(AssertionError):
        _run([step])
