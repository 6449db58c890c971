"""The file of what a replica remembers through any failure."""

from __future__ import annotations

import attrs

from octopi.environment import Environment
from octopi.replication.effects import ReplicaState
from octopi.storage import checkpoint
from octopi.wire.messages import PartitionRecord


def stored_state(environment: Environment, path: str) -> ReplicaState:
    """What a replica remembers through any failure; a fresh state if it was never here.

    Raises:
      StorageError: if it can't be read.
    """
    stored = checkpoint.load(environment.disk, path)
    if stored is None:
        return ReplicaState()
    record = stored.pop("record")
    return ReplicaState(**stored, record=None if record is None else PartitionRecord(**record))


async def forget_intact(environment: Environment, path: str) -> None:
    """Remember through any failure that the logs of the replica at *path* lost what was written,
    until the register has heard it.

    Raises:
      StorageError: if that can't be done.
    """
    state = attrs.evolve(stored_state(environment, path), intact=False)
    await checkpoint.store(environment.disk, path, attrs.asdict(state))
