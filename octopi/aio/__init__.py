"""Octopi for asyncio programs: the client of `octopi`, with the same names and methods.

::

    async with octopi.aio.connect("ws://127.0.0.1:7000") as client:
        async with client.producer() as producer:
            receipt = await producer.send("orders", b"value")
        async with client.consumer("orders", start="earliest") as consumer:
            async for message in consumer:
                print(message.offset, message.value)

What isn't here, such as messages, receipts, positions and errors, is that of `octopi`.
"""

from octopi.aio.client import AsyncioAdmin as Admin, AsyncioClient as Client, connect
from octopi.aio.consuming import (
    AsyncioConsumer as Consumer,
    AsyncioMultiTopicConsumer as MultiTopicConsumer,
    AsyncioRecordReader as RecordReader,
    AsyncioStoredRecords as StoredRecords,
)
from octopi.aio.piping import AsyncioPipe as Pipe
from octopi.aio.producing import (
    AsyncioPendingReceipt as PendingReceipt,
    AsyncioProducer as Producer,
)
from octopi.aio.subscribing import (
    AsyncioMarkKeeper as MarkKeeper,
    AsyncioQueueSubscription as QueueSubscription,
    AsyncioSubscribedLog as SubscribedLog,
    AsyncioSubscription as Subscription,
)

__all__ = [
    "Admin",
    "Client",
    "Consumer",
    "MarkKeeper",
    "MultiTopicConsumer",
    "PendingReceipt",
    "Pipe",
    "Producer",
    "QueueSubscription",
    "RecordReader",
    "StoredRecords",
    "SubscribedLog",
    "Subscription",
    "connect",
]
