"""Seals: the register's proofs of its own decisions, which it checks when brokers report them.

The register makes a secret when it forms its cluster, keeps it in its journal, and never sends it.
The decisions that it sends to brokers carry a seal: a message authentication code (BLAKE2b with a
key, RFC 7693) under that secret.  Brokers store the seals and send them back when they join.

If a broker reports a decision that is newer than the journal, the seal tells the register what
happened.  With a valid seal, the register took the decision itself, so the journal is an older
copy.  Without one, the broker made it up.

A register whose disk was lost has another secret, and can't check seals of the time before.
"""

from __future__ import annotations

from hashlib import blake2b
from hmac import compare_digest

import attrs

from octopi.identifiers import BrokerId
from octopi.limits import SEAL_BYTES_MAX
from octopi.wire.messages import PartitionRecord, RegisterGeneration, TopicRecord


class Seals:
    """Seals things with a secret, and checks them."""

    def __init__(self, secret: str) -> None:
        """*secret*: hexadecimal digits; empty: nothing is sealed, and no seal is valid."""
        self._key = bytes.fromhex(secret)

    def of_partition(self, record: PartitionRecord) -> PartitionRecord:
        """*record*, sealed."""
        return attrs.evolve(record, seal=self._partition(record))

    def knows_partition(self, record: PartitionRecord) -> bool:
        """Whether the seal of *record* is valid."""
        return self._is_valid(record.seal, self._partition(record))

    def of_topic(self, record: TopicRecord) -> TopicRecord:
        """*record*, sealed."""
        return attrs.evolve(record, seal=self._topic(record))

    def knows_topic(self, record: TopicRecord) -> bool:
        """Whether the seal of *record* is valid."""
        return self._is_valid(record.seal, self._topic(record))

    def of_life(self, life: RegisterGeneration) -> RegisterGeneration:
        """*life*, sealed."""
        return attrs.evolve(life, seal=self._life(life))

    def knows_life(self, life: RegisterGeneration) -> bool:
        """Whether the seal of *life* is valid: then that start of the register had the same
        secret."""
        return self._is_valid(life.seal, self._life(life))

    def credential(self, broker: BrokerId) -> str:
        """The credential with which a broker proves that the register gave it the id *broker*."""
        return self._seal("broker", broker)

    def knows_broker(self, broker: BrokerId, credential: str) -> bool:
        """Whether *credential* was given with the id *broker*."""
        return self._is_valid(credential, self.credential(broker))

    def stream_key(self, one: BrokerId, other: BrokerId) -> str:
        """The stream key of the brokers *one* and *other*, which only these two are sent."""
        return self._seal("stream", min(one, other), max(one, other))

    def _partition(self, record: PartitionRecord) -> str:
        plain = attrs.evolve(record, seal="")
        return self._seal("partition", *attrs.astuple(plain))

    def _topic(self, record: TopicRecord) -> str:
        plain = attrs.evolve(record, seal="")
        *words, generations = attrs.astuple(plain)
        # A topic that never had another generation has the seal that earlier versions gave it.
        return self._seal("topic", *words, *([generations] if generations else []))

    def _life(self, life: RegisterGeneration) -> str:
        return self._seal("life", life.generation, life.nonce)

    def _seal(self, *words: object) -> str:
        """The code of *words*, which are integers, texts, and lists and tuples of them: their
        notation in Python is different for different words."""
        if not self._key:
            return ""
        return blake2b(
            repr(words).encode(), key=self._key, digest_size=SEAL_BYTES_MAX // 2
        ).hexdigest()

    @staticmethod
    def _is_valid(seal: str, right: str) -> bool:
        return bool(right) and compare_digest(seal.encode(), right.encode())
