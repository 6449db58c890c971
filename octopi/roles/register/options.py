"""How a register runs."""

from __future__ import annotations

import attrs

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


@attrs.frozen
class RegisterOptions:
    """How a register runs."""

    listen: str
    """``host:port``; port 0 picks a free one."""
    data_directory: str
    partition_count: int = PARTITION_COUNT_DEFAULT
    """Partitions of a cluster that this register forms."""
    replica_count: int = REPLICA_COUNT_DEFAULT
    """Replicas of a partition that is made while there are so many brokers."""
    gather_s: float = GATHER_S
    """With an empty journal: how long to listen to brokers before deciding anything."""
    rebalance_interval_s: float = REBALANCE_INTERVAL_S
    """How often to take a step to a better spread of replicas and leaders."""
    snapshot_entries: int = JOURNAL_SNAPSHOT_ENTRIES
    """After so many entries the journal is folded into a snapshot."""
    agent: str = "octopi-node"
    authenticator: Authenticator | None = None
    """Authenticates connections.  None disables authentication."""
    secrets: SecretSource | None = None
    """By which register and brokers know that each is of the cluster; None: from its data
    directory, where it makes one at its first start."""
    memory_budget_bytes: int = MEMORY_BUDGET_BYTES
    """What its connections may use together; see `octopi.transport.memory_budget`."""
