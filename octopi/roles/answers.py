"""Answering a request with what went wrong."""

from __future__ import annotations

import contextlib

from octopi.errors import ConnectionLostError, OctopiError
from octopi.transport.connection import Connection
from octopi.transport.failures import failure_of


def refuse(connection: Connection, request: int, error: OctopiError) -> None:
    """Answer *request* with the status that *error* stands for, if anyone still listens.

    Raises:
      OctopiError: *error* itself, if it stands for none: a fault of ours.
    """
    answer = failure_of(request, error)
    if answer is None:
        raise error
    with contextlib.suppress(ConnectionLostError):
        connection.post(answer)
