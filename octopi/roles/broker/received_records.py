"""Checks the records that a producer or a leader sent, before a replica appends them."""

from __future__ import annotations

from octopi.errors import ChecksumError, RefusedError, Status
from octopi.limits import RECORDS_PER_PRODUCE_MAX, RECORDS_PER_REPLICATE_MAX
from octopi.record import Scan, scan
from octopi.replication.producer_sequences import SEALER
from octopi.wire.messages import Replicate


def scan_produced(records: bytes) -> Scan:
    """The scan of the records of a producer: at least one record, all of them valid.

    Raises:
      RefusedError: if there are no records, too many, or invalid ones.
    """
    found = scan(records, RECORDS_PER_PRODUCE_MAX)
    if found.count > RECORDS_PER_PRODUCE_MAX:
        raise RefusedError(
            f"a produce has at most {RECORDS_PER_PRODUCE_MAX} records: send several produces",
            Status.MESSAGE_TOO_LARGE,
        )
    if found.fault is not None:
        changed = isinstance(found.fault, ChecksumError)
        status = Status.RECORD_CHECKSUM if changed else Status.MALFORMED_RECORD
        raise RefusedError(f"record at byte {found.valid_bytes}: {found.fault}", status)
    if not found.count:
        raise RefusedError("a produce without records", Status.MALFORMED_RECORD)
    for run in found.runs:
        if run.producer_id.startswith(SEALER):
            raise RefusedError("no client may use this producer id", Status.MALFORMED_RECORD)
    return found


def scan_replicated(message: Replicate) -> Scan:
    """The scan of the records of a leader: perhaps no record, all of them valid.

    Raises:
      RefusedError: if there are too many records, or invalid ones, which changed on the way.
    """
    found = scan(message.records, RECORDS_PER_REPLICATE_MAX)
    if found.count > RECORDS_PER_REPLICATE_MAX:
        raise RefusedError(
            f"a leader sends at most {RECORDS_PER_REPLICATE_MAX} records at a time",
            Status.MESSAGE_TOO_LARGE,
        )
    if found.fault is not None:
        raise RefusedError(
            f"records from offset {message.offset}: {found.fault}", Status.RECORD_CHECKSUM
        )
    return found
