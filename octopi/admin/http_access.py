"""Access policy of a node for HTTP requests and WebSocket upgrades.

Tokens of WebSocket connections are checked after the upgrade, because a browser's script can't see
the answer before it; this module checks what has to be checked earlier.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from typing import Final

import attrs

from octopi.errors import STATUS_MEANINGS, RefusedError
from octopi.security.authenticator import AuthenticatedPeer, Authenticator
from octopi.security.grants import EVERYTHING, Grants
from octopi.security.origins import may_come_from, names_us
from octopi.transport.http_requests import HttpRequest
from octopi.wire.endpoints import CLIENT, FOLLOW, MEMBERSHIP, PEER, REGISTERS, RELAY, RING

_OF_NODES: Final = frozenset(
    {one.path for one in (MEMBERSHIP, FOLLOW, PEER, REGISTERS, RING, RELAY)}
)

_BEARER: Final = "bearer "

_SHOWABLE_ORIGIN: Final = re.compile(r"https?://[0-9A-Za-z.:\[\]_-]{1,300}")


@attrs.frozen
class Denial:
    """A refused request: HTTP status, name and reason."""

    http_status: int
    name: str
    reason: str
    retry_after_s: int | None = None


@attrs.frozen
class Holder:
    """The sender of an allowed request."""

    grants: Grants
    subject: str = ""
    """Empty if the node requires no tokens."""


@attrs.frozen
class HttpAccessPolicy:
    """The conditions that requests to a node have to meet."""

    authenticator: Authenticator | None = None
    """Authenticates requests.  None disables authentication: every request is allowed."""
    allowed_origins: tuple[str, ...] = ()
    """Further origins whose pages may connect to the node."""
    verifies_brokers: bool = False
    """Whether brokers need a client certificate."""

    def why_no_upgrade(
        self, request: HttpRequest, members: Callable[[], Iterable[str]]
    ) -> Denial | None:
        """Why *request* can't be upgraded to a WebSocket; None if it can.  *members* returns the
        urls of nodes of the cluster."""
        if self.verifies_brokers and request.path in _OF_NODES and not request.asker.is_verified:
            return Denial(
                403,
                "forbidden",
                "brokers need a certificate of the cluster: see --tls-cert and --tls-key",
            )
        if "origin" not in request.headers:
            return None  # not from a browser
        return self.why_not_from_there(request, members)

    def why_not_from_there(
        self, request: HttpRequest, members: Callable[[], Iterable[str]]
    ) -> Denial | None:
        """Why *request* of a browser is denied for its host or origin; None if it is allowed."""
        host, origin = request.headers.get("host", ""), request.headers.get("origin")
        known = list(members())
        if self.authenticator is None and not names_us(host, known, self.allowed_origins):
            why = "the host name is not one of the cluster: use an IP address, or --allow-origin"
            return Denial(421, "misdirected", why)
        if origin is not None and not may_come_from(
            origin,
            host,
            is_secure=request.asker.is_secure,
            members=known,
            allowed=self.allowed_origins,
        ):
            return Denial(403, "forbidden", _why_refused(origin))
        return None

    def holder_of(self, request: HttpRequest) -> Holder | Denial:
        """The sender of *request*, by its ``Authorization: Bearer`` header, with its grants."""
        if self.authenticator is None:
            return Holder(EVERYTHING)
        try:
            identity = self.authenticator.identify(_token_of(request))
        except RefusedError as error:
            return Denial(401, error.status.name.lower(), str(error.args[0]))
        wait_s = self.authenticator.wait_s(identity.subject)
        if wait_s > 0:
            return _over_rate(wait_s)
        return Holder(identity.grants, identity.subject)

    def enter(self, request: HttpRequest) -> AuthenticatedPeer | Denial | None:
        """The sender of *request*, a request of a stream, which counts as a connection of its token
        until `AuthenticatedPeer.leave`.  None: the node requires no tokens."""
        if self.authenticator is None:
            return None
        try:
            entry = self.authenticator.enter(_token_of(request), CLIENT)
        except RefusedError as error:
            status = STATUS_MEANINGS[error.status].http
            wait = 1 if status in {429, 503} else None
            return Denial(status, error.status.name.lower(), str(error.args[0]), wait)
        wait_s = self.authenticator.wait_s(entry.identity.subject)
        if wait_s > 0:
            entry.leave()
            return _over_rate(wait_s)
        return entry

    def answered(self, holder: Holder, size_bytes: int) -> None:
        """Count *size_bytes* of an answer against the byte rate of *holder*."""
        if self.authenticator is not None:
            self.authenticator.spend(holder.subject, size_bytes)


def _token_of(request: HttpRequest) -> str | None:
    value = request.headers.get("authorization", "")
    return value[len(_BEARER) :].strip() if value.lower().startswith(_BEARER) else None


def _over_rate(wait_s: float) -> Denial:
    why = f"the token is over its byte rate: send the request again in {wait_s:.0f} s"
    return Denial(429, "over_limit", why, retry_after_s=math.ceil(wait_s))


def _why_refused(origin: str) -> str:
    """The reason for which a page of *origin*, which anybody may have written, is refused."""
    if _SHOWABLE_ORIGIN.fullmatch(origin):
        return f"this node refuses pages from {origin}: start it with --allow-origin {origin}"
    return (
        "this node refuses pages without an http or https origin, such as opened files: serve the "
        "page over HTTP, and start the node with --allow-origin"
    )
