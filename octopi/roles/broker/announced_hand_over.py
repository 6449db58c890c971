"""The hand-over that a register has announced to a broker, and what the broker has promised about
it: the file ``hand_over_announced`` of its data directory
(`docs/decisions/0126-brokers-ask-each-other-whether-a-hand-over-took-place.md`).
"""

from __future__ import annotations

import attrs

from octopi.environment import Disk, Environment
from octopi.ring.cluster_record import ClusterRecord, decode_cluster
from octopi.roles.broker.taking_over import ANNOUNCED_FILE
from octopi.storage import checkpoint


@attrs.frozen
class AnnouncedHandOver:
    """A hand-over that is announced; the fields are those of the file."""

    attempt: str
    record: bytes
    """The first record of the cluster without a register."""
    has_given_up: bool = False
    """Whether this broker has promised never to take over by that attempt."""
    is_given_up: bool = False
    """Whether so many have promised it that it never takes place."""

    @property
    def cluster(self) -> ClusterRecord:
        """What `record` says."""
        return decode_cluster(self.record)


def load_announced(environment: Environment, data_directory: str) -> AnnouncedHandOver | None:
    """The hand-over that was announced last to the broker of *data_directory*; None: none was.

    Raises:
      StorageError: if the file is damaged, or can't be read.
    """
    path = f"{data_directory}/{ANNOUNCED_FILE}"
    content = checkpoint.load(environment.disk, path)
    return None if content is None else checkpoint.structured(path, content, AnnouncedHandOver)


async def store_announced(disk: Disk, data_directory: str, announced: AnnouncedHandOver) -> None:
    """Store *announced*, durably.

    Raises:
      StorageError: if the disk fails; the file has the old or the new content.
    """
    await checkpoint.store(disk, f"{data_directory}/{ANNOUNCED_FILE}", attrs.asdict(announced))
