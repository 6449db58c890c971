"""The file of what a replica remembers through any failure."""

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
    """What is stored of *state*; see `octopi.stored`."""
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
    """What a replica remembers through any failure; a fresh state if it was never here.

    Raises:
      DamagedCheckpointError: if it isn't what was written, or says what no register decides.
      StorageError: if it can't be read.
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
    """Remember through any failure that the logs of the replica at *path* lost what was written:
    until the register has heard it, and that they lack it, until they have it again.

    Raises:
      StorageError: if that can't be done.
    """
    state = attrs.evolve(stored_state(environment, path), intact=False, whole=False)
    await checkpoint.store(environment.disk, path, state_fields(state))


async def begin_state(environment: Environment, path: str) -> None:
    """Store what a new replica remembers, in *path*, before it has a log: a log without that file
    looks as if the file were lost.

    Raises:
      StorageError: if the disk fails.
    """
    state = attrs.evolve(stored_state(environment, path), ends=True)
    await checkpoint.store(environment.disk, path, state_fields(state))
