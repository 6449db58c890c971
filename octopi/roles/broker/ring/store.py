"""What a broker of the ring has on its disk beside its identity and its acceptor's journal: the
file ``ring`` of its data directory.

It is replaced as a whole.  Nothing that is safe rests on it: a broker that lost it alone asks the
others again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import trio

from octopi.environment import Disk, Environment
from octopi.errors import ProtocolError, StorageError
from octopi.identifiers import BrokerId, DirectoryId, Incarnation, RingPoint
from octopi.logger import get_logger
from octopi.storage import checkpoint
from octopi.wire.agreement import ValueChosen
from octopi.wire.codec import decode, encode, fault_in
from octopi.wire.ring import RingNode

_log = get_logger(__name__)

_VALUE = frozenset({ValueChosen})


@attrs.frozen
class StoredRing:
    """The content of the file."""

    is_admitted: bool = False
    """Whether the cluster knows this directory under the id in its identity."""
    was_member: bool = False
    """Whether this broker was in the ring: then it may begin one, if all were restarted."""
    point: RingPoint | None = None
    cluster: ValueChosen | None = None
    """The newest record of the cluster that is known to be chosen."""
    known: tuple[RingNode, ...] = ()
    """The address book."""


class RingStore:
    """Keeps the file."""

    def __init__(self, disk: Disk, data_directory: str) -> None:
        self._disk = disk
        self._path = f"{data_directory}/ring"

    def load(self) -> StoredRing:
        """What was stored last; the empty content, if there is no file.

        Raises:
          StorageError: if the file is damaged, or can't be read.
        """
        fields = checkpoint.load(self._disk, self._path)
        if fields is None:
            return StoredRing()
        try:
            return _stored(fields)
        except (ProtocolError, ValueError) as error:
            raise StorageError(
                f"{self._path} is damaged: {error}; remove it, and the broker asks the others"
            ) from error

    async def store(self, content: StoredRing) -> None:
        """Replace the file durably.

        Raises:
          StorageError: if the disk fails.
        """
        fields = {
            "is_admitted": content.is_admitted,
            "was_member": content.was_member,
            "point": content.point,
            "cluster": None if content.cluster is None else encode(content.cluster),
            "known": [list(attrs.astuple(one)) for one in content.known],
        }
        await checkpoint.store(self._disk, self._path, fields)


def _stored(fields: dict[str, Any]) -> StoredRing:
    match fields:
        case {
            "is_admitted": bool(is_admitted),
            "was_member": bool(was_member),
            "point": int() | None as point,
            "cluster": bytes() | None as data,
            "known": [*known],
        } if len(fields) == 5:
            cluster = None if data is None else decode(data, _VALUE)
            assert cluster is None or isinstance(cluster, ValueChosen)
            return StoredRing(
                is_admitted,
                was_member,
                None if point is None else RingPoint(point),
                cluster,
                tuple(_node(one) for one in known),
            )
    raise ValueError("a field is missing, or of another type")


def _node(fields: object) -> RingNode:
    match fields:
        case [int(broker), str(directory), int(point), str(host), str(address), int(incarnation)]:
            node = RingNode(
                BrokerId(broker),
                DirectoryId(directory),
                RingPoint(point),
                host,
                address,
                Incarnation(incarnation),
            )
            if not (why := fault_in(node)):
                return node
            raise ValueError(why)
    raise ValueError("an entry of the address book is none")


class KeptRing:
    """What this broker has in its file, and what waits until more is durable."""

    def __init__(self, environment: Environment, data_directory: str) -> None:
        self.content = StoredRing()
        """What was stored last, and what is to be stored with it the next time."""
        self._clock = environment.clock
        self._store = RingStore(environment.disk, data_directory)
        self._waiting: list[Callable[[], None]] = []
        self._has_waiting = trio.Event()

    def load(self) -> None:
        """Read the file.

        Raises:
          StorageError: if it is damaged, or can't be read.
        """
        self.content = self._store.load()

    async def store(self, content: StoredRing) -> None:
        """Replace the file durably.

        Raises:
          StorageError: if the disk fails.
        """
        self.content = content
        await self._store.store(content)

    def store_then(self, then: Callable[[], None] = lambda: None) -> None:
        """Store what is known, and do *then*."""
        self._waiting.append(then)
        self._has_waiting.set()

    async def keep_storing(self, newest: Callable[[], StoredRing]) -> None:
        """Store the *newest* content whenever something waits for that, until cancelled."""
        while True:
            await self._has_waiting.wait()
            self._has_waiting = trio.Event()
            waiting, self._waiting = self._waiting, []
            try:
                await self.store(newest())
            except StorageError as error:
                # Only if others die as well does anybody miss it.
                _log.sparing(self._clock).error("book not stored", why=str(error))
            for then in waiting:
                then()
