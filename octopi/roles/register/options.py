"""How a register runs."""

from __future__ import annotations

import attrs

from octopi.coordination.shedding import SheddingRules
from octopi.coordination.topic_placement import PlacementRule
from octopi.limits import (
    GATHER_S,
    JOURNAL_SNAPSHOT_ENTRIES,
    MEMORY_BUDGET_BYTES,
    PARTITION_COUNT_DEFAULT,
    REBALANCE_INTERVAL_S,
    REPLICA_COUNT_DEFAULT,
)
from octopi.security.authenticator import Authenticator
from octopi.security.join_secret import SecretSource
from octopi.transport.handshake import TokenSource


@attrs.frozen
class RegisterOptions:
    """How a register runs."""

    listen: str
    """``host:port``; port 0 picks a free one."""
    data_directory: str
    partition_count: int = PARTITION_COUNT_DEFAULT
    """Partitions of a cluster that this register forms."""
    replica_count: int = REPLICA_COUNT_DEFAULT
    """Replicas of a new partition, if there are enough brokers."""
    gather_s: float = GATHER_S
    """With an empty journal: how long to wait for brokers before deciding anything (s)."""
    rebalance_interval_s: float = REBALANCE_INTERVAL_S
    """The interval between steps to a better spread of replicas and leaders (s)."""
    shedding: SheddingRules | None = attrs.field(factory=SheddingRules)
    """How leaderships move away from brokers that have much more to do than others; None: not at
    all."""
    placement: PlacementRule = PlacementRule.HASH
    """How the partitions of a new topic are chosen, if its creator names none."""
    snapshot_entries: int = JOURNAL_SNAPSHOT_ENTRIES
    """The number of entries after which the journal is replaced by a snapshot."""
    peers: tuple[str, ...] = ()
    """The addresses of all registers of the cluster, this one among them; empty: it is alone."""
    advertise: str = ""
    """This register's address among them; empty: the one at which it listens."""
    agent: str = "octopi-node"
    token: TokenSource = lambda: None
    """The token that the register shows to other registers."""
    authenticator: Authenticator | None = None
    """Authenticates connections.  None disables authentication."""
    secrets: SecretSource | None = None
    """The join secrets with which register and brokers prove that they belong to the cluster.
    None: the secret in the data directory, which the register makes at its first start."""
    memory_budget_bytes: int = MEMORY_BUDGET_BYTES
    """The bytes that all connections together may use; see `octopi.transport.memory_budget`."""

    @property
    def address(self) -> str:
        """The address of this register among its peers."""
        return self.advertise or f"ws://{self.listen}"
