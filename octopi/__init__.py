"""Octopi: a WebSocket-native replicated log.

The names in this module are the public client library::

    async with octopi.connect("ws://127.0.0.1:7000") as client:
        async with client.producer() as producer:
            receipt = await producer.send("orders", b"value")
        async with client.consumer("orders", start="earliest") as consumer:
            async for message in consumer:
                print(message.offset, message.value)
"""

import sys
from typing import TYPE_CHECKING

from octopi.version import __version__

if sys.platform == "win32":
    raise ImportError(
        "Octopi runs on Linux and macOS, not on Windows itself: use it in WSL (wsl --install), "
        "or in a container"
    )

if TYPE_CHECKING:
    from octopi.clients.admin import Admin
    from octopi.clients.answers import (
        BrokerCount,
        BrokerLog,
        BrokerReading,
        ClusterInfo,
        ClusterLoads,
        FetchResult,
        NodeInfo,
        PartitionWork,
    )
    from octopi.clients.client import Client, connect
    from octopi.clients.consuming.consumer import Consumer
    from octopi.clients.consuming.consumer_session import Chunk
    from octopi.clients.consuming.message_batch import MessageBatch
    from octopi.clients.consuming.multi_topic_consumer import LeftTopic, MultiTopicConsumer
    from octopi.clients.consuming.positions import Positions
    from octopi.clients.consuming.start_position import LastMessages, OffsetSpec, Start, last
    from octopi.clients.piping.pipe import Pipe
    from octopi.clients.producing.producer import Producer
    from octopi.clients.producing.receipts import PendingReceipt, Receipt
    from octopi.clients.stored_records import RecordReader, StoredRecords
    from octopi.clients.subscribing.administration import (
        MarkReset,
        SubscribedLogStatus,
        SubscriptionStatus,
    )
    from octopi.clients.subscribing.dealt import DealtBatch, DealtMessage
    from octopi.clients.subscribing.mark_keeper import MarkKeeper
    from octopi.clients.subscribing.queue_subscription import QueueSubscription
    from octopi.clients.subscribing.subscribed_log import SubscribedLog
    from octopi.clients.subscribing.subscription import Subscription
    from octopi.errors import (
        Blame,
        ChecksumError,
        ClosedError,
        ConditionFailedError,
        ConnectionLostError,
        DeliveryError,
        DigestMismatchError,
        HistoryForkedError,
        HistoryLostError,
        InvalidOptionError,
        InvalidTopicError,
        MalformedRecordError,
        MemberFencedError,
        NoQuorumError,
        NotDeliveredError,
        NotReadyError,
        OctopiError,
        OffsetInsideRecordError,
        OffsetOutOfRangeError,
        OutcomeUnknownError,
        ProducerFencedError,
        ProtocolError,
        RecordError,
        RedirectLoopError,
        RefusedError,
        Status,
        StatusMeaning,
        SubscriptionBusyError,
        SubscriptionExistsError,
        TopicExistsError,
        TopicReplacedError,
        UnknownSubscriptionError,
        UnknownTopicError,
        UnreachableError,
    )
    from octopi.identifiers import (
        BrokerId,
        Claim,
        Epoch,
        Incarnation,
        MemberId,
        Offset,
        PartitionId,
        SubscriptionId,
        SubscriptionName,
        TimestampMs,
        TopicId,
        TopicName,
    )
    from octopi.model import SubscriptionDefinition, SubscriptionOptions
    from octopi.position import Anchor, Place, Position
    from octopi.record import Message
    from octopi.wire.messages import (
        BrokerInfo,
        ClusterEvent,
        EventList,
        FoundOffset,
        GenerationInfo,
        LogCount,
        LogInfo,
        LostRange,
        PartitionInfo,
        PartitionRecovery,
        ReadingInfo,
        ReplicaHolding,
        ReplicaTroubleAt,
        SubscriptionMember,
        TopicInfo,
        TopicOptions,
        UnservedTopic,
    )
else:

    def __getattr__(name: str) -> object:
        """Import a public name when it is first used.

        A program that needs one small module of this package doesn't load the whole client.
        """
        if name not in _MODULES:
            raise AttributeError(f"module 'octopi' has no attribute {name!r}")
        from importlib import import_module

        globals()[name] = getattr(import_module(_MODULES[name]), name)
        return globals()[name]


_MODULES = {
    "Admin": "octopi.clients.admin",
    "Anchor": "octopi.position",
    "Blame": "octopi.errors",
    "BrokerCount": "octopi.clients.answers",
    "BrokerId": "octopi.identifiers",
    "BrokerInfo": "octopi.wire.messages",
    "BrokerLog": "octopi.clients.answers",
    "BrokerReading": "octopi.clients.answers",
    "ChecksumError": "octopi.errors",
    "Chunk": "octopi.clients.consuming.consumer_session",
    "Claim": "octopi.identifiers",
    "Client": "octopi.clients.client",
    "ClosedError": "octopi.errors",
    "ClusterEvent": "octopi.wire.messages",
    "ClusterInfo": "octopi.clients.answers",
    "ClusterLoads": "octopi.clients.answers",
    "ConditionFailedError": "octopi.errors",
    "ConnectionLostError": "octopi.errors",
    "Consumer": "octopi.clients.consuming.consumer",
    "DealtBatch": "octopi.clients.subscribing.dealt",
    "DealtMessage": "octopi.clients.subscribing.dealt",
    "DeliveryError": "octopi.errors",
    "Epoch": "octopi.identifiers",
    "EventList": "octopi.wire.messages",
    "FetchResult": "octopi.clients.answers",
    "FoundOffset": "octopi.wire.messages",
    "GenerationInfo": "octopi.wire.messages",
    "DigestMismatchError": "octopi.errors",
    "HistoryForkedError": "octopi.errors",
    "HistoryLostError": "octopi.errors",
    "Incarnation": "octopi.identifiers",
    "InvalidOptionError": "octopi.errors",
    "InvalidTopicError": "octopi.errors",
    "LastMessages": "octopi.clients.consuming.start_position",
    "LeftTopic": "octopi.clients.consuming.multi_topic_consumer",
    "LogCount": "octopi.wire.messages",
    "LogInfo": "octopi.wire.messages",
    "LostRange": "octopi.wire.messages",
    "MalformedRecordError": "octopi.errors",
    "MarkKeeper": "octopi.clients.subscribing.mark_keeper",
    "MarkReset": "octopi.clients.subscribing.administration",
    "MemberFencedError": "octopi.errors",
    "MemberId": "octopi.identifiers",
    "Message": "octopi.record",
    "MessageBatch": "octopi.clients.consuming.message_batch",
    "MultiTopicConsumer": "octopi.clients.consuming.multi_topic_consumer",
    "NodeInfo": "octopi.clients.answers",
    "NotDeliveredError": "octopi.errors",
    "NoQuorumError": "octopi.errors",
    "NotReadyError": "octopi.errors",
    "OctopiError": "octopi.errors",
    "Offset": "octopi.identifiers",
    "OffsetInsideRecordError": "octopi.errors",
    "OffsetOutOfRangeError": "octopi.errors",
    "OffsetSpec": "octopi.clients.consuming.start_position",
    "OutcomeUnknownError": "octopi.errors",
    "PartitionId": "octopi.identifiers",
    "PartitionInfo": "octopi.wire.messages",
    "PartitionWork": "octopi.clients.answers",
    "PartitionRecovery": "octopi.wire.messages",
    "PendingReceipt": "octopi.clients.producing.receipts",
    "Pipe": "octopi.clients.piping.pipe",
    "Place": "octopi.position",
    "Position": "octopi.position",
    "Positions": "octopi.clients.consuming.positions",
    "Producer": "octopi.clients.producing.producer",
    "ProducerFencedError": "octopi.errors",
    "ProtocolError": "octopi.errors",
    "QueueSubscription": "octopi.clients.subscribing.queue_subscription",
    "ReadingInfo": "octopi.wire.messages",
    "Receipt": "octopi.clients.producing.receipts",
    "RecordError": "octopi.errors",
    "RecordReader": "octopi.clients.stored_records",
    "RedirectLoopError": "octopi.errors",
    "RefusedError": "octopi.errors",
    "ReplicaHolding": "octopi.wire.messages",
    "ReplicaTroubleAt": "octopi.wire.messages",
    "Start": "octopi.clients.consuming.start_position",
    "Status": "octopi.errors",
    "StatusMeaning": "octopi.errors",
    "StoredRecords": "octopi.clients.stored_records",
    "SubscribedLog": "octopi.clients.subscribing.subscribed_log",
    "SubscribedLogStatus": "octopi.clients.subscribing.administration",
    "Subscription": "octopi.clients.subscribing.subscription",
    "SubscriptionBusyError": "octopi.errors",
    "SubscriptionDefinition": "octopi.model",
    "SubscriptionExistsError": "octopi.errors",
    "SubscriptionId": "octopi.identifiers",
    "SubscriptionMember": "octopi.wire.messages",
    "SubscriptionName": "octopi.identifiers",
    "SubscriptionOptions": "octopi.model",
    "SubscriptionStatus": "octopi.clients.subscribing.administration",
    "TimestampMs": "octopi.identifiers",
    "TopicExistsError": "octopi.errors",
    "TopicId": "octopi.identifiers",
    "TopicInfo": "octopi.wire.messages",
    "TopicName": "octopi.identifiers",
    "TopicOptions": "octopi.wire.messages",
    "TopicReplacedError": "octopi.errors",
    "UnknownSubscriptionError": "octopi.errors",
    "UnknownTopicError": "octopi.errors",
    "UnreachableError": "octopi.errors",
    "UnservedTopic": "octopi.wire.messages",
    "connect": "octopi.clients.client",
    "last": "octopi.clients.consuming.start_position",
}
"""The module that defines each public name."""

__all__ = [
    "Admin",
    "Anchor",
    "Blame",
    "BrokerCount",
    "BrokerId",
    "BrokerInfo",
    "BrokerLog",
    "BrokerReading",
    "ChecksumError",
    "Chunk",
    "Claim",
    "Client",
    "ClosedError",
    "ClusterEvent",
    "ClusterInfo",
    "ClusterLoads",
    "ConditionFailedError",
    "ConnectionLostError",
    "Consumer",
    "DealtBatch",
    "DealtMessage",
    "DeliveryError",
    "DigestMismatchError",
    "Epoch",
    "EventList",
    "FetchResult",
    "FoundOffset",
    "GenerationInfo",
    "HistoryForkedError",
    "HistoryLostError",
    "Incarnation",
    "InvalidOptionError",
    "InvalidTopicError",
    "LastMessages",
    "LeftTopic",
    "LogCount",
    "LogInfo",
    "LostRange",
    "MalformedRecordError",
    "MarkKeeper",
    "MarkReset",
    "MemberFencedError",
    "MemberId",
    "Message",
    "MessageBatch",
    "MultiTopicConsumer",
    "NoQuorumError",
    "NodeInfo",
    "NotDeliveredError",
    "NotReadyError",
    "OctopiError",
    "Offset",
    "OffsetInsideRecordError",
    "OffsetOutOfRangeError",
    "OffsetSpec",
    "OutcomeUnknownError",
    "PartitionId",
    "PartitionInfo",
    "PartitionRecovery",
    "PartitionWork",
    "PendingReceipt",
    "Pipe",
    "Place",
    "Position",
    "Positions",
    "Producer",
    "ProducerFencedError",
    "ProtocolError",
    "QueueSubscription",
    "ReadingInfo",
    "Receipt",
    "RecordError",
    "RecordReader",
    "RedirectLoopError",
    "RefusedError",
    "ReplicaHolding",
    "ReplicaTroubleAt",
    "Start",
    "Status",
    "StatusMeaning",
    "StoredRecords",
    "SubscribedLog",
    "SubscribedLogStatus",
    "Subscription",
    "SubscriptionBusyError",
    "SubscriptionDefinition",
    "SubscriptionExistsError",
    "SubscriptionId",
    "SubscriptionMember",
    "SubscriptionName",
    "SubscriptionOptions",
    "SubscriptionStatus",
    "TimestampMs",
    "TopicExistsError",
    "TopicId",
    "TopicInfo",
    "TopicName",
    "TopicOptions",
    "TopicReplacedError",
    "UnknownSubscriptionError",
    "UnknownTopicError",
    "UnreachableError",
    "UnservedTopic",
    "__version__",
    "connect",
    "last",
]
