"""What is left of the ring in a broker whose cluster has a register again: the file ``ring`` of its
data directory, with the last record of the cluster (`octopi.ring.ending`)."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from octopi.environment import Disk
from octopi.errors import ConnectionLostError, NotReadyError, StorageError
from octopi.roles.answers import refuse
from octopi.transport.connection import Connection

if TYPE_CHECKING:
    from octopi.wire.agreement import ValueChosen


def load_ended_ring(disk: Disk, data_directory: str) -> ValueChosen | None:
    """The last record of the cluster to which the broker of *data_directory* belongs, if the
    cluster had no register and has one now; None: anything else.

    Raises:
      StorageError: if the file is damaged, or can't be read.
    """
    try:
        disk.read_file(f"{data_directory}/ring")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError(f"{data_directory}/ring can't be read: {error.strerror}") from error
    from octopi.ring.cluster_record import decode_cluster  # most brokers never need them
    from octopi.roles.broker.ring.store import RingStore

    chosen = RingStore(disk, data_directory).load().cluster
    if chosen is None:
        return None
    ending = decode_cluster(chosen.value.content).ending
    return chosen if ending is not None and ending.is_over else None


def registers_of(disk: Disk, data_directory: str) -> tuple[str, ...]:
    """The addresses of the registers to which the brokers have handed their cluster over; empty:
    they haven't, as far as the broker of *data_directory* knows.

    Raises:
      StorageError: see `load_ended_ring`.
    """
    chosen = load_ended_ring(disk, data_directory)
    if chosen is None:
        return ()
    from octopi.ring.cluster_record import decode_cluster

    ending = decode_cluster(chosen.value.content).ending
    assert ending is not None
    return ending.registers


class EndedRingSession:
    """A connection of a broker that still is in the ring, or wants to be."""

    def __init__(self, connection: Connection, ended: ValueChosen) -> None:
        self._connection = connection
        self._ended = ended

    def handle(self, message: object) -> None:
        """Tell the other broker that there is a register."""
        with contextlib.suppress(ConnectionLostError):
            self._connection.post(self._ended)
            if isinstance(request := getattr(message, "request", None), int):
                refuse(self._connection, request, NotReadyError("this cluster has a register"))

    def token_refreshed(self) -> None:
        """Does nothing: the endpoint takes no fresh tokens."""

    def closed(self) -> None:
        """The connection has ended."""
