"""Parses a place in a topic: option ``-o`` of `consume`, ``--to`` of `subscriptions reset`.

=============  ==============================================================
``earliest``   the oldest message that is kept
``latest``     messages from now on
``OFFSET``     that offset (a message's id; 0 is the first message ever)
``-N``         the last N messages, of each partition
``@TIME``      the first message at or after that time: ISO 8601 (local time if
               it names no zone), or milliseconds since 1970, as ``%T`` prints
``v1:...``     a position, as clients in any language write it and
               ``--position-file`` keeps it
=============  ==============================================================
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from octopi.cli.failures import CommandError, ExitCode
from octopi.errors import InvalidOptionError
from octopi.position import Position

if TYPE_CHECKING:
    from octopi.clients.consuming.start_position import OffsetSpec

_UNIX_ZERO: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DIGITS: Final = re.compile(r"[0-9]{1,19}", re.ASCII)


def parse_start(text: str, option: str = "--offset") -> OffsetSpec | Position:
    """The start position that *text* denotes, as `octopi.Client.consumer` takes it.  *option*: what
    it was given with, for errors.

    Raises:
      CommandError: if *text* is not a start position.
    """
    if text == "earliest":
        return "earliest"
    if text == "latest":
        return "latest"
    if _DIGITS.fullmatch(text):
        return int(text)
    if text[:1] == "-" and _DIGITS.fullmatch(text[1:]) and int(text[1:]) > 0:
        from octopi.clients.consuming.start_position import last

        try:
            return last(int(text[1:]))
        except InvalidOptionError as error:
            raise CommandError(str(error), ExitCode.USAGE) from None
    if text.startswith("v1:"):
        try:
            return Position.parse(text)
        except InvalidOptionError as error:
            raise CommandError(str(error), ExitCode.USAGE) from None
    if text[:1] == "@":
        try:
            if _DIGITS.fullmatch(text[1:]):
                return _UNIX_ZERO + timedelta(milliseconds=int(text[1:]))
            return datetime.fromisoformat(text[1:]).astimezone()
        except (ValueError, OverflowError):
            pass  # reported below, with all forms
    raise CommandError(
        f"{option} {text!r} is not a start position: use earliest, latest, an offset, -N for the "
        "last N messages, @TIME such as @2026-01-31T12:00, or a position that begins with v1:",
        ExitCode.USAGE,
    )
