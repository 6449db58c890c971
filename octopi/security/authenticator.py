"""Authenticates connections by their tokens, and limits what each subject uses.

A node has one authenticator.  Limits count per subject, not per token or connection: a refreshed
token or another connection gets no allowance of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, Final

import attrs

from octopi.environment import Clock
from octopi.errors import RefusedError, Status
from octopi.limits import CONNECTIONS_PER_TOKEN_MAX, DECISIONS_KEPT_COUNT
from octopi.security.authorization import denied, denied_at
from octopi.security.quotas import NO_QUOTA, Quota, SubjectUsage
from octopi.security.token_bucket import TokenBucket
from octopi.wire.endpoints import MEMBERSHIP, Endpoint

if TYPE_CHECKING:  # 8 MB of code, which a node without keys doesn't need
    from octopi.security.tokens import KeyRing, Principal


_LOOKED_AT_COUNT: Final = 8
"""Subjects without connections to check, and perhaps forget, with each new one."""


@attrs.frozen
class TokenLimits:
    """Limits of one subject at a node."""

    connections_max: int = CONNECTIONS_PER_TOKEN_MAX
    bytes_per_s: float | None = None
    """The rate of all connections of a subject together, sent and received.  None: no limit."""
    quota: Quota = NO_QUOTA
    """Applies to what the token of the subject does not limit."""


@attrs.define
class _Subject:
    connection_count: int
    bucket: TokenBucket | None
    account: SubjectUsage = attrs.Factory(SubjectUsage)

    def is_forgettable(self, now: float) -> bool:
        """Whether its state equals that of a new subject, so it can be dropped."""
        is_full = self.bucket is None or self.bucket.is_full(now)
        return is_full and self.account.is_empty


class Authenticator:
    """Checks tokens, and keeps count of connections, bytes and quotas by subject."""

    def __init__(self, keys: KeyRing, clock: Clock, limits: TokenLimits | None = None) -> None:
        self._keys = keys
        self._clock = clock
        self._limits = limits or TokenLimits()
        self._subjects: dict[str, _Subject] = {}
        self._gone: dict[str, _Subject] = {}
        """Subjects without connections whose bucket is not full again, or which have records
        stored."""
        self.cluster: Callable[[], str] = lambda: ""
        """Returns the id of the node's cluster; empty while it is unknown."""

    @property
    def subject_count(self) -> int:
        """Number of subjects with state at this node."""
        return len(self._subjects) + len(self._gone)

    def identify(self, token: str | None) -> Principal:
        """The holder of *token*.

        Raises:
          RefusedError: UNAUTHENTICATED or EXPIRED; NOT_READY, if it is for certain clusters and
              the node does not know yet which one it belongs to.
        """
        identity = self._verified(token)
        if identity.clusters and not self.cluster():
            raise RefusedError(
                "the token is for certain clusters, and the node does not know its own yet",
                Status.NOT_READY,
            )
        return identity

    def _verified(self, token: str | None) -> Principal:
        if not token:
            raise RefusedError("the node requires a token", Status.UNAUTHENTICATED)
        identity = self._keys.verify(token, self._clock.wall_ms())
        cluster = self.cluster()
        if identity.clusters and cluster and cluster not in identity.clusters:
            raise RefusedError(f"the token is not for cluster {cluster}", Status.UNAUTHENTICATED)
        return attrs.evolve(identity, quota=identity.quota.or_else(self._limits.quota))

    def enter(self, token: str | None, endpoint: Endpoint) -> AuthenticatedPeer:
        """Admit a connection; when it ends, `AuthenticatedPeer.leave` has to be called.

        Raises:
          RefusedError: UNAUTHENTICATED, EXPIRED, FORBIDDEN or OVER_LIMIT.
        """
        # A register without a cluster id learns it from brokers, so it can't check theirs yet.
        is_member = endpoint is MEMBERSHIP
        identity = self._verified(token) if is_member else self.identify(token)
        why = denied_at(identity.grants, endpoint)
        if why is not None:
            raise RefusedError(why, Status.FORBIDDEN)
        subject = self._subject(identity.subject)
        if subject.connection_count >= self._limits.connections_max:
            raise RefusedError(
                f"{identity.subject!r} has {self._limits.connections_max} connections to a node, "
                "which is the limit of its token",
                Status.OVER_LIMIT,
            )
        subject.connection_count += 1
        self._subjects[identity.subject] = subject
        return AuthenticatedPeer(self, identity, subject.bucket, subject.account)

    def wait_s(self, subject: str) -> float:
        """Seconds until *subject* may send another HTTP request; 0: at once."""
        bucket = self._bucket(subject)
        return 0.0 if bucket is None else bucket.wait_s(self._clock.now())

    def spend(self, subject: str, size_bytes: int) -> None:
        """Count *size_bytes* of an HTTP answer against the byte rate of *subject*."""
        bucket = self._bucket(subject)
        if bucket is not None:
            bucket.spend(size_bytes, self._clock.now())

    def _bucket(self, subject: str) -> TokenBucket | None:
        if self._limits.bytes_per_s is None:
            return None
        known = self._subject(subject)
        if subject not in self._subjects:
            self._gone[subject] = known
        return known.bucket

    def left(self, subject: str) -> None:
        """Count that a connection of *subject* ended."""
        known = self._subjects[subject]
        known.connection_count -= 1
        if not known.connection_count:
            del self._subjects[subject]
            if not known.is_forgettable(self._clock.now()):
                self._gone[subject] = known

    def _subject(self, name: str) -> _Subject:
        rate, now = self._limits.bytes_per_s, self._clock.now()
        for gone in list(islice(self._gone, _LOOKED_AT_COUNT)):
            known = self._gone.pop(gone)
            if not known.is_forgettable(now):
                self._gone[gone] = known  # behind the others
        return (
            self._subjects.get(name)
            or self._gone.pop(name, None)
            or _Subject(0, None if rate is None else TokenBucket(rate, now))
        )


class AuthenticatedPeer:
    """An admitted connection, with what its token grants."""

    def __init__(
        self,
        authenticator: Authenticator,
        identity: Principal,
        bucket: TokenBucket | None,
        account: SubjectUsage,
    ) -> None:
        self._authenticator = authenticator
        self._has_left = False
        self._allowed: set[tuple[type, str]] = set()
        """Cache of allowed (message type, topic): most messages of a connection are alike."""
        self.identity = identity
        self.bucket: Final = bucket
        self.account: Final = account
        """The quota usage of its subject at this node."""

    def check(self, message: object) -> None:
        """Check that the token grants *message*.

        Raises:
          RefusedError: FORBIDDEN if it does not.
        """
        decision = (type(message), getattr(message, "topic", ""))
        if decision in self._allowed:
            return
        why = denied(self.identity.grants, message)
        if why is not None:
            raise RefusedError(why, Status.FORBIDDEN)
        if len(self._allowed) >= DECISIONS_KEPT_COUNT:
            self._allowed.clear()
        self._allowed.add(decision)

    def refresh(self, token: str) -> Principal:
        """Replace the token by another one of the same subject.

        Raises:
          RefusedError: UNAUTHENTICATED or EXPIRED; the old token stays in use.
        """
        identity = self._authenticator.identify(token)
        if identity.subject != self.identity.subject:
            raise RefusedError(
                "the refreshed token has another subject than the token it replaces",
                Status.UNAUTHENTICATED,
            )
        self.identity = identity
        self._allowed.clear()
        return identity

    def leave(self) -> None:
        """Report the end of the connection; further calls have no effect."""
        if not self._has_left:
            self._has_left = True
            self._authenticator.left(self.identity.subject)
