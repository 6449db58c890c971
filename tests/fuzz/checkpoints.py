"""Small files that a node reads when it starts: who it is, what a replica promised, which journal
is in force, what was decided of partitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final
from zlib import crc32

import attrs
import cbor2
from hypothesis import strategies as st

from octopi.environment import Environment
from octopi.errors import StorageError
from octopi.identifiers import BrokerId
from octopi.operating_system import SystemClock, SystemRandomness
from octopi.replication.effects import ReplicaState
from octopi.roles.broker.cluster_metadata import ClusterMetadata
from octopi.roles.broker.identity import BrokerIdentity, stored_identity
from octopi.roles.broker.replica_state import stored_state
from octopi.storage import checkpoint
from octopi.storage.journal import InForce, journal_in_force
from octopi.wire.codec import fault_in
from octopi.wire.messages import PartitionRecord, RegisterGeneration
from tests.fuzz.target import Target
from tests.kit.disk import MemoryDisk
from tests.kit.links import MemoryNet
from tests.strategies import instances

_VERSION: Final = checkpoint.VERSION.to_bytes(4, "big")


def sealed(content: bytes) -> bytes:
    """A checkpoint with *content*, whose checksum is right."""
    checksum = crc32(content, crc32(_VERSION)).to_bytes(4, "big")
    return checkpoint.MAGIC + _VERSION + checksum + content


def check(data: bytes) -> bool:
    """It is tried as a file, and as the content of one that is whole."""
    _check_file(data)
    return _check_file(sealed(data))


def _check_file(data: bytes) -> bool:
    """Whether it is a checkpoint."""
    disk = MemoryDisk()
    disk.make_directory("data")
    environment = Environment(SystemClock(), MemoryNet(), disk, SystemRandomness())
    disk.plant("data/x", data)
    for check_reading in _READINGS:
        said = "data/x"
        try:
            check_reading(environment)
        except StorageError as error:
            said = str(error)
        assert "data/x" in said, "the error names no file"
        assert len(said) < 2000, "the error repeats much of what is in the file"
    assert disk.files() == {"data/x": data}, "reading changed it"
    try:
        return checkpoint.load(disk, "data/x") is not None
    except StorageError:
        return False


def _check_identity(environment: Environment) -> None:
    identity = stored_identity(environment, "data/x")
    if identity is not None:
        following = identity.next_incarnation(BrokerId(1), "nonce")
        assert following.incarnation == identity.incarnation + 1
        assert all(isinstance(one, str) for one in following.ancestors)
        cbor2.dumps(attrs.asdict(following))


def _check_state(environment: Environment) -> None:
    state = stored_state(environment, "data/x")
    assert state.record is None or not fault_in(state.record)
    assert state.promised >= 0
    assert state.log_epoch >= 0
    assert isinstance(state.intact, bool)


def _check_table(environment: Environment) -> None:
    table = ClusterMetadata(environment, "data/x")
    table.load()
    assert not any(fault_in(one) for one in table.partitions.values())
    assert all(isinstance(url, str) for url in table.addresses.values())


def _check_journal(environment: Environment) -> None:
    found = journal_in_force(environment.disk, "data/x")
    assert found.journal >= 0
    assert found.flushed >= 0
    assert isinstance(found.page_cache, str)


_READINGS: Final[list[Callable[[Environment], None]]] = [
    _check_identity,
    _check_state,
    _check_table,
    _check_journal,
]


def _content(value: Any) -> bytes:  # noqa: ANN401
    return cbor2.dumps(attrs.asdict(value))


_COUNTS: Final = st.integers(0, 100)
_RECORDS: Final[st.SearchStrategy[Any]] = instances(PartitionRecord)

TARGET = Target(
    "checkpoints",
    "any file is left as it is and refused with an error that names it, or says what its owner "
    "can go on with",
    st.one_of(
        st.builds(
            BrokerIdentity,
            st.just("c" * 16),
            st.none() | _COUNTS,
            _COUNTS,
            st.just("nonce"),
            st.just("boot"),
            st.just([]) | st.just(["a", "b"]),
            st.none() | instances(RegisterGeneration),
        ).map(_content),
        st.builds(
            ReplicaState, _COUNTS, st.booleans(), log_epoch=_COUNTS, record=st.none() | _RECORDS
        ).map(_content),
        st.builds(InForce, _COUNTS, _COUNTS, st.just("boot")).map(_content),
        st.lists(_RECORDS, max_size=2).map(
            lambda records: cbor2.dumps(
                {
                    "partitions": [attrs.asdict(one) for one in records],
                    "addresses": {1: "ws://a:1"},
                }
            )
        ),
    ),
    check,
    (
        "octopi/storage/checkpoint.py",
        "octopi/roles/broker/replica_state.py",
        "octopi/roles/broker/identity.py",
        "octopi/roles/broker/cluster_metadata.py",
    ),
    words=(
        *(cbor2.dumps(one) for one in ("x", "", b"x", [], {}, [1], {1: 1}, None, True, -1, 0.5)),
        *(cbor2.dumps(2**bits + more) for bits in (53, 62, 63, 64) for more in (-1, 0)),
        *(
            cbor2.dumps(field.name)
            for cls in (BrokerIdentity, ReplicaState, InForce, PartitionRecord, RegisterGeneration)
            for field in attrs.fields(cls)
        ),
        b"\xa0", b"\xa1", b"\x80", b"\x81", b"\x9f", b"\xbf", b"\xff", b"\xc2\x41\x01",
        b"\xd8\x1c\x81", b"\xd8\x1d\x00", b"\xf9\x7e\x00", b"\x9b" + b"\xff" * 8,
        b"\x5b\x7f" + b"\xff" * 7,
    ),
)  # fmt: skip
