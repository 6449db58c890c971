"""Tells how this broker takes part in relay partitions, and which digests its streams have."""

from __future__ import annotations

from octopi.roles.broker.services.context import ClientContext
from octopi.transport.services import Service
from octopi.wire import messages as m


class MemoryService(Service):
    """What `octopi-node relay status` and `relay verify` ask."""

    def __init__(self, context: ClientContext) -> None:
        super().__init__(
            {m.DescribeRelays: self._describe, m.DescribeRelayStream: self._describe_stream}
        )
        self._memory = context.memory
        self._connection = context.connection

    def _describe(self, message: m.DescribeRelays) -> None:
        self._connection.post(self._memory.relays(message.request))

    def _describe_stream(self, message: m.DescribeRelayStream) -> None:
        self._connection.post(self._memory.stream_description(message))
