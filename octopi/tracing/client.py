"""The steps of producers and consumers."""

from __future__ import annotations

from octopi.identifiers import Epoch, Offset, PartitionId
from octopi.tracing.step import Step, part, step


@part
class ClientStep(Step):
    """A step about a log, as a client knows it."""

    topic: str
    partition: PartitionId


@part
class SentBatchStep(ClientStep):
    """A step about an attempt to send a batch."""

    producer: bytes | None
    producer_epoch: int | None
    sequence: int
    count: int
    attempt: int


@part
class ReadStep(ClientStep):
    """A step about a range of a log."""

    offset: Offset
    end: int


@part
class DeliveryStep(ReadStep):
    """A step about records that a consumer gets."""

    highwater: Offset
    credit: int


@step("C1a producer sends a batch")
class C1Sending(SentBatchStep):
    pass


@step("C1b producer sent a batch")
class C1Sent(SentBatchStep):
    pass


@step("C2a producer sends a batch again")
class C2Repeating(SentBatchStep):
    pass


@step("C2b producer sent a batch again")
class C2Repeated(SentBatchStep):
    pass


@step("C3 producer got a receipt")
class C3Receipt(SentBatchStep):
    offset: Offset
    duplicate: bool
    records_epoch: Epoch


@step("C4 producer was refused")
class C4Refused(SentBatchStep):
    status: int
    reason: str


@step("C5 producer looks for the leader elsewhere")
class C5Redirected(ClientStep):
    address: str
    why: str


@step("C6 producer reached the leader")
class C6Found(ClientStep):
    address: str


@step("C7 producer gave a batch up")
class C7GaveUp(ClientStep):
    sequence: int | None
    count: int
    why: str


@step("C8a consumer subscribes")
class C8Subscribing(ClientStep):
    offset: Offset
    peer: str


@step("C8b consumer subscribed")
class C8Subscribed(ClientStep):
    topic_id: str
    epoch: Epoch
    highwater: Offset


@step("C9 consumer lost its broker and goes on elsewhere")
class C9Resuming(ClientStep):
    offset: Offset
    why: str


@step("C10a consumer gets records")
class C10Delivering(DeliveryStep):
    pass


@step("C10b consumer got records")
class C10Delivered(DeliveryStep):
    pass


@step("C11 program took records")
class C11Taken(ReadStep):
    pass


@step("C12 consumer leaves out what retention removed")
class C12Skipped(ReadStep):
    pass


@step("C13 consumer can't go on")
class C13Ended(ClientStep):
    why: str


@step("C14 consumer finds that what it read is gone")
class C14Forked(ClientStep):
    offset: int | None
    end: int | None


@step("C15 named producer has begun an epoch")
class C15Began(ClientStep):
    producer: bytes
    producer_epoch: int
    end: int
    """What is stored of earlier epochs lies before this offset."""
