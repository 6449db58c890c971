"""What the judge and the drivers of clients agree on.

A driver carries out one command after the other with the client that it is for.  A command is a
dictionary; `COMMANDS` has all of them.  Bytes are texts (UTF-8), or ``{"hex": "00ff"}``, or
``{"bytes": 1000}``, which is so many times the byte 7.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final, Protocol

Command = dict[str, Any]

PATIENCE_S: Final = 30.0
"""For an answer that has to come."""

COMMANDS: Final = {
    "connect": "a client named `as`, with `token`, and optionally `server` (a node, or a list of "
    "nodes) and `timeout_s`",
    "close": "closes the client or consumer `as`",
    "create topic": "by the client `by`: `topic`, with `options` as the Python client names them",
    "delete topic": "by the client `by`: `topic`",
    "describe topic": "by the client `by`: `topic`; gives its partitions",
    "produce": "a producer named `name`, as `as`, of the client `by`, for `topic`: its former life "
    "there has ended when it sends",
    "send": "by the client `by`, or the producer `as`: a message, and waits for its receipt; gives "
    "`shown_receipt`",
    "send numbered": "by the client `by`: begins to send the texts 0, 1, 2 ... to `topic`, one "
    "after the other, and doesn't wait for it",
    "sent": "has `by` end that, and waits until the last one is sent; gives the receipts",
    "consume": "a consumer named `as`, of the client `by`: of `topic` (a name, or a list of names "
    "and patterns) from `from`; optionally `partition`, `on_gap`, `stop_at_end`, `wait_s`, "
    "`create`, `give_up_s`",
    "next": "the next `count` messages of the consumer `as`, or as many as there are if it stops "
    "at the end; gives a list of `shown_message`; `sizes` has the sizes of their values, if they "
    "are known, for who reads bytes",
    "position": "the position of the consumer `as`, as a text of the client's",
    "join": "a member named `as` of the subscription `name` of `topic`, with `token`, and with "
    "`options` as octopi.js names them",
    "take": "the next `count` messages of the member `as`; gives their texts",
    "take lists": "as `take`, in lists, each of which is acknowledged, or with `release` released",
    "commit": "commits the marks or answers of the member `as`; of a queue, gives the stale ones",
    "claims": "the claims of the member `as`, by partition",
    "gaps": "how many gaps the member `as` was told of",
    "mark": "marks the `message` (its number) of the member `as`",
    "acknowledge": "and `release` (with `delay`, ms), `reject` (with `reason`), `extend`: answers "
    "the `message` (its number) of the member `as`",
    "release": "see `acknowledge`",
    "reject": "see `acknowledge`",
    "extend": "see `acknowledge`",
    "attempt": "which attempt the `message` is, of the member `as`",
    "deadline in": "the minutes until the deadline of the `message`, of the member `as`",
    "leave": "the member `as` leaves its block or loop, and the group",
    "fail": "the same, by an exception",
}
"""Name -> what it does; the member's are those of `scenarios/subscriptions.json`."""


class Refused(Exception):  # no fault of the test
    """The client was told no; the text is the name of the status."""


class Inexpressible(Exception):  # no fault of the test
    """The client has no means to say what a command says."""


class Driver(Protocol):
    """One client, driven from outside."""

    lacks: ClassVar[Mapping[str, str]]
    """The features (`tests.conformance.features`) that the client doesn't have, each with the
    reason; docs/clients.md has the same."""

    def do(self, command: Command) -> Any:  # noqa: ANN401  # what the command makes of it
        """Carry out one command.

        Raises:
          Refused: if the client reports an error; its text is the error's code.
        """

    def reset(self) -> None:
        """End all clients, consumers and members that were opened."""

    def close(self) -> None:
        """End the driver."""


def given_bytes(value: Any) -> bytes:  # noqa: ANN401
    """The bytes that a command or an expectation means."""
    match value:
        case str():
            return value.encode()
        case {"hex": str(digits)}:
            return bytes.fromhex(digits)
        case {"bytes": int(count)}:
            return b"\x07" * count
    raise AssertionError(f"{value!r} are no bytes")


def shown_bytes(value: bytes) -> str:
    """As drivers tell them: in hexadecimal, but for many that are equal."""
    if len(value) > 1000 and value.count(7) == len(value):
        return f"{len(value)} times 07"
    return value.hex()
