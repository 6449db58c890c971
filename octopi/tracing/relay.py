"""The steps of relays (`octopi.relay`: topics in memory), in the order of a transaction's life.

They are those of one relay partition at one broker.  ``relay_partition`` is its number: relay
partitions have numbers of their own, so it isn't called ``partition``.
"""

from __future__ import annotations

from collections.abc import Sequence

from octopi.identifiers import BrokerId, Offset, PartitionId, TopicId
from octopi.relay.digest import Digest
from octopi.relay.messages import (
    RelayAnswer,
    RelayAsk,
    RelayCompare,
    RelayCompared,
    RelayFetch,
    RelayIncoming,
    RelayPart,
    RelayRefused,
    RelayStart,
    RelayStatus,
    RelaySubmit,
    RelaySubmitted,
    RelayVote,
    RelayWritten,
    StreamPoints,
)
from octopi.relay.receiver import ProduceOutcome
from octopi.relay.timelines import RelayEpoch
from octopi.tracing.step import Step, part, step


@part
class RelayStep(Step):
    """A step of *relay*, the broker, in one relay partition."""

    relay_partition: PartitionId
    relay: BrokerId


@part
class RelayStreamStep(RelayStep):
    """A step about one stream."""

    topic_id: TopicId


# --- channels: incoming, write, receipts ---------------------------------------------------


@step("M1 receiver takes what a producer sends")
class M1Received(RelayStreamStep):
    count: int


@part
class SubmitStep(RelayStep):
    """A receiver submits a transaction to *to*, the sequencer as far as it knows."""

    to: BrokerId
    message: RelaySubmit


@step("M2a receiver submits a transaction")
class M2Submitting(SubmitStep):
    pass


@step("M2b receiver has submitted a transaction")
class M2Submitted(SubmitStep):
    pass


@part
class PublishStep(RelayStep):
    """The sequencer publishes a transaction with its place to the member *to*."""

    to: BrokerId
    message: RelayIncoming


@step("M3a sequencer publishes a transaction")
class M3Publishing(PublishStep):
    pass


@step("M3b sequencer has published a transaction")
class M3Published(PublishStep):
    pass


@part
class PlacedStep(RelayStep):
    """The sequencer tells the receiver *to* where a transaction is, or why it is nowhere."""

    to: BrokerId
    message: RelaySubmitted | RelayRefused


@step("M4a sequencer answers a receiver")
class M4Placing(PlacedStep):
    pass


@step("M4b sequencer has answered a receiver")
class M4Placed(PlacedStep):
    pass


@part
class WrittenStep(RelayStep):
    """A member tells *to*, which may be itself, how far it has written a stream."""

    to: BrokerId
    message: RelayWritten


@step("M5a relay tells how far it has written")
class M5Telling(WrittenStep):
    pass


@step("M5b relay has told how far it has written")
class M5Told(WrittenStep):
    pass


@step("M6 relay moves its highwater mark")
class M6Moved(RelayStreamStep):
    epoch: RelayEpoch
    highwater: Offset
    digest: Digest | None


@part
class OutcomeStep(RelayStreamStep):
    """A receiver answers a producer."""

    outcome: ProduceOutcome


@step("M7a receiver answers a producer")
class M7Answering(OutcomeStep):
    pass


@step("M7b receiver has answered a producer")
class M7Answered(OutcomeStep):
    pass


@step("M8 relay hands records to a reader")
class M8Delivering(RelayStreamStep):
    offset: Offset
    end: Offset
    digest: Digest


# --- epochs and timelines ------------------------------------------------------------------


@step("M9 relay enters a status")
class M9Entered(RelayStep):
    status: RelayStatus
    epoch: RelayEpoch
    members: Sequence[BrokerId]
    version: int


@part
class RelayVoteStep(RelayStep):
    """A member votes for an epoch, of which *to* is the sequencer."""

    to: BrokerId
    message: RelayVote


@step("M10a relay votes for an epoch")
class M10Voting(RelayVoteStep):
    pass


@step("M10b relay has voted for an epoch")
class M10Voted(RelayVoteStep):
    pass


@part
class StartStep(RelayStep):
    """A relay tells *to* that an epoch has begun, of which it is a part."""

    to: BrokerId
    message: RelayStart


@step("M11a relay tells that an epoch has begun")
class M11Starting(StartStep):
    pass


@step("M11b relay has told that an epoch has begun")
class M11Started(StartStep):
    pass


@part
class GenerationStep(RelayStep):
    """A relay stores the greatest generation of which it has ever been a part."""

    generation: int


@step("M12a relay stores its generation")
class M12Storing(GenerationStep):
    pass


@step("M12b relay has stored its generation")
class M12Stored(GenerationStep):
    pass


@step("M13 relay gives up what it holds")
class M13Emptied(RelayStep):
    emptied: int


@step("M14 relay becomes part of another timeline")
class M14Changed(RelayStep):
    epoch: RelayEpoch
    founders: Sequence[BrokerId]
    streams: StreamPoints


@part
class RelayAskStep(RelayStep):
    """A relay asks *to* to take part in its epoch."""

    to: BrokerId
    message: RelayAsk


@step("M15a relay asks to take part")
class M15Asking(RelayAskStep):
    pass


@step("M15b relay has asked to take part")
class M15Asked(RelayAskStep):
    pass


@part
class RelayAnswerStep(RelayStep):
    """A member answers *to*, which joins."""

    to: BrokerId
    message: RelayAnswer


@step("M16a relay answers one that joins")
class M16Answering(RelayAnswerStep):
    pass


@step("M16b relay has answered one that joins")
class M16Answered(RelayAnswerStep):
    pass


# --- anti-entropy --------------------------------------------------------------------------


@part
class RepairStep(RelayStep):
    """A relay that repairs a stream compares it with that of *to*, or fetches from there."""

    to: BrokerId
    message: RelayCompare | RelayFetch


@step("M17a relay asks for what it lacks")
class M17Asking(RepairStep):
    pass


@step("M17b relay has asked for what it lacks")
class M17Asked(RepairStep):
    pass


@part
class HelpStep(RelayStep):
    """A relay answers *to*, which repairs a stream."""

    to: BrokerId
    message: RelayCompared | RelayPart


@step("M18a relay sends what another one lacks")
class M18Helping(HelpStep):
    pass


@step("M18b relay has sent what another one lacks")
class M18Helped(HelpStep):
    pass


@step("M19 relay misses what its readers have not got")
class M19Gap(RelayStreamStep):
    start: Offset
