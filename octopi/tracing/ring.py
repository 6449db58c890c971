"""The steps of brokers of a cluster without a register: what their acceptors promise and accept,
and what they hear of chosen values.
"""

from __future__ import annotations

from collections.abc import Sequence

from octopi.agreement.entries import AcceptorEntry
from octopi.identifiers import BrokerId, DirectoryId, InstanceId
from octopi.tracing.step import Step, part, step
from octopi.wire.agreement import ToProposer, ValueChosen


@part
class InstanceStep(Step):
    """A step about an agreed value."""

    instance: InstanceId


@step("A1 acceptor takes part as that of a broker")
class A1Began(Step):
    broker: BrokerId
    directory: DirectoryId


@step("A2a acceptor stores what it promises or accepts")
class A2Storing(InstanceStep):
    entries: Sequence[AcceptorEntry]


@step("A2b acceptor answers a proposer")
class A2Answering(InstanceStep):
    message: ToProposer


@step("A3 acceptor hears that a value is chosen")
class A3Heard(InstanceStep):
    message: ValueChosen
