"""What a broker has of a register that handed its cluster over: the file ``hand_over`` of its data
directory (`docs/decisions/0116-a-register-hands-its-cluster-over-by-one-entry.md`).

A broker with that file joins no register any more.  It is never removed: acceptors compute from it
what counts as accepted before all ballots.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from octopi.environment import Disk, Environment
from octopi.errors import RefusedError, Status, StorageError
from octopi.identifiers import DirectoryId
from octopi.limits import ACCEPTOR_SNAPSHOT_ENTRIES
from octopi.roles.broker.ended_ring import load_ended_ring
from octopi.roles.broker.identity import BrokerIdentity
from octopi.storage import checkpoint
from octopi.storage.directories import make_durable_directory

if TYPE_CHECKING:
    from octopi.ring.hand_over import HandOver

_FILE: Final = "hand_over"

ANNOUNCED_FILE: Final = "hand_over_announced"
"""See `octopi.roles.broker.announced_hand_over`."""


async def store_hand_over(disk: Disk, data_directory: str, entries: list[bytes]) -> None:
    """Store *entries*, of which `hand_over_of` was made, durably.

    Raises:
      StorageError: if the disk fails.
    """
    await checkpoint.store(disk, f"{data_directory}/{_FILE}", {"entries": entries})


def load_entries(environment: Environment, data_directory: str) -> list[bytes]:
    """The entries that `store_hand_over` has stored; empty: none.

    Raises:
      StorageError: if the file is damaged, or can't be read.
    """
    fields = checkpoint.load(environment.disk, f"{data_directory}/{_FILE}")
    return [] if fields is None else list(fields["entries"])


def is_taken_over(disk: Disk, data_directory: str) -> bool:
    """Whether a register has handed over to the broker of *data_directory*.

    Raises:
      StorageError: if the directory can't be read.
    """
    return _has_file(disk, f"{data_directory}/{_FILE}")


def _has_file(disk: Disk, path: str) -> bool:
    try:
        disk.read_file(path)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise StorageError(f"{path} can't be read: {error.strerror}") from error
    return True


def load_hand_over(environment: Environment, data_directory: str) -> HandOver | None:
    """What a register has handed over to the broker of *data_directory*; None: nothing.

    Raises:
      StorageError: if the file is damaged, or can't be read.
    """
    path = f"{data_directory}/{_FILE}"
    fields = checkpoint.load(environment.disk, path)
    if fields is None:
        return None
    try:
        return _hand_over(fields)
    except ValueError as error:
        raise StorageError(
            f"{path} is damaged: {error}; put it back from another broker, where it is the same"
        ) from error


def _hand_over(fields: dict[str, Any]) -> HandOver:
    match fields:
        case {"entries": [*entries]} if all(isinstance(one, bytes) for one in entries):
            return hand_over_of(entries)
    raise ValueError("a field is missing, or of another type")


def has_announcement(disk: Disk, data_directory: str) -> bool:
    """Whether a hand-over was ever announced to the broker of *data_directory*
    (`octopi.roles.broker.announced_hand_over`).

    Raises:
      StorageError: if the directory can't be read.
    """
    return _has_file(disk, f"{data_directory}/{ANNOUNCED_FILE}")


def hand_over_of(entries: list[bytes]) -> HandOver:
    """What these *entries* hand over; see `octopi.ring.hand_over.handed_over_entries`.

    Raises:
      ValueError: if they are none.
    """
    from octopi.ring.hand_over import HandOver  # most brokers never need it
    from octopi.roles.register_entries import decode

    try:
        decoded = [decode(one) for one in entries]
    except Exception as error:  # the codec raises several classes
        raise ValueError(f"an entry can't be read ({type(error).__name__})") from error
    return HandOver(decoded)


def refuse_without_register(environment: Environment, data_directory: str) -> None:
    """Refuse to run the broker of *data_directory* with a register, if it belongs to a cluster
    without one.

    Raises:
      RefusedError: WRONG_CLUSTER, if it does.
      StorageError: if the directory can't be read.
    """
    if load_ended_ring(environment.disk, data_directory) is not None:
        return  # it has a register again
    for name in (_FILE, "ring"):
        try:
            environment.disk.read_file(f"{data_directory}/{name}")
        except FileNotFoundError:
            continue
        except OSError as error:
            raise StorageError(
                f"{data_directory}/{name} can't be read: {error.strerror}"
            ) from error
        raise RefusedError(
            f"the broker in {data_directory} belongs to a cluster without a register: start it "
            "with --join and the addresses of other brokers, and without --register",
            Status.WRONG_CLUSTER,
        )


async def acceptor_number(environment: Environment, data_directory: str) -> DirectoryId:
    """The number of the acceptor's journal in *data_directory*, which is begun if there is none.

    Raises:
      StorageError: if the disk fails, or the journal is damaged.
    """
    from octopi.agreement.entries import DirectoryEntry  # only brokers with --join need it
    from octopi.roles.acceptor_journal import ACCEPTOR_ENTRIES
    from octopi.storage.owned_journal import open_owned_journal

    path = f"{data_directory}/acceptor"
    await make_durable_directory(environment.disk, path)
    journal, number, _ = await open_owned_journal(
        environment,
        path,
        ACCEPTOR_ENTRIES,
        DirectoryEntry,
        snapshot_entries=ACCEPTOR_SNAPSHOT_ENTRIES,
    )
    await journal.close()
    return number


def check_takes_over(
    hand_over: HandOver, identity: BrokerIdentity, directory: DirectoryId, data_directory: str
) -> None:
    """Check that the broker *identity*, whose acceptor has the number *directory*, is one of those
    that were handed the cluster.

    Raises:
      RefusedError: WRONG_CLUSTER or BROKER_FENCED, if it is not.
      StorageError: if its acceptor is another one than the register knew.
    """
    record = hand_over.record
    if identity.cluster not in {"", record.cluster}:
        raise RefusedError(
            f"the broker belongs to cluster {identity.cluster}, and the register handed over "
            f"{record.cluster}",
            Status.WRONG_CLUSTER,
        )
    node = None if identity.broker is None else hand_over.node(identity.broker)
    if node is None:
        raise RefusedError(
            f"broker {identity.broker} is not among those that took the cluster over: start one "
            "with an empty data directory and --join",
            Status.BROKER_FENCED,
        )
    if node.directory != directory:
        raise StorageError(
            f"{data_directory}/acceptor is another one than when the cluster was handed over: put "
            "it back, or start a broker with an empty data directory and --join"
        )
