"""The golden vectors: whole records, fixed for ever, made without the code under test.

They stand in docs/record-format.md too, for whoever writes a client.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from octopi.identifiers import ProducerEpoch, ProducerId, Sequence
from octopi.record import OPAQUE, STRUCTURED, BatchBuilder, encode_opaque

PRODUCER = ProducerId(bytes(range(0xA0, 0xB0)))
NEW_YEAR_2026_MS = 1_767_225_600_000


def from_hex(text: str) -> bytes:
    """Bytes from hexadecimal digits with white space between them."""
    return bytes.fromhex(text)


@attrs.frozen
class Golden:
    """A record and what it means."""

    name: str
    data: bytes = attrs.field(converter=from_hex)
    request_id: bytes = attrs.field(converter=from_hex)
    timestamp_ms: int | None = None
    key: bytes | None = None
    headers: Mapping[str, bytes] = attrs.field(factory=dict)
    value: bytes = b"hello"
    version: int = STRUCTURED
    epoch: int = 1
    sequence: int = 0

    def encode(self) -> bytes:
        """What the code under test makes of the meaning."""
        if self.version == OPAQUE:
            return encode_opaque(self.request_id, self.value)
        builder = BatchBuilder()
        builder.add(self.value, self.key, self.headers, self.timestamp_ms or 0)
        return builder.encode(PRODUCER, ProducerEpoch(self.epoch), Sequence(self.sequence))


GOLDEN = [
    Golden(
        "Version 1",
        """
        0000002a013610a686c10a6aea58dce6d6149e47bc38f68f4cb8a134fb51995a
        b85130c0d44be80a5568656c6c6f
        """,
        "c10a6aea58dce6d6149e47bc38f68f4cb8a134fb51995ab85130c0d44be80a55",
        version=OPAQUE,
    ),
    Golden(
        "Version 1, empty payload",
        """
        00000025010000000075750bcdf66358e6db4aac4af0552f72b81ba893e1cbc7
        cab15528860a7639ce
        """,
        "75750bcdf66358e6db4aac4af0552f72b81ba893e1cbc7cab15528860a7639ce",
        value=b"",
        version=OPAQUE,
    ),
    Golden(
        "Version 2, value only",
        """
        0000003a02576b7752a0a1a2a3a4a5a6a7a8a9aaabacadaeaf00000001000000
        0000000000000000000000019b76daa800ffffffff0000000068656c6c6f
        """,
        "a0a1a2a3a4a5a6a7a8a9aaabacadaeaf00000001000000000000000000000000",
        NEW_YEAR_2026_MS,
    ),
    Golden(
        "Version 2, with a key",
        """
        0000003b026f5e0a79a0a1a2a3a4a5a6a7a8a9aaabacadaeaf00000001000000
        0000000000000000010000019b76daa80100000001000000006b68656c6c6f
        """,
        "a0a1a2a3a4a5a6a7a8a9aaabacadaeaf00000001000000000000000000000001",
        NEW_YEAR_2026_MS + 1,
        key=b"k",
        sequence=1,
    ),
    Golden(
        "Version 2, with headers",
        """
        0000005402623de750a0a1a2a3a4a5a6a7a8a9aaabacadaeaf00000001000000
        0000000000000000020000019b76daa802ffffffff0000001a00057472616365
        0000000200ff00076772c3b6c39f650000000068656c6c6f
        """,
        "a0a1a2a3a4a5a6a7a8a9aaabacadaeaf00000001000000000000000000000002",
        NEW_YEAR_2026_MS + 2,
        headers={"trace": b"\x00\xff", "größe": b""},
        sequence=2,
    ),
    Golden(
        "Version 2, empty key and value",
        """
        000000350256ac611ba0a1a2a3a4a5a6a7a8a9aaabacadaeaf00000001000000
        00000000000000000300000000000000000000000000000000
        """,
        "a0a1a2a3a4a5a6a7a8a9aaabacadaeaf00000001000000000000000000000003",
        0,
        key=b"",
        value=b"",
        sequence=3,
    ),
    Golden(
        "Version 2, greatest numbers",
        """
        0000004702ffc1badea0a1a2a3a4a5a6a7a8a9aaabacadaeafffffffff000000
        00ffffffffffffffffffffffffffffffff000000010000000c00057472616365
        00000001016b68656c6c6f
        """,
        "a0a1a2a3a4a5a6a7a8a9aaabacadaeafffffffff00000000ffffffffffffffff",
        2**64 - 1,
        key=b"k",
        headers={"trace": b"\x01"},
        epoch=2**32 - 1,
        sequence=2**64 - 1,
    ),
]

GOLDEN_LOG = b"".join(golden.data for golden in GOLDEN)
