"""What a broker has on its disk of what a register told it about relay sets: with that it takes
part again after a restart, also while the register is away."""

from __future__ import annotations

from typing import Any

import attrs

from octopi.environment import Disk
from octopi.errors import StorageError
from octopi.identifiers import BrokerId
from octopi.model import RelaySetRecord, TopicOptions, TopicRecord
from octopi.storage import checkpoint
from octopi.stored import relay_set_fields, topic_fields
from octopi.wire.codec import fault_in


@attrs.frozen
class KnownSets:
    """The relay sets of which a broker is a member, and their topics."""

    sets: tuple[RelaySetRecord, ...] = ()
    topics: tuple[TopicRecord, ...] = ()
    addresses: dict[BrokerId, str] = attrs.field(factory=dict)
    """Of the members."""


@attrs.frozen
class _StoredSets:
    sets: list[Any]
    topics: list[Any]
    addresses: dict[BrokerId, str]


class RelaySetsFile:
    """The file ``relay-sets`` of the data directory."""

    def __init__(self, disk: Disk, data_directory: str) -> None:
        self._disk = disk
        self._path = f"{data_directory}/relay-sets"

    def load(self) -> KnownSets:
        """What is stored.

        Raises:
          StorageError: if the file is damaged, or can't be read.
        """
        content = checkpoint.load(self._disk, self._path)
        if content is None:
            return KnownSets()
        stored = checkpoint.structured(self._path, content, _StoredSets)
        try:
            sets = tuple(RelaySetRecord(**one) for one in stored.sets)
            topics = tuple(
                TopicRecord(**{**one, "options": TopicOptions(**one["options"])})
                for one in stored.topics
            )
        except (TypeError, KeyError) as error:
            raise StorageError(f"{self._path} is damaged: {error}") from error
        for record in (*sets, *topics):
            if why := fault_in(record):
                raise StorageError(f"{self._path} is damaged: {why}")
        return KnownSets(sets, topics, stored.addresses)

    async def store(self, known: KnownSets) -> None:
        """Store *known* durably.

        Raises:
          StorageError: if the disk fails.
        """
        content: dict[str, Any] = {
            "sets": [relay_set_fields(one) for one in known.sets],
            "topics": [topic_fields(one) for one in known.topics],
            "addresses": known.addresses,
        }
        await checkpoint.store(self._disk, self._path, content)
