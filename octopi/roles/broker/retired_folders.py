"""The names of the folders of retired replicas.

``retired/PARTITION-EPOCH-TIME``: the partition, the epoch of the decision that placed it on other
brokers, and when that was carried out (UTC).  The folder is laid out like a data directory with
this one partition, so programs that read a data directory can read it, too.

=====================  ==================================================================
suffix                 meaning
=====================  ==================================================================
none                   the whole replica is there
``.moving``            some of its files may still be in their old places: the broker goes on
                       moving them, also after a crash
``.deleted``           its time is over, or a person removed it: files of it may be left
=====================  ==================================================================
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

import attrs

from octopi.environment import Disk
from octopi.errors import StorageError
from octopi.identifiers import Epoch, PartitionId
from octopi.storage import checkpoint

DIRECTORY: Final = "retired"
"""The folder within a data directory."""

MOVING_SUFFIX: Final = ".moving"
REMOVED_SUFFIX: Final = ".deleted"

COUNT_FILE: Final = "kept"
"""The checkpoint file in the folder that says how long the replica has been kept, as `SECONDS`."""

SECONDS: Final = "seconds"

_FORM: Final = re.compile(
    r"(?P<partition>[0-9]{1,19})-(?P<epoch>[0-9]{1,19})-(?P<at>[0-9]{8}T[0-9]{6}Z)"
    r"(?:\.[0-9]{1,9})?(?P<suffix>\.moving|\.deleted)?",
    re.ASCII,
)
_TIME: Final = "%Y%m%dT%H%M%SZ"


@attrs.frozen
class RetiredFolder:
    """The name of a folder in ``retired``, with its parts."""

    name: str
    partition: PartitionId
    epoch: Epoch
    retired_at: datetime
    """By the wall clock, for display."""
    suffix: str

    @property
    def is_whole(self) -> bool:
        """Whether the whole replica is there."""
        return not self.suffix


def parse(name: str) -> RetiredFolder | None:
    """The parts of *name*; None if it isn't the name of such a folder."""
    match = _FORM.fullmatch(name)
    if match is None:
        return None
    try:
        at = datetime.strptime(match["at"], _TIME).replace(tzinfo=UTC)
    except ValueError:
        return None
    partition, epoch = PartitionId(int(match["partition"])), Epoch(int(match["epoch"]))
    return RetiredFolder(name, partition, epoch, at, match["suffix"] or "")


def name_for(partition: PartitionId, epoch: Epoch, wall_ms: int, taken: set[str]) -> str:
    """A name, without suffix, for the replica of *partition* that is retired at *wall_ms*
    (milliseconds since 1970, UTC).  *taken*: the names that exist, with their suffixes."""
    at = datetime.fromtimestamp(wall_ms // 1000, UTC).strftime(_TIME)
    first = name = f"{partition}-{epoch}-{at}"
    number = 1
    while any(f"{name}{suffix}" in taken for suffix in ("", MOVING_SUFFIX, REMOVED_SUFFIX)):
        number += 1
        name = f"{first}.{number}"
    return name


def stored_seconds(disk: Disk, path: str) -> float:
    """How many seconds a retired replica has been kept, according to the file at *path*; 0 if that
    can't be read, so the replica is kept longer."""
    try:
        stored = checkpoint.load(disk, path) or {}
        seconds = stored.get(SECONDS, 0)
    except StorageError:
        return 0.0
    return float(seconds) if isinstance(seconds, int) and seconds > 0 else 0.0
