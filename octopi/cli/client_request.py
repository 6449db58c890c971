"""Runs one request to a cluster for a command, and returns the answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import TypeVar

import octopi
from octopi.cli.config import ClientSettings
from octopi.cli.running import run
from octopi.cli.secret_files import secret_of_operator
from octopi.cli.token_file import TokenFile

_T = TypeVar("_T")


def connected(settings: ClientSettings) -> AbstractAsyncContextManager[octopi.Client]:
    """A client with these *settings*; connects when the block is entered.

    Raises:
      CommandError, InvalidOptionError: if a setting is wrong.
    """
    token = TokenFile(settings.token_file) if settings.token_file else None
    secrets = secret_of_operator(settings.join_secret) if settings.join_secret else None
    return octopi.connect(
        [one.strip() for one in settings.server.split(",")],
        name=settings.name,
        token=token,
        secrets=secrets,
        tls_ca=settings.tls_ca or None,
        request_timeout_s=settings.timeout_s,
    )


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
