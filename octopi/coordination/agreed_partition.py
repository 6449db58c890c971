"""What acceptors agree on about a partition, and the bytes of it.

The content of an agreed value (`octopi.agreement.values`) is a CBOR map (RFC 8949).  The keys and
their order are the format, which golden tests check
(``tests/coordination/test_agreed_partition.py``).
"""

from __future__ import annotations

from typing import Final

import attrs
import cbor2
from cattrs.preconf.cbor2 import make_converter

from octopi.identifiers import BrokerId, Epoch, Incarnation
from octopi.model import PartitionRecord
from octopi.stored import partition_fields
from octopi.wire.codec import fault_in


@attrs.frozen
class RegisteredIncarnation:
    """The incarnation of a broker that was admitted last."""

    broker: BrokerId
    incarnation: Incarnation
    nonce: str


@attrs.frozen
class AgreedPartition:
    """The record of a partition, with what its changes are checked against."""

    record: PartitionRecord
    announced: Epoch
    """The highest epoch that was announced; no election uses it, or a lower one, again."""
    incarnations: tuple[RegisteredIncarnation, ...] = ()
    """Of each broker that has checked in, in the order of their ids."""
    min_insync: int = 1
    """The least that a topic in this partition asks for."""
    ending: int = 0
    """The attempt to hand the cluster over to registers (`octopi.ring.ending`) in which nothing
    more is decided about topics here; 0: none."""
    is_closed: bool = False
    """Whether nothing at all is decided in that attempt, but that brokers check in."""

    def incarnation(self, broker: BrokerId) -> RegisteredIncarnation | None:
        """The registered incarnation of *broker*; None: it has not checked in."""
        return next((one for one in self.incarnations if one.broker == broker), None)

    def registered(self, incarnation: RegisteredIncarnation) -> AgreedPartition:
        """The same with *incarnation* in place of its broker's former one."""
        others = [one for one in self.incarnations if one.broker != incarnation.broker]
        known = sorted([*others, incarnation], key=lambda one: one.broker)
        return attrs.evolve(self, incarnations=tuple(known))


_CONVERTER: Final = make_converter(forbid_extra_keys=True)


def encode_partition(agreed: AgreedPartition) -> bytes:
    """The bytes of *agreed*."""
    ending = {"ending": agreed.ending, "is_closed": agreed.is_closed} if agreed.ending else {}
    return cbor2.dumps(
        {
            "record": partition_fields(agreed.record),
            "announced": agreed.announced,
            "incarnations": [attrs.asdict(one) for one in agreed.incarnations],
            "min_insync": agreed.min_insync,
            **ending,
        }
    )


def decode_partition(data: bytes) -> AgreedPartition:
    """The partition with the bytes *data*.

    Raises:
      ValueError: if it is none, or one that can't be decided.
    """
    try:
        agreed = _CONVERTER.loads(data, AgreedPartition)
    except Exception as error:  # cattrs and cbor2 raise several classes
        raise ValueError(f"it is no partition ({type(error).__name__})") from error
    if why := fault_in(agreed.record):
        raise ValueError(why)
    if agreed.announced < agreed.record.epoch:
        raise ValueError("its epoch was never announced")
    if agreed.ending < 0 or (agreed.is_closed and not agreed.ending):
        raise ValueError("it is closed in no attempt to hand the cluster over")
    return agreed
