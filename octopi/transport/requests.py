"""One request over a connection and its one answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

import trio

from octopi.environment import Clock
from octopi.errors import ConnectionLostError, ProtocolError, RefusedError, Status
from octopi.transport.failures import refusal
from octopi.transport.pending_requests import Numbered
from octopi.wire.declarations import DECLARATIONS
from octopi.wire.messages import PROTOCOL_VERSION, TYPE_NAMES, Failure, Hello, Welcome

_T = TypeVar("_T")


class Asking(Protocol):
    """The part of `octopi.transport.connection.Connection` that `answer_to` needs."""

    @property
    def peer(self) -> str:
        """The other side's address, for people to read."""

    @property
    def version(self) -> int:
        """The version of the protocol that both sides speak."""

    async def drained(self) -> None:
        """Wait for room in the outbox."""

    def ask(self, message: Numbered, on_answer: Callable[[object], None]) -> None:
        """Send *message*; *on_answer* is called with each answer."""

    def forget(self, request: int) -> None:
        """Drop further answers to *request*."""


def spoken_version(greeting: Hello | Welcome) -> int:
    """The version of the protocol that this program and the sender of *greeting* speak."""
    return min(greeting.version, PROTOCOL_VERSION)


async def answer_to(
    connection: Asking,
    message: Numbered,
    expected: type[_T],
    *,
    clock: Clock,
    timeout_s: float,
    abort: Callable[[str], None],
) -> _T:
    """See `octopi.transport.connection.Connection.request`; *abort* ends the connection."""
    name = TYPE_NAMES[type(message)]
    if DECLARATIONS[type(message)].since > connection.version:
        raise RefusedError(
            f"{connection.peer} is of an earlier version, without {name}",
            Status.UNSUPPORTED_VERSION,
        )
    answers: list[object] = []
    arrived = trio.Event()

    def take(answer: object) -> None:
        answers.append(answer)
        arrived.set()

    with clock.timeout(timeout_s):
        await connection.drained()
        connection.ask(message, take)
        try:
            await arrived.wait()
        finally:
            connection.forget(message.request)
    if not answers:
        text = f"{connection.peer} gave no answer to {name} within {timeout_s:g} s"
        abort(text)
        raise ConnectionLostError(text)
    answer = answers[0]
    if isinstance(answer, expected):
        return answer
    if isinstance(answer, Failure):
        raise refusal(answer)
    if isinstance(answer, ConnectionLostError):
        raise ConnectionLostError(str(answer))
    text = f"{connection.peer} answered {name} with {TYPE_NAMES[type(answer)]}"
    abort(text)
    raise ProtocolError(text)
