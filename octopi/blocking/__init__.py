"""Octopi for blocking programs: the client of `octopi`, with the same names and methods.

::

    with octopi.blocking.connect("ws://127.0.0.1:7000") as client:
        with client.producer() as producer:
            receipt = producer.send("orders", b"value")
        with client.consumer("orders", start="earliest") as consumer:
            for message in consumer:
                print(message.offset, message.value)

Within a `timeout` no call waits longer.  What isn't here, such as messages, receipts, positions and
errors, is that of `octopi`.
"""

from octopi.blocking.client import BlockingAdmin as Admin, BlockingClient as Client, connect
from octopi.blocking.consuming import (
    BlockingConsumer as Consumer,
    BlockingMultiTopicConsumer as MultiTopicConsumer,
    BlockingRecordReader as RecordReader,
    BlockingStoredRecords as StoredRecords,
)
from octopi.blocking.dealt import (
    BlockingDealtBatch as DealtBatch,
    BlockingDealtMessage as DealtMessage,
)
from octopi.blocking.piping import BlockingPipe as Pipe
from octopi.blocking.producing import (
    BlockingPendingReceipt as PendingReceipt,
    BlockingProducer as Producer,
)
from octopi.blocking.subscribing import (
    BlockingMarkKeeper as MarkKeeper,
    BlockingQueueSubscription as QueueSubscription,
    BlockingSubscribedLog as SubscribedLog,
    BlockingSubscription as Subscription,
)
from octopi.blocking.timeouts import timeout

__all__ = [
    "Admin",
    "Client",
    "Consumer",
    "DealtBatch",
    "DealtMessage",
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
    "timeout",
]
