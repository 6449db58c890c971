"""What a relay has on its disk beside its identity, which has the number of its starts: the
greatest generation of a timeline for which it ever voted."""

from __future__ import annotations

import trio

from octopi.environment import Disk
from octopi.errors import StorageError
from octopi.storage import checkpoint


class RelayStore:
    """Keeps the file ``relay`` of the data directory.

    Invariant: what is stored never gets smaller.
    """

    def __init__(self, disk: Disk, data_directory: str) -> None:
        self._disk = disk
        self._path = f"{data_directory}/relay"
        self.generation = 0
        """What is stored."""
        self._storing = trio.Lock()

    def load(self) -> None:
        """Read the file.

        Raises:
          StorageError: if it is damaged, or can't be read.
        """
        match checkpoint.load(self._disk, self._path):
            case None:
                self.generation = 0
            case {"generation": int(generation)} if generation >= 0:
                self.generation = generation
            case _:
                raise StorageError(f"{self._path} is damaged: it has no generation")

    async def raise_to(self, generation: int) -> None:
        """Store *generation* durably, unless a greater one is stored.

        Raises:
          StorageError: if the disk fails.
        """
        async with self._storing:  # the partitions of a broker begin timelines at once
            if generation > self.generation:
                await checkpoint.store(self._disk, self._path, {"generation": generation})
                self.generation = generation
