"""The state file of a replica, which survives any failure."""

from __future__ import annotations

from typing import Any

import attrs

from octopi.environment import Environment
from octopi.limits import COUNTED_MAX
from octopi.replication.effects import ReplicaState
from octopi.storage import checkpoint
from octopi.storage.checkpoint import DamagedCheckpointError
from octopi.stored import partition_fields
from octopi.wire.codec import fault_in


def state_fields(state: ReplicaState) -> dict[str, Any]:
    """The fields of *state* that are stored; see `octopi.stored`."""
    return {
        "promised": state.promised,
        "sync_flag": state.sync_flag,
        "intact": state.intact,
        "whole": state.whole,
        "log_epoch": state.log_epoch,
        "ends": state.ends,
        "record": None if state.record is None else partition_fields(state.record),
    }


def stored_state(environment: Environment, path: str) -> ReplicaState:
    """The stored state of a replica; a fresh state if there is no file.

    Raises:
      DamagedCheckpointError: if the file is damaged, or has a state that no register decides.
      StorageError: if the file can't be read.
    """
    stored = checkpoint.load(environment.disk, path)
    if stored is None:
        return ReplicaState()
    state = checkpoint.structured(path, stored, ReplicaState)
    why = "" if state.record is None else fault_in(state.record)
    for epoch in (state.promised, state.log_epoch):
        if not why and not 0 <= epoch <= COUNTED_MAX:
            why = f"epoch {epoch} was promised"
    if why:
        raise DamagedCheckpointError(f"{path} says what no register decides: {why}")
    return state


async def forget_intact(environment: Environment, path: str) -> None:
    """Store durably that the logs of the replica at *path* have lost records.  It counts as not
    intact until the register knows that, and as not whole until it has the records again.

    Raises:
      StorageError: if the disk fails.
    """
    state = attrs.evolve(stored_state(environment, path), intact=False, whole=False)
    await checkpoint.store(environment.disk, path, state_fields(state))


def has_state(environment: Environment, path: str) -> bool:
    """Whether the state of a replica is stored in *path*.

    Raises:
      StorageError: if the file is damaged or can't be read.
    """
    return checkpoint.load(environment.disk, path) is not None


async def begin_state(environment: Environment, path: str) -> None:
    """Store the state of a new replica in *path*.  This comes before its first log, because a log
    without that file looks as if the file had been lost.

    Raises:
      StorageError: if the disk fails.
    """
    state = attrs.evolve(stored_state(environment, path), ends=True)
    await checkpoint.store(environment.disk, path, state_fields(state))
