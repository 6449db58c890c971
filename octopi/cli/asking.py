"""One question to a cluster, from a command that only wants the answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import octopi
from octopi.cli.config import ClientSettings
from octopi.cli.running import run

_T = TypeVar("_T")


def ask(settings: ClientSettings, question: Callable[[octopi.Client], Awaitable[_T]]) -> _T:
    """The answer to *question*.

    Raises:
      OctopiError: whatever asking raises.
      InterruptedByUserError: on Ctrl-C.
    """

    async def body() -> _T:
        async with octopi.connect(settings.server, request_timeout_s=settings.timeout_s) as client:
            return await question(client)

    return run(body)
