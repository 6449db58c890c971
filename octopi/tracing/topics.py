"""The steps with which topics are created and deleted."""

from __future__ import annotations

from octopi.identifiers import PartitionId
from octopi.tracing.common import BrokerStep, LogStep, ReplicaLogStep
from octopi.tracing.step import Step, part, step
from octopi.wire.messages import TopicOptions, TopicRecord


@part
class TopicStep(Step):
    """A step about a topic."""

    topic: str
    topic_id: str


@part
class PlacedTopicStep(TopicStep):
    """A step about a topic and its partitions."""

    partitions: list[PartitionId]


@part
class AlteredTopicStep(TopicStep):
    """A step about the new options of a topic."""

    options: TopicOptions


@part
class BrokerTopicsStep(BrokerStep):
    """A step about topics that the register sends to a broker."""

    topics: list[TopicRecord]


@part
class RemovedTopicStep(BrokerStep):
    """A step about a topic that a broker removes."""

    topic: str
    topic_id: str


@step("T1a register makes a topic")
class T1Creating(PlacedTopicStep):
    pass


@step("T1b register made durable that there is a topic")
class T1Created(PlacedTopicStep):
    pass


@step("T2a register tells a broker its topics")
class T2Telling(BrokerTopicsStep):
    pass


@step("T2b broker confirmed its topics")
class T2Confirmed(BrokerTopicsStep):
    pass


@step("T3a broker makes a log")
class T3Making(LogStep):
    pass


@step("T3b broker made a log")
class T3Made(LogStep):
    pass


@step("T4 topic is on its brokers")
class T4Installed(PlacedTopicStep):
    pass


@step("T5a register deletes a topic")
class T5Deleting(TopicStep):
    pass


@step("T5b register made durable that a topic is gone")
class T5Deleted(TopicStep):
    pass


@step("T6a register tells a broker to remove a topic")
class T6Telling(RemovedTopicStep):
    pass


@step("T6b broker confirmed that it removed a topic")
class T6Confirmed(RemovedTopicStep):
    pass


@step("T7a broker removes a log")
class T7Removing(ReplicaLogStep):
    pass


@step("T7b broker removed a log")
class T7Removed(ReplicaLogStep):
    pass


@step("T8a register alters a topic")
class T8Altering(AlteredTopicStep):
    pass


@step("T8b register made durable that a topic is altered")
class T8Altered(AlteredTopicStep):
    pass


@step("T9a broker alters a log")
class T9Altering(LogStep):
    options: TopicOptions


@step("T9b broker altered a log")
class T9Altered(LogStep):
    options: TopicOptions
