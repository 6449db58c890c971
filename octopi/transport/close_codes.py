"""The close codes of WebSocket (RFC 6455 section 7.4.1), and which status closes a connection with
which code.  Codes from 4000 on are Octopi's own."""

from __future__ import annotations

from typing import Final

from octopi.errors import Status

GOING_AWAY: Final = 1001
PROTOCOL_ERROR: Final = 1002
MESSAGE_TOO_BIG: Final = 1009
INTERNAL_ERROR: Final = 1011

_BY_STATUS: Final = {
    Status.MESSAGE_TOO_LARGE: MESSAGE_TOO_BIG,
    Status.INTERNAL: INTERNAL_ERROR,
    Status.UNAUTHENTICATED: 4401,
    Status.EXPIRED: 4401,
    Status.NOT_A_MEMBER: 4401,
    Status.FORBIDDEN: 4403,
    Status.TOO_SLOW: 4408,
    Status.NO_QUORUM: 4409,
    Status.OVER_LIMIT: 4429,
}


def close_code(status: Status) -> int:
    """The code with which a connection that ends with *status* is closed."""
    return _BY_STATUS.get(status, PROTOCOL_ERROR)
