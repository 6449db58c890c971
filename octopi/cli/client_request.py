"""Runs one request to a cluster for a command, and returns the answer."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final, TypeVar

import trio

import octopi
from octopi.cli.config import ClientSettings
from octopi.cli.failures import PROGRAM, CommandError, ExitCode, similar
from octopi.cli.running import run
from octopi.cli.secret_files import secret_of_operator
from octopi.cli.token_file import TokenFile

_T = TypeVar("_T")

_MISSING: Final = re.compile(r"there is no topic '?(?!with id )([A-Za-z0-9._~-]+)", re.ASCII)
_HINT_S: Final = 2.0
"""How long the search for a topic with a similar name may take."""


@asynccontextmanager
async def connected(settings: ClientSettings) -> AsyncIterator[octopi.Client]:
    """A client with these *settings*; connects when the block is entered.  If the block fails
    because there is no topic of some name, the error has the name of a similar one.

    Raises:
      CommandError, InvalidOptionError: if a setting is wrong.
    """
    token = TokenFile(settings.token_file) if settings.token_file else None
    secrets = secret_of_operator(settings.join_secret) if settings.join_secret else None
    async with octopi.connect(
        [one.strip() for one in settings.server.split(",")],
        name=settings.name,
        token=token,
        secrets=secrets,
        tls_ca=settings.tls_ca or None,
        request_timeout_s=settings.timeout_s,
        on_wrong_node=settings.on_wrong_node,
    ) as client:
        try:
            yield client
        except octopi.UnknownTopicError as error:
            raise await _with_similar_topic(client, error) from None


async def _with_similar_topic(client: octopi.Client, error: octopi.UnknownTopicError) -> Exception:
    """*error*; or one that adds the most similar name of the topics that the token knows of."""
    found = _MISSING.search(str(error))
    if found is not None:
        with trio.move_on_after(_HINT_S), suppress(octopi.OctopiError):
            hint = similar(found[1], [info.topic for info in await client.topics()])
            if hint is not None:
                text = f"{error}; on your side: did you mean {hint}?"
                return CommandError(
                    f"{text} (`{PROGRAM} topics list` has all names)", ExitCode.REFUSED
                )
    return error


def ask(settings: ClientSettings, question: Callable[[octopi.Client], Awaitable[_T]]) -> _T:
    """The answer to *question*.

    Raises:
      OctopiError: whatever *question* raises.
      InterruptedByUserError: on Ctrl-C.
    """

    async def body() -> _T:
        async with connected(settings) as client:
            return await question(client)

    return run(body)
