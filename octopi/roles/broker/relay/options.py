"""The options of a broker with topics in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from octopi.identifiers import BrokerId
from octopi.limits import (
    MEMORY_BUDGET_BYTES,
    PARTITION_COUNT_DEFAULT,
    RELAY_MEMORY_BYTES,
    REPLICA_COUNT_DEFAULT,
)
from octopi.relay.buffer import BufferBounds
from octopi.roles.broker.relay.mesh import PlacedStreams
from octopi.security.authenticator import Authenticator
from octopi.security.join_secret import SecretSource
from octopi.transport.handshake import NodeCredentials, TokenSource


@attrs.frozen
class RelayOptions:
    """The options of a relay."""

    listen: str
    """``host:port``."""
    data_directory: str
    broker: BrokerId
    """Its own id, which is in `relays`."""
    relays: Mapping[BrokerId, str]
    """Id and address of each relay, its own as well: the same on all of them."""
    secrets: SecretSource
    partition_count: int = PARTITION_COUNT_DEFAULT
    replica_count: int = REPLICA_COUNT_DEFAULT
    """The members of each relay set, if there are as many relays."""
    placed: Sequence[PlacedStreams] = ()
    """Which relays hold which streams: the same on all relays."""
    bounds: BufferBounds = attrs.field(factory=BufferBounds)
    """What is kept of each stream."""
    relay_memory_bytes: int = RELAY_MEMORY_BYTES
    """What is kept of all streams together; see `octopi.relay.memory`."""
    agent: str = "octopi-node"
    token: TokenSource = lambda: None
    authenticator: Authenticator | None = None
    """Authenticates connections.  None disables authentication."""
    memory_budget_bytes: int = MEMORY_BUDGET_BYTES

    @property
    def credentials(self) -> NodeCredentials:
        """The credentials that the relay shows to others."""
        return NodeCredentials(self.secrets, self.token)
