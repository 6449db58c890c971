"""What a request says that a stream shall be, and whether a stream is that already."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

import attrs

from octopi.limits import COUNTED_MAX, WALL_MS_MAX
from octopi.model import StreamDefinition
from octopi.streams import content_types
from octopi.streams.problems import invalid

TTL: Final = "stream-ttl"
EXPIRES_AT: Final = "stream-expires-at"
CLOSED: Final = "stream-closed"

_TTL: Final = re.compile(r"0|[1-9][0-9]{0,11}", re.ASCII)
_TIME: Final = re.compile(
    r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII
)
_UNIX_ZERO: Final = datetime(1970, 1, 1, tzinfo=UTC)


def definition_of(headers: Mapping[str, str]) -> StreamDefinition:
    """The stream that a request with *headers* wants.

    Raises:
      StreamProblem: if they contradict each other, or one of them is malformed.
    """
    ttl, expires_at = headers.get(TTL), headers.get(EXPIRES_AT)
    if ttl is not None and expires_at is not None:
        raise invalid("give Stream-TTL or Stream-Expires-At, not both")
    if ttl is not None and (_TTL.fullmatch(ttl) is None or int(ttl) > COUNTED_MAX):
        raise invalid(f"Stream-TTL is a number of seconds such as 3600, not {ttl[:40]!r}")
    return StreamDefinition(
        content_types.checked(headers.get("content-type", "")),
        None if ttl is None else int(ttl),
        None if expires_at is None else _milliseconds(expires_at),
    )


def is_closing(headers: Mapping[str, str]) -> bool:
    """Whether the request with *headers* closes the stream."""
    return headers.get(CLOSED, "").strip().lower() == "true"


def content_type_of(stream: StreamDefinition | None) -> str:
    """The content type of a topic that is defined so."""
    return (stream.content_type if stream is not None else "") or content_types.DEFAULT


def is_same(one: StreamDefinition | None, other: StreamDefinition | None) -> bool:
    """Whether both define the same stream."""
    return _comparable(one) == _comparable(other)


def _comparable(one: StreamDefinition | None) -> StreamDefinition:
    one = one or StreamDefinition()
    return attrs.evolve(one, content_type=content_types.essence(content_type_of(one)))


def expiry_headers(stream: StreamDefinition | None) -> list[tuple[str, str]]:
    """The headers that tell when a stream expires."""
    if stream is None:
        return []
    if stream.ttl_s is not None:
        return [("stream-ttl", str(stream.ttl_s))]
    if stream.expires_at_ms is not None:
        at = _UNIX_ZERO + timedelta(milliseconds=stream.expires_at_ms)
        text = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return [("stream-expires-at", text)]
    return []


def _milliseconds(text: str) -> int:
    wrong = invalid(f"Stream-Expires-At is a time such as 2030-01-01T00:00:00Z, not {text[:40]!r}")
    if _TIME.fullmatch(text) is None:
        raise wrong
    try:
        since = datetime.fromisoformat(text.upper()) - _UNIX_ZERO
    except (ValueError, OverflowError):
        raise wrong from None
    found_ms = since // timedelta(milliseconds=1)
    if found_ms > WALL_MS_MAX:  # its zone is before ours
        raise wrong
    return max(0, found_ms)
