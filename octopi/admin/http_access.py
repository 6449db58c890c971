"""Who may ask a node over HTTP, and who may speak WebSocket with it.

Tokens of WebSocket connections are asked for behind the upgrade, where a browser's script
hears the answer; what stands here is what has to be known before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Final

import attrs

from octopi.errors import RefusedError
from octopi.security.authenticator import Authenticator
from octopi.security.grants import EVERYTHING, Grants
from octopi.security.origins import may_come_from, names_us
from octopi.transport.http_requests import HttpRequest
from octopi.wire.endpoints import FOLLOW, MEMBERSHIP

_OF_BROKERS: Final = frozenset({MEMBERSHIP.path, FOLLOW.path})

_BEARER: Final = "bearer "


@attrs.frozen
class Denial:
    """Why somebody may not, and with which HTTP status that is said."""

    http_status: int
    name: str
    reason: str
    retry_after_s: int | None = None


@attrs.frozen
class Holder:
    """Who may ask."""

    grants: Grants
    subject: str = ""
    """Empty where no tokens are asked for."""


@attrs.frozen
class HttpAccessPolicy:
    """What a node asks of who comes."""

    authenticator: Authenticator | None = None
    """Asks for tokens; None: everybody may do everything."""
    allowed_origins: tuple[str, ...] = ()
    """Pages of these may talk to the node, too."""
    verifies_brokers: bool = False
    """Whether brokers have to show a certificate."""

    def why_no_upgrade(
        self, request: HttpRequest, members: Callable[[], Iterable[str]]
    ) -> Denial | None:
        """Why *request* may not become a WebSocket; None: it may.  *members*: urls of nodes of
        the cluster."""
        if self.verifies_brokers and request.path in _OF_BROKERS and not request.asker.is_verified:
            return Denial(403, "forbidden", "brokers show a certificate of the cluster here")
        if "origin" not in request.headers:
            return None  # no browser
        return self.why_not_from_there(request, members)

    def why_not_from_there(
        self, request: HttpRequest, members: Callable[[], Iterable[str]]
    ) -> Denial | None:
        """Why a browser may not have sent *request*; None: it may."""
        host, origin = request.headers.get("host", ""), request.headers.get("origin")
        known = list(members())
        if self.authenticator is None and not names_us(host, known, self.allowed_origins):
            why = "this name is not known as one of the cluster: use an address, or --allow-origin"
            return Denial(421, "misdirected", why)
        if origin is not None and not may_come_from(
            origin,
            host,
            is_secure=request.asker.is_secure,
            members=known,
            allowed=self.allowed_origins,
        ):
            return Denial(403, "forbidden", "pages of that origin may not: see --allow-origin")
        return None

    def holder_of(self, request: HttpRequest) -> Holder | Denial:
        """Who sent *request*, by its ``Authorization: Bearer``, and what it may do."""
        if self.authenticator is None:
            return Holder(EVERYTHING)
        value = request.headers.get("authorization", "")
        token = value[len(_BEARER) :].strip() if value.lower().startswith(_BEARER) else None
        try:
            identity = self.authenticator.identify(token)
        except RefusedError as error:
            return Denial(401, error.status.name.lower(), str(error.args[0]))
        wait_s = self.authenticator.wait_s(identity.subject)
        if wait_s > 0:
            why = f"the token has had its bytes: ask again in {wait_s:.0f} s"
            return Denial(429, "over_limit", why, retry_after_s=math.ceil(wait_s))
        return Holder(identity.grants, identity.subject)

    def answered(self, holder: Holder, size_bytes: int) -> None:
        """So much was said to *holder*: it counts for its token."""
        if self.authenticator is not None:
            self.authenticator.spend(holder.subject, size_bytes)
