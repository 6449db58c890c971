"""The steps of producing a batch: from the leader's log, over its followers, to the receipt."""

from __future__ import annotations

from octopi.errors import Status
from octopi.identifiers import BrokerId, Epoch, Offset
from octopi.tracing.common import CommitStep, MarkStep, ReplicaLogStep
from octopi.tracing.step import part, step


@part
class BatchStep(ReplicaLogStep):
    """A step about a producer's batch."""

    producer: bytes | None
    producer_epoch: int | None
    sequence: int | None
    count: int


@part
class PlacedBatchStep(BatchStep):
    """A step about a producer's batch, and its place in the log."""

    offset: Offset
    end: int


@part
class FollowerMarkStep(ReplicaLogStep):
    """A step about the highwater mark that a leader sends to a follower."""

    follower: BrokerId
    highwater: Offset


@part
class ForwardStep(FollowerMarkStep):
    """A step about records that a leader sends to a follower."""

    offset: Offset
    end: int
    records_epoch: Epoch


@part
class ReplicationStep(ReplicaLogStep):
    """A step about records that a follower appends."""

    offset: Offset
    end: int
    records_epoch: Epoch


@part
class AcknowledgementStep(ReplicaLogStep):
    """A step about a follower's acknowledgement."""

    attempt: int
    end: int
    leader: BrokerId


@part
class ReceiptStep(PlacedBatchStep):
    """A step about a producer's receipt."""

    records_epoch: Epoch
    duplicate: bool
    highwater: Offset
    in_sync: list[BrokerId]
    version: int
    proposed: list[BrokerId] | None


@part
class RefusalStep(BatchStep):
    """A step about the refusal of a producer's batch."""

    status: Status
    reason: str


@step("P1 leader received the batch")
class P1Received(BatchStep):
    pass


@step("P2a leader appends the batch")
class P2Appending(PlacedBatchStep):
    pass


@step("P2b leader appended the batch")
class P2Appended(PlacedBatchStep):
    pass


@step("P2c leader forwards records to a follower")
class P2Forwarding(ForwardStep):
    pass


@step("P2d leader forwarded records to a follower")
class P2Forwarded(ForwardStep):
    pass


@step("P3a follower appends the records")
class P3Replicating(ReplicationStep):
    pass


@step("P3b follower appended the records")
class P3Replicated(ReplicationStep):
    pass


@step("P4a follower acknowledges its log's end")
class P4Acknowledging(AcknowledgementStep):
    pass


@step("P4b follower acknowledged its log's end")
class P4Acknowledged(AcknowledgementStep):
    pass


@step("P5a leader heard an acknowledgement")
class P5Heard(ReplicaLogStep):
    follower: BrokerId
    end: int


@step("P5b leader has the acknowledgements of all that are in sync")
class P5InSync(CommitStep):
    pass


@step("P6a leader advances the highwater mark")
class P6Committing(CommitStep):
    pass


@step("P6b leader advanced the highwater mark")
class P6Committed(CommitStep):
    pass


@step("P6c leader tells a follower the highwater mark")
class P6Telling(FollowerMarkStep):
    pass


@step("P6d leader told a follower the highwater mark")
class P6Told(FollowerMarkStep):
    pass


@step("P7a leader acknowledges the producer")
class P7Acknowledging(ReceiptStep):
    pass


@step("P7b leader acknowledged the producer")
class P7Acknowledged(ReceiptStep):
    pass


@step("P8a follower advances its highwater mark")
class P8Following(MarkStep):
    pass


@step("P8b follower advanced its highwater mark")
class P8Followed(MarkStep):
    pass


@step("P9a leader refuses the producer")
class P9Refusing(RefusalStep):
    pass


@step("P9b leader refused the producer")
class P9Refused(RefusalStep):
    pass
