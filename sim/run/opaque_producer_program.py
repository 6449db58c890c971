"""A producer of version 1 records.  A broker recognises a repetition by its request id."""

from __future__ import annotations

from typing import Final

from octopi.clients.client import Client
from octopi.environment import Clock, Environment
from octopi.errors import OctopiError
from octopi.identifiers import PartitionId, topic_name
from octopi.record import encode_opaque, request_id_v1
from octopi.retry import may_pass
from octopi.simulation.history.events import Invoked, LogName, OutcomeUnknown, unique_value
from sim.run.client_log import ClientLog

_NAME: Final = "opaque"
_PORT: Final = 7000
_AGAIN_S: Final = 0.1
_VALUE_BYTES: Final = 30


class OpaqueProducerProgram:
    """Sends one message after the other, and repeats each until it was acknowledged."""

    host: Final = "opaque-producer"

    def __init__(self, client_log: ClientLog) -> None:
        self.sent_count = 0
        self._noted = 0
        """The number of the last message that is in the history."""
        self._client_log = client_log

    @property
    def is_done(self) -> bool:
        """Whether all messages were acknowledged."""
        return self.sent_count == self._client_log.plan.workload.opaque_records

    async def run(self, environment: Environment) -> None:
        """See `octopi.simulation.kernel.host.Program`."""
        client_log = self._client_log
        await client_log.topics_made.wait()
        randomness = client_log.cluster.world.random(_NAME)
        async with client_log.connected(environment) as client:
            while not self.is_done:
                number = self.sent_count + 1
                value = unique_value(_NAME, number, _VALUE_BYTES)
                log = client_log.logs[number % len(client_log.logs)]
                if number != self._noted:
                    self._noted = number
                    client_log.note(Invoked(client_log.now, _NAME, log.topic, log.partition, value))
                record = encode_opaque(request_id_v1(_NAME, _PORT, number), value)
                if await self._append(client, environment.clock, log, record):
                    # The record is stored; its offset is not known, as the answer doesn't name it.
                    client_log.note(
                        OutcomeUnknown(client_log.now, value, "the answer has no offset")
                    )
                    self.sent_count = number
                    pause_s = client_log.plan.workload.pause_s * randomness.random()
                    await environment.clock.sleep_until(environment.clock.now() + pause_s)

    async def _append(self, client: Client, clock: Clock, log: LogName, record: bytes) -> bool:
        """Try once to append the record; return whether it was acknowledged."""
        topic, partition = topic_name(log.topic), PartitionId(log.partition)
        try:
            await client.stored_records.append(topic, partition, record)
        except OctopiError as error:
            if not may_pass(error):
                self._client_log.complain(_NAME, error)
            await clock.sleep_until(clock.now() + _AGAIN_S)
            return False
        return True
