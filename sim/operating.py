"""The operator of a run: makes its topics, and does chores while everybody works."""

from __future__ import annotations

from datetime import timedelta
from random import Random
from typing import Final

from octopi.clients.client import Client
from octopi.environment import Environment
from octopi.errors import NotDeliveredError, OctopiError, OutcomeUnknownError, RefusedError
from octopi.retry import may_pass
from octopi.simulation.history import (
    Acknowledged,
    Failed,
    Invoked,
    LogName,
    OutcomeUnknown,
    TopicCreated,
    TopicRemoved,
    unique_value,
)
from sim.asking import ask_for_offsets, have_fetches_wait
from sim.notebook import Notebook
from sim.plan import Chore

_FIRST_CHORE_S: Final = 0.5
"""Chores begin within so long after the topics were made."""
_CHORE_TIMEOUT_S: Final = 5.0
_SCRATCH_COUNT: Final = 3
_RENEWALS: Final = 2
"""How often a topic is made under its name."""


class Operator:
    """The program on the host from which the cluster is operated."""

    host: Final = "operator"

    def __init__(self, notebook: Notebook) -> None:
        self.is_done = False
        """Whether the topics are there, and every chore was done or given up."""
        self._notebook = notebook
        self._chores = list(notebook.plan.workload.chores)
        self._number = 0
        self._environment: Environment

    async def run(self, environment: Environment) -> None:
        """`octopi.simulation.host.Program`."""
        notebook, self._environment = self._notebook, environment
        async with notebook.connected(environment) as client:
            if not notebook.topics_made.is_set():
                await self._make_topics(client)
            while self._chores:
                self._number += 1
                chance = notebook.cluster.world.random("chore", self._number)
                clock = environment.clock
                await clock.sleep_until(clock.now() + chance.random() * _FIRST_CHORE_S)
                await self._try(client, self._chores[0], chance)
                del self._chores[0]
        self.is_done = True

    async def _make_topics(self, client: Client) -> None:
        notebook, plan = self._notebook, self._notebook.plan
        for topic in notebook.topics:
            if any(log.topic == topic for log in notebook.logs):
                continue  # an earlier life did
            while True:
                try:
                    info = await client.create_topic(
                        topic,
                        plan.workload.topic_partitions,
                        exist_ok=True,
                        flush_before_ack=plan.flush_before_ack,
                        min_insync=plan.min_insync,
                        segment_bytes=plan.segment_bytes,
                        retention=(
                            None
                            if plan.retention_ms is None
                            else timedelta(milliseconds=plan.retention_ms)
                        ),
                        retention_bytes=plan.retention_bytes,
                    )
                    break
                except OctopiError as error:
                    if not may_pass(error):
                        notebook.complain(self.host, error)
            notebook.note(TopicCreated(notebook.now, topic))
            notebook.logs += [LogName(topic, one.partition) for one in info.partitions]
        notebook.topics_made.set()

    # --- chores --------------------------------------------------------------------------

    async def _try(self, client: Client, chore: Chore, chance: Random) -> None:
        try:
            match chore:
                case "topic":
                    await self._use_topic(client, f"scratch-{self._number}", chance)
                case "drain":
                    await self._drain(client, chance)
                case "renew":
                    await self._renew(client, f"renewed-{self._number}", chance)
                case "ask":
                    await ask_for_offsets(client, chance.choice(self._notebook.topics))
                case "poll":
                    topic = chance.choice(self._notebook.topics)
                    await have_fetches_wait(self._environment, client, topic)
                case "grow":
                    await client.admin.add_partitions(1)
                case "move":
                    await self._move(client, chance)
        except OctopiError as error:
            # Its broker or partition may be another one by now.
            is_outdated = isinstance(error, RefusedError) and error.meaning.outdated
            if not may_pass(error) and not is_outdated:
                self._notebook.complain(f"{self.host} ({chore})", error)

    async def _drain(self, client: Client, chance: Random) -> None:
        brokers = (await client.admin.describe_cluster()).brokers
        if not brokers:
            return
        broker = chance.choice(brokers).broker
        await client.admin.drain_broker(broker, timeout_s=_CHORE_TIMEOUT_S)

    async def _move(self, client: Client, chance: Random) -> None:
        info = await client.admin.describe_cluster()
        if not info.partitions:
            return
        partition = chance.choice(info.partitions)
        others = [one.broker for one in info.brokers if one.broker not in partition.replicas]
        if others:
            await client.admin.move_replica(
                partition.partition,
                chance.choice(partition.replicas),
                chance.choice(others),
                timeout_s=_CHORE_TIMEOUT_S,
            )

    async def _renew(self, client: Client, topic: str, chance: Random) -> None:
        """Make and delete a topic again and again under one name; leave the last one to be used
        like those of everybody."""
        notebook = self._notebook
        for number in range(_RENEWALS):
            await self._use_topic(client, topic, chance, f"{topic}-{number}")
        info = await client.create_topic(topic, 1, flush_before_ack=notebook.plan.flush_before_ack)
        notebook.note(TopicCreated(notebook.now, topic))
        notebook.logs += [LogName(topic, one.partition) for one in info.partitions]

    async def _use_topic(
        self, client: Client, topic: str, chance: Random, sender: str = ""
    ) -> None:
        """Make a topic, send something to it, and delete it."""
        notebook = self._notebook
        sender = sender or topic
        count = chance.randint(1, notebook.plan.partitions)
        flush_before_ack = notebook.plan.flush_before_ack
        await client.create_topic(topic, count, exist_ok=True, flush_before_ack=flush_before_ack)
        notebook.note(TopicCreated(notebook.now, topic))
        async with client.producer(create_topics=False, delivery_timeout_s=5.0) as producer:
            for number in range(_SCRATCH_COUNT):
                value = unique_value(sender, number)
                notebook.note(Invoked(notebook.now, sender, topic, None, value))
                try:
                    receipt = await producer.send(topic, value)
                except NotDeliveredError as error:
                    notebook.note(Failed(notebook.now, value, str(error)))
                except OutcomeUnknownError as error:
                    notebook.note(OutcomeUnknown(notebook.now, value, str(error)))
                else:
                    log = LogName(topic, receipt.partition)
                    notebook.note(
                        Acknowledged(
                            notebook.now,
                            log,
                            value,
                            receipt.offset,
                            receipt.next_offset,
                            receipt.epoch,
                            receipt.duplicate,
                        )
                    )
        notebook.note(TopicRemoved(notebook.now, topic))
        await client.delete_topic(topic)
