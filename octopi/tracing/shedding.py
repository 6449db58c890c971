"""The steps by which leaderships move because their leaders have more to do than others.

The move itself is an ordinary change of the leader (E1 to E12), between 3a and 3b.
"""

from __future__ import annotations

from octopi.coordination.shedding import Move
from octopi.tracing.common import BrokerStep
from octopi.tracing.step import Step, part, step
from octopi.wire.messages import PartitionLoad


@part
class ReportStep(Step):
    """A step about the load that a broker reports."""

    loads: list[PartitionLoad]


@part
class ShedStep(Step):
    """A step about a leadership that is moved."""

    move: Move


@step("H1a broker reports the load of what it leads")
class H1Reporting(ReportStep):
    pass


@step("H1b broker reported the load of what it leads")
class H1Reported(ReportStep):
    pass


@step("H2 register hears the load of a broker")
class H2Heard(BrokerStep):
    loads: list[PartitionLoad]


@step("H3a register moves a leadership to a broker with less to do")
class H3Moving(ShedStep):
    pass


@step("H3b register moved a leadership to a broker with less to do")
class H3Moved(ShedStep):
    pass


@step("H4 register finds partitions that are too much for one broker")
class H4Hot(Step):
    partitions: list[int]
