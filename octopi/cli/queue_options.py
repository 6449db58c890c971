"""Options of queues, which several commands have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from octopi.cli.duration import Duration

MODES: Final = ("exclusive", "failover", "shared", "key_shared")
QUEUE_MODES: Final = ("shared", "key_shared")
MODE_HELP: Final = (
    "exclusive: one member at a time; failover: each log has one, spread over the members; "
    "shared: a queue, each message is dealt to one member, and acknowledged; key_shared: the "
    "same, and messages of one key stay in order."
)

_F = TypeVar("_F", bound=Callable[..., Any])


def queue_options(function: _F) -> _F:
    """Add ``--attempts`` and ``--ack-timeout``."""
    attempts = click.option(
        "--attempts",
        type=click.IntRange(0, 100),
        metavar="N",
        help="Of a queue: a message that was dealt so often becomes a dead letter; 0: never.  "
        "[default: 5]",
    )
    ack_timeout = click.option(
        "--ack-timeout",
        "ack_timeout_s",
        type=Duration(1, 12 * 3600),
        metavar="TIME",
        help="Of a queue: a message that is not acknowledged for so long is dealt again; 30s, 5m "
        "or 2h.  [default: 30s]",
    )
    return attempts(ack_timeout(function))


def given_queue_options(attempts: int | None, ack_timeout_s: float | None) -> dict[str, Any]:
    """What was given of them, as arguments of the client's functions."""
    given: dict[str, Any] = {}
    if attempts is not None:
        given["attempts"] = attempts or None
    if ack_timeout_s is not None:
        given["ack_timeout_s"] = ack_timeout_s
    return given
