"""The options of a broker of a cluster without a register."""

from __future__ import annotations

import attrs

from octopi.limits import (
    MEMORY_BUDGET_BYTES,
    PARTITION_COUNT_DEFAULT,
    REPLICA_COUNT_DEFAULT,
    RETENTION_CHECK_INTERVAL_S,
    RETIRED_KEEP_S,
)
from octopi.security.authenticator import Authenticator
from octopi.security.join_secret import SecretSource
from octopi.storage.flush_policy import FlushOptions
from octopi.transport.handshake import NodeCredentials, TokenSource


@attrs.frozen
class RingOptions:
    """The options of a broker of the ring."""

    listen: str
    """``host:port``; with port 0 the system picks a free one."""
    data_directory: str
    join: tuple[str, ...]
    """Addresses of brokers by which it joins.  If its own is among them, it is a founder, and they
    are all founders."""
    secrets: SecretSource
    advertise: str = ""
    """The address that other brokers and clients are sent to; empty: the address at which the
    broker listens."""
    host: str = ""
    """The label of its machine; empty: it is the only broker there."""
    partition_count: int = PARTITION_COUNT_DEFAULT
    """Of a cluster that it forms."""
    replica_count: int = REPLICA_COUNT_DEFAULT
    """Of each partition of a cluster that it forms, if there are as many brokers."""
    flush: FlushOptions = attrs.field(factory=FlushOptions)
    retention_check_interval_s: float = RETENTION_CHECK_INTERVAL_S
    keep_retired_s: float = RETIRED_KEEP_S
    """How long a replica that was given up is kept."""
    agent: str = "octopi-node"
    token: TokenSource = lambda: None
    authenticator: Authenticator | None = None
    """Authenticates connections.  None disables authentication."""
    memory_budget_bytes: int = MEMORY_BUDGET_BYTES

    @property
    def credentials(self) -> NodeCredentials:
        """The credentials that the broker shows to others."""
        return NodeCredentials(self.secrets, self.token)
