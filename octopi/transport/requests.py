"""One request over a connection and its one answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

import trio

from octopi.environment import Clock
from octopi.errors import ConnectionLostError, ProtocolError
from octopi.transport.failures import refusal
from octopi.transport.pending_requests import Numbered
from octopi.wire.messages import TYPE_NAMES, Failure

_T = TypeVar("_T")


class Asking(Protocol):
    """The part of `octopi.transport.connection.Connection` that `answer_to` needs."""

    @property
    def peer(self) -> str:
        """The other side's address, for people to read."""

    async def drained(self) -> None:
        """Wait for room in the outbox."""

    def ask(self, message: Numbered, on_answer: Callable[[object], None]) -> None:
        """Send *message*; *on_answer* is called with each answer."""

    def forget(self, request: int) -> None:
        """Drop further answers to *request*."""


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
    name = TYPE_NAMES[type(message)]
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
