"""Answering a request: with what went wrong, or when there is room for a long answer."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import Protocol

import trio

from octopi.errors import ConnectionLostError, OctopiError
from octopi.limits import LIST_MEMORY_BYTES
from octopi.transport.failures import failure_of
from octopi.transport.outbox import Outbox


class AnswerTarget(Protocol):
    """Where answers go: the connection of who asked, or the way through another node to it."""

    @property
    def outbox(self) -> Outbox:
        """The outbox of the connection over which the answers are sent."""

    def post(self, message: object) -> None:
        """Send *message*, which answers a request.

        Raises:
          ConnectionLostError: if the connection has ended.
        """


def refuse(connection: AnswerTarget, request: int, error: OctopiError) -> None:
    """Answer *request* with the status that *error* stands for, if anyone still listens.

    Raises:
      OctopiError: *error* itself, if it stands for none: a fault of ours.
    """
    answer = failure_of(request, error)
    if answer is None:
        raise error
    with contextlib.suppress(ConnectionLostError):
        connection.post(answer)


def answer_with_room(
    connection: AnswerTarget, tasks: trio.Nursery, answer: Callable[[], None]
) -> None:
    """Call *answer*, which posts a list, as soon as there is room for one: now, or in *tasks*."""
    if connection.outbox.room_now(LIST_MEMORY_BYTES, LIST_MEMORY_BYTES):
        answer()
    else:
        tasks.start_soon(_answer_later, connection, answer)


async def tell_with_room(connection: AnswerTarget, tell: Callable[[], Awaitable[None]]) -> None:
    """Await *tell*, which makes a list in slices and posts it, as soon as there is room for one;
    the next one of *connection* begins when it is done."""
    with contextlib.suppress(ConnectionLostError):
        async with connection.outbox.room(LIST_MEMORY_BYTES, LIST_MEMORY_BYTES, holds=True):
            await tell()


async def _answer_later(connection: AnswerTarget, answer: Callable[[], None]) -> None:
    with contextlib.suppress(ConnectionLostError):
        async with connection.outbox.room(LIST_MEMORY_BYTES, LIST_MEMORY_BYTES):
            answer()
