"""The format of a record: one message as it is stored and sent.

A record has the same bytes on disk, on the wire and at consumers: the producer encodes it in its
final form, and no other program encodes it again.  All numbers are unsigned and in network byte
order.

==========  =====  ====================================================================
field       bytes  meaning
==========  =====  ====================================================================
length      4      bytes that follow this field: 1 + 4 + 32 + n
version     1      1 or 2
checksum    4      CRC-32 (IEEE 802.3, as `zlib.crc32`); see below
request_id  32     identifies the sender, and which of its requests this is
payload     n      see below
==========  =====  ====================================================================

**Version 1**: the payload is opaque, ``request_id`` is ``sha256("host:port:seqnum")``, and the
checksum covers *the payload only*, so that it is the checksum that a producer computed over its
message.  A change of the request id is therefore not detected.  A request id of 32 zero bytes means
that the record has none, and is never recognised as a repetition of another.

**Version 2**, which Octopi's clients write: the checksum covers request id and payload.

==================  =====  ============================================================
request_id          bytes
==================  =====  ============================================================
producer_id         16     random, one for each producer, or made from its name
producer_epoch      4      counts the restarts of that producer id
reserved            4      zero; other values are refused
sequence            8      counts its records in one log, per producer epoch, from 0
==================  =====  ============================================================

==================  =====  ============================================================
payload             bytes
==================  =====  ============================================================
timestamp_ms        8      since 1970-01-01 UTC, by the producer's clock
key_length          4      ``0xFFFFFFFF``: no key
headers_length      4      bytes of the header block
headers             h      per header: name_length 2, name (UTF-8), value_length 4, value
key                 k
value               rest
==================  =====  ============================================================

Neither checksum covers ``length`` and ``version``.  But a changed length moves the end of the bytes
that the checksum covers, so it is detected, and the versions differ in two bits.

A reader of a log walks from length to length.  After an interrupted write the log ends in a torn
tail, an incomplete last record.

`octopi.record` reads and checks records, `octopi.record_encoding` makes them.
"""

from __future__ import annotations

import struct
from typing import Final

from octopi.limits import RECORD_BYTES_MAX

OPAQUE: Final = 1
"""Version 1."""
STRUCTURED: Final = 2
"""Version 2."""
LENGTH_BYTES: Final = 4
HEADER_BYTES: Final = 41
"""length, version, checksum, request id."""
REQUEST_ID_BYTES: Final = 32
NO_REQUEST: Final = bytes(REQUEST_ID_BYTES)
"""The request id of version 1 records whose repetitions are not recognised."""
PRODUCER_ID_BYTES: Final = 16
FIXED_PAYLOAD_BYTES: Final = 16
"""In version 2: the time stamp and the two lengths."""
STRUCTURED_BYTES_MIN: Final = HEADER_BYTES + FIXED_PAYLOAD_BYTES

FRAME: Final = struct.Struct(">IBI")
CHECKSUM_END: Final = FRAME.size
LENGTH_MIN_V1: Final = HEADER_BYTES - LENGTH_BYTES
LENGTH_MIN_V2: Final = STRUCTURED_BYTES_MIN - LENGTH_BYTES
LENGTH_MAX: Final = RECORD_BYTES_MAX - LENGTH_BYTES
BODY: Final = struct.Struct(">20sIQQII")
"""producer id and epoch, reserved, sequence, timestamp_ms, key_length, headers_length"""
SCANNED: Final = struct.Struct(">IBI20sIQQQ")
"""`FRAME` and `BODY` in one, with key_length and headers_length as one number."""
DECODED: Final = struct.Struct(">IBI32sQQ")
"""The same, with the request id in one piece and without its parts."""
PRODUCER: Final = struct.Struct(">16sI")
NO_KEY: Final = 0xFFFFFFFF
VALUE_ONLY: Final = NO_KEY << 32
"""key_length and headers_length of a record with neither key nor headers."""
RESERVED: Final = slice(PRODUCER_ID_BYTES + 4, PRODUCER_ID_BYTES + 8)
"""The reserved bytes of a request id."""
RESERVED_ZERO: Final = bytes(4)
UINT32_MAX: Final = 0xFFFFFFFF
UINT64_MAX: Final = 0xFFFFFFFFFFFFFFFF

assert FRAME.size + REQUEST_ID_BYTES == HEADER_BYTES
assert BODY.size == REQUEST_ID_BYTES + FIXED_PAYLOAD_BYTES
assert SCANNED.size == DECODED.size == STRUCTURED_BYTES_MIN
