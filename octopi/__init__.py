"""Octopi: a WebSocket-native replicated log.

This is the client library; everything public is here::

    async with octopi.connect("ws://127.0.0.1:7000") as client:
        async with client.producer() as producer:
            receipt = await producer.send("orders", b"value")
        async with client.consumer("orders", start="earliest") as consumer:
            async for message in consumer:
                print(message.offset, message.value)
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from octopi.clients.admin import Admin
    from octopi.clients.answers import BrokerLog, ClusterInfo, FetchResult
    from octopi.clients.client import VERSION as __version__, Client, connect
    from octopi.clients.consuming.consumer import Consumer
    from octopi.clients.consuming.consumer_session import Chunk
    from octopi.clients.consuming.start_position import LastMessages, OffsetSpec, Start, last
    from octopi.clients.producing.producer import Producer
    from octopi.clients.producing.receipts import PendingReceipt, Receipt
    from octopi.clients.stored_records import RecordReader, StoredRecords
    from octopi.errors import (
        ChecksumError,
        ClosedError,
        ConnectionLostError,
        DeliveryError,
        Fault,
        HistoryForkedError,
        HistoryLostError,
        InvalidOptionError,
        InvalidTopicError,
        MalformedRecordError,
        NotDeliveredError,
        NotReadyError,
        OctopiError,
        OffsetInsideRecordError,
        OffsetOutOfRangeError,
        OutcomeUnknownError,
        ProtocolError,
        RecordError,
        RefusedError,
        Status,
        StatusMeaning,
        TopicExistsError,
        TopicReplacedError,
        UnknownTopicError,
        UnreachableError,
    )
    from octopi.identifiers import Epoch, Offset, PartitionId, TimestampMs, TopicId, TopicName
    from octopi.position import Anchor, Place, Position
    from octopi.record import Message
    from octopi.wire.messages import (
        BrokerInfo,
        FoundOffset,
        LogInfo,
        LostRange,
        PartitionInfo,
        PartitionRecovery,
        ReplicaHolding,
        ReplicaTroubleAt,
        TopicInfo,
        TopicOptions,
        UnservedTopic,
    )
else:
    # Not at once: who wants one light module of ours shall not load all of it.

    def __getattr__(name: str) -> object:
        """Import what is public when it is first used."""
        if name in __all__:
            from octopi import errors, identifiers, position, record
            from octopi.clients import admin, answers, client, stored_records
            from octopi.clients.consuming import consumer, start_position
            from octopi.clients.producing import producer, receipts
            from octopi.wire import messages

            homes = (
                client,
                answers,
                admin,
                stored_records,
                consumer,
                start_position,
                position,
                producer,
                receipts,
                errors,
                identifiers,
                record,
                messages,
            )
            original = "VERSION" if name == "__version__" else name
            for home in homes:
                if hasattr(home, original):
                    globals()[name] = getattr(home, original)
                    return globals()[name]
        raise AttributeError(f"module 'octopi' has no attribute {name!r}")


__all__ = [
    "Admin",
    "Anchor",
    "BrokerInfo",
    "BrokerLog",
    "ChecksumError",
    "Chunk",
    "Client",
    "ClosedError",
    "ClusterInfo",
    "ConnectionLostError",
    "Consumer",
    "DeliveryError",
    "Epoch",
    "Fault",
    "FetchResult",
    "FoundOffset",
    "HistoryForkedError",
    "HistoryLostError",
    "InvalidOptionError",
    "InvalidTopicError",
    "LastMessages",
    "LogInfo",
    "LostRange",
    "MalformedRecordError",
    "Message",
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
    "PendingReceipt",
    "Place",
    "Position",
    "Producer",
    "ProtocolError",
    "Receipt",
    "RecordError",
    "RecordReader",
    "RefusedError",
    "ReplicaHolding",
    "ReplicaTroubleAt",
    "Start",
    "Status",
    "StatusMeaning",
    "StoredRecords",
    "TimestampMs",
    "TopicExistsError",
    "TopicId",
    "TopicInfo",
    "TopicName",
    "TopicOptions",
    "TopicReplacedError",
    "UnknownTopicError",
    "UnreachableError",
    "UnservedTopic",
    "__version__",
    "connect",
    "last",
]
