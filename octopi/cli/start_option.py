"""Parses a place in a topic: option ``-o`` of `consume`, ``--to`` of `subscriptions reset`.

=============  ==============================================================
``earliest``   the oldest message that is kept
``latest``     messages from now on
``OFFSET``     that offset (a message's id; 0 is the first message ever)
``-N``         the last N messages, of each partition
``@TIME``      the first message at or after that time: ISO 8601 (local time if
               it names no zone), 13 digits of milliseconds since 1970, as
               ``%T`` prints, or a span of time before now, such as ``-5m``
``v1:...``     a position, as clients in any language write it and
               ``--position-file`` keeps it
=============  ==============================================================
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from octopi.cli.duration import parse_duration
from octopi.cli.failures import CommandError, ExitCode
from octopi.errors import InvalidOptionError
from octopi.position import Position

if TYPE_CHECKING:
    from octopi.clients.consuming.start_position import OffsetSpec

_UNIX_ZERO: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DIGITS: Final = re.compile(r"[0-9]{1,19}", re.ASCII)
_ID_DIGITS: Final = re.compile(r"[0-9a-fA-F]{32}", re.ASCII)
_MILLISECONDS_DIGITS: Final = 13
"""From September 2001 to November 2286.  Years, dates and seconds have fewer digits, so none of
them is taken for milliseconds in 1970."""


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
        return _parse_time(text, option)
    raise CommandError(
        f"{option} {text!r} is not a start position: use earliest, latest, an offset, -N for the "
        "last N messages, @TIME such as @2026-01-31T12:00 or @-5m, or a position that begins with "
        "v1:",
        ExitCode.USAGE,
    )


def parse_message_id(text: str) -> bytes:
    """The id of a message of a relay topic that *text* denotes, in 32 hexadecimal digits.

    Raises:
      CommandError: if it is none.
    """
    if not _ID_DIGITS.fullmatch(text):
        raise CommandError(
            f"--from-id {text!r} is not the id of a message: that has 32 hexadecimal digits, as "
            "receipts of relay topics show it",
            ExitCode.USAGE,
        )
    return bytes.fromhex(text)


def _parse_time(text: str, option: str) -> datetime:
    """The time that *text*, which begins with ``@``, denotes.

    Raises:
      CommandError: if it is no time; the text says how it was read.
    """
    time = text[1:]
    why = f"{time!r} is no time"
    try:
        if time.isdecimal() and time.isascii():
            if len(time) == _MILLISECONDS_DIGITS:
                return _UNIX_ZERO + timedelta(milliseconds=int(time))
            why = (
                f"a number is milliseconds since 1970 and has {_MILLISECONDS_DIGITS} digits, this "
                f"one has {len(time)}"
            )
        elif time[:1] == "-":
            why = f"'-' is followed by how long before now, and {time[1:]!r} is no span of time"
            return datetime.now(UTC) - timedelta(seconds=parse_duration(time[1:]))
        else:
            return datetime.fromisoformat(time).astimezone()
    except (ValueError, OverflowError):
        pass
    raise CommandError(
        f"{option} {text!r} is not a start position: {why}; write @2026-01-31T12:00 (local time), "
        "@2026-01-31T12:00Z (UTC), @1769860800000 (milliseconds since 1970) or @-5m (five minutes "
        "ago; also s, h, d)",
        ExitCode.USAGE,
    )
