"""All clients of a run: starts them, knows which are done, and reads the logs in the end.

Each producer and each consumer runs on a host of its own, so that it can be killed, paused or cut
off like any node.  A program that is started again continues its work.
`octopi.simulation.history.checker` checks the history.
"""

from __future__ import annotations

from typing import Final

from octopi.clients.client import Client
from octopi.environment import Environment
from octopi.errors import HistoryLostError
from octopi.identifiers import PartitionId
from octopi.model import QUEUE_MODES
from octopi.simulation.history.events import FinalLog, LogName, Rested, StartMoved, StoredMessage
from octopi.simulation.kernel.host import Program
from sim.run.client_log import ClientLog
from sim.run.consumer_program import ConsumerProgram
from sim.run.group_notes import GroupNotes
from sim.run.member_program import MemberProgram
from sim.run.opaque_producer_program import OpaqueProducerProgram
from sim.run.operator_program import Operator
from sim.run.pipe_program import PipeProgram, PipeReader
from sim.run.producer_program import ProducerProgram
from sim.run.queue_member_program import QueueMemberProgram
from sim.run.queue_notes import QueueNotes
from sim.run.queue_reader import QueueReader
from sim.run.subscription_chores import SubscriptionNotes

_READER: Final = "reader"


class Workload:
    """The clients whose history is in *client_log*."""

    def __init__(self, client_log: ClientLog) -> None:
        workload, cluster = client_log.plan.workload, client_log.cluster
        self.client_log = client_log
        self.producers = [
            ProducerProgram(client_log, number) for number in range(1, workload.producers + 1)
        ]
        self.consumers = [
            ConsumerProgram(client_log, number) for number in range(1, workload.consumers + 1)
        ]
        self.members: list[MemberProgram] | list[QueueMemberProgram] | list[PipeProgram]
        self._queue_reader: QueueReader | PipeReader | None = None
        numbers = range(1, workload.members + 1)
        notes: SubscriptionNotes
        if workload.member_mode in QUEUE_MODES:
            notes = of_queue = QueueNotes(client_log)
            self.members = [QueueMemberProgram(client_log, of_queue, one) for one in numbers]
            self._queue_reader = QueueReader(client_log, of_queue)
        else:
            notes = self._group = GroupNotes(client_log)
        if workload.pipes:
            self.members = [PipeProgram(client_log, one) for one in numbers]
            self._queue_reader = PipeReader(client_log)
        elif workload.member_mode not in QUEUE_MODES:
            self.members = [MemberProgram(client_log, self._group, one) for one in numbers]
        self.opaque = OpaqueProducerProgram(client_log)
        self.operator = Operator(client_log, notes)
        self.is_read = False
        """Whether all logs were read in the end."""
        programs: dict[str, Program] = {self.operator.host: self.operator.run}
        programs |= {one.host: one.run for one in self.producers}
        programs |= {one.host: one.run for one in self.consumers}
        programs |= {one.host: one.run for one in self.members}
        if workload.opaque_records:
            programs[self.opaque.host] = self.opaque.run
        self._hosts = list(programs)
        for host, program in programs.items():
            cluster.add_client(host, program)
        cluster.add_client(_READER, self._read_all)
        if self.members and self._queue_reader is not None:
            cluster.add_client(self._queue_reader.host, self._queue_reader.run)

    def start(self) -> None:
        """Boot all clients."""
        for host in self._hosts:
            self.client_log.cluster.boot(host)

    def unsent(self) -> str:
        """The programs that are not done yet, as text; empty: none."""
        senders: list[ProducerProgram | OpaqueProducerProgram] = [*self.producers, self.opaque]
        waiting = [one.host for one in senders if not one.is_done]
        return ", ".join(waiting if self.operator.is_done else [self.operator.host, *waiting])

    def unheard(self) -> str:
        """The producers without an acknowledged message in each log since everything was healed, as
        text; empty: none."""
        return ", ".join(one.host for one in self.producers if not one.is_heard)

    # --- the end -------------------------------------------------------------------------

    def read_all(self) -> None:
        """Begin to read every log; `is_read` says when that is done."""
        self.client_log.cluster.boot(_READER)

    async def _read_all(self, environment: Environment) -> None:
        client_log = self.client_log
        async with client_log.connected(environment) as client:
            waiting = [*client_log.topics, *client_log.relay_topics]
            while waiting:
                try:
                    await self._read_topic(client, waiting[0])
                    del waiting[0]
                except HistoryLostError:
                    pass  # retention has removed what was to be read
        self.is_read = True

    async def _read_topic(self, client: Client, topic: str) -> None:
        client_log = self.client_log
        read: dict[LogName, list[StoredMessage]] = {}
        async with client.consumer(topic, start="earliest", stop_at_end=True) as consumer:
            starts = {PartitionId(one): int(at) for one, at in consumer.position.offsets.items()}
            read = {LogName(topic, partition): [] for partition in starts}
            async for one in consumer:
                read[LogName(one.topic, one.partition)].append(
                    StoredMessage(one.offset, one.next_offset, one.value, one.key, one.headers)
                )
        for log, messages in read.items():
            start = starts[log.partition]
            if log in client_log.streams:
                client_log.removed_end[log] = client_log.may_forget_before(log)
            if 0 < start <= client_log.removed_end.get(log, 0):
                client_log.note(StartMoved(client_log.now, log, start))
            client_log.note(FinalLog(client_log.now, log, tuple(messages)))

    def unread(self, ends: dict[LogName, int]) -> str:
        """The consumers that are not at the *ends* of their logs, as text; empty: none.  One behind
        an end has yet to notice that what it read was lost."""
        return ", ".join(
            f"{one.name} is at {one.ends.get(log, 0)} of {end} in {log}"
            for one in self.consumers
            for log, end in ends.items()
            if log.topic == one.topic and one.ends.get(log, 0) != end
        )

    def unprocessed(self, ends: dict[LogName, int]) -> str:
        """What the members of the subscription have yet to process before the *ends* of its logs;
        empty: nothing."""
        reader = self._queue_reader
        if not self.members:
            return ""
        if reader is None:
            return self._group.behind(ends)
        if not reader.ends:
            reader.ends = ends
            self.client_log.cluster.boot(reader.host)
        return reader.behind

    def note_rest(self) -> None:
        """Note that the consumers have had the time to read everything."""
        client_log = self.client_log
        for one in self.consumers:
            for log in [*client_log.logs, *client_log.streams]:
                if log.topic == one.topic:
                    client_log.note(Rested(client_log.now, one.name, log))
