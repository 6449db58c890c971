"""The operator of a run: creates its topics, and does chores while the clients work."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from random import Random
from typing import Any, Final

import trio

from octopi.clients.client import Client
from octopi.environment import Environment
from octopi.errors import DeliveryError, OctopiError, RefusedError, TopicExistsError
from octopi.limits import GIB
from octopi.retry import may_pass
from octopi.simulation.history.events import (
    Invoked,
    LogName,
    TopicCreation,
    TopicRemoval,
    unique_value,
)
from octopi.wire.messages import TopicInfo
from sim.run.client_log import ClientLog
from sim.run.expensive_requests import ask_for_offsets, have_fetches_wait
from sim.run.plan import Chore
from sim.run.relay_chores import make_relay_topics, set_relays
from sim.run.subscription_chores import (
    SubscriptionNotes,
    delete_subscription,
    finish_deletion,
    reset_marks,
)

_FIRST_CHORE_S: Final = 0.5
"""The longest pause before a chore."""
_CHORE_TIMEOUT_S: Final = 5.0
_ALTERED_S: Final = 2.0
"""The longest time for which a chore has a topic require more replicas in sync."""
_SCRATCH_COUNT: Final = 3
_RENEWALS: Final = 2
_ANEW_S: Final = 0.0005
"""The pause between two tries to make a topic anew."""
_WATCH_COUNT: Final = 120
_WATCH_S: Final = 0.01
"""The pause between two rounds of questions where logs end."""


class Operator:
    """The program on the host from which the cluster is operated."""

    host: Final = "operator"

    def __init__(self, client_log: ClientLog, notes: SubscriptionNotes) -> None:
        self.is_done = False
        """Whether the topics exist, and every chore was done or given up."""
        self._client_log = client_log
        self._notes = notes
        self._chores = list(client_log.plan.workload.chores)
        self._number = 0
        self._environment: Environment
        self._options: dict[str, dict[str, Any]] = {}
        """By topic, the options that it was given last, as far as that was confirmed."""

    async def run(self, environment: Environment) -> None:
        """See `octopi.simulation.kernel.host.Program`."""
        client_log, self._environment = self._client_log, environment
        async with client_log.connected(environment) as client:
            if not client_log.topics_made.is_set():
                await self._make_topics(client)
            while self._chores:
                self._number += 1
                randomness = client_log.cluster.world.random("chore", self._number)
                clock = environment.clock
                await clock.sleep_until(clock.now() + randomness.random() * _FIRST_CHORE_S)
                await self._try(client, self._chores[0], randomness)
                del self._chores[0]
            self.is_done = True
            if self._options and not client_log.plan.loses_broker_disks:
                await client_log.all_well.wait()
                await self._insist(lambda: self._check_options(client))
            if "delete" in client_log.plan.workload.chores:
                await client_log.all_well.wait()
                await self._insist(lambda: finish_deletion(client, self._notes))

    async def _insist(self, task: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                return await task()
            except OctopiError as error:
                if not may_pass(error):
                    return self._client_log.complain(self.host, error)

    async def _make_topics(self, client: Client) -> None:
        client_log, plan = self._client_log, self._client_log.plan
        for topic in client_log.topics:
            if any(log.topic == topic for log in client_log.logs):
                continue  # this program has made it before its host was killed
            while True:
                try:
                    info = await client.create_topic(
                        topic,
                        plan.workload.topic_partitions,
                        exist_ok=True,
                        flush_before_ack=plan.flush_before_ack,
                        min_insync=plan.min_insync,
                        segment_bytes=plan.segment_bytes,
                        retention=_milliseconds(plan.retention_ms),
                        retention_bytes=plan.retention_bytes,
                        hold=_milliseconds(plan.hold_ms),
                        hold_bytes=plan.hold_bytes,
                    )
                    break
                except OctopiError as error:
                    if not may_pass(error):
                        client_log.complain(self.host, error)
            client_log.note(TopicCreation(client_log.now, topic))
            client_log.logs += [LogName(topic, one.partition) for one in info.partitions]
        await make_relay_topics(client, client_log, self.host)
        client_log.topics_made.set()

    # --- chores --------------------------------------------------------------------------

    async def _try(self, client: Client, chore: Chore, randomness: Random) -> None:
        try:
            match chore:
                case "topic":
                    await self._use_topic(client, f"scratch-{self._number}", randomness)
                case "drain":
                    await self._drain(client, randomness)
                case "renew":
                    await self._renew(client, f"renewed-{self._number}", randomness)
                case "replace":
                    await self._replace(client, f"replaced-{self._number}", randomness)
                case "replace_twice":
                    await self._replace(client, f"replaced-{self._number}", randomness, 0)
                case "ask":
                    await ask_for_offsets(client, randomness.choice(self._client_log.topics))
                case "poll":
                    topic = randomness.choice(self._client_log.topics)
                    await have_fetches_wait(self._environment, client, topic)
                case "end":
                    await self._watch_ends(client)
                case "reset":
                    await reset_marks(client, self._client_log, self._notes, randomness)
                case "delete":
                    await delete_subscription(client, self._notes)
                case "grow":
                    await client.admin.add_partitions(1)
                case "move":
                    await self._move(client, randomness)
                case "alter":
                    await self._alter(client, randomness)
                case "relays":
                    await set_relays(client, randomness, _CHORE_TIMEOUT_S)
        except OctopiError as error:
            # The broker or partition may have changed since the chore was chosen.
            is_outdated = isinstance(error, RefusedError) and error.meaning.outdated
            if not may_pass(error) and not is_outdated:
                self._client_log.complain(f"{self.host} ({chore})", error)

    async def _watch_ends(self, client: Client) -> None:
        """Repeatedly ask where each log ends, and complain of an end before a message that had been
        acknowledged."""
        client_log, clock = self._client_log, self._environment.clock
        for _ in range(_WATCH_COUNT):
            for log in client_log.logs:
                least = client_log.acknowledged_end.get(log, 0)
                try:
                    found = await client.find_offset(log.topic, "latest", partition=log.partition)
                except OctopiError as error:
                    if not may_pass(error):
                        raise
                    continue
                if found.offset < least:
                    client_log.complaints.append(
                        f"a broker answered that {log} ends at {found.offset}, but all records "
                        f"before {least} had been acknowledged, at {client_log.now:.6f} s"
                    )
            await clock.sleep_until(clock.now() + _WATCH_S)

    async def _drain(self, client: Client, randomness: Random) -> None:
        brokers = (await client.admin.describe_cluster()).brokers
        if not brokers:
            return
        broker = randomness.choice(brokers).broker
        await client.admin.drain_broker(broker, timeout_s=_CHORE_TIMEOUT_S)

    async def _move(self, client: Client, randomness: Random) -> None:
        info = await client.admin.describe_cluster()
        if not info.partitions:
            return
        partition = randomness.choice(info.partitions)
        others = [one.broker for one in info.brokers if one.broker not in partition.replicas]
        if others:
            leaving, joining = randomness.choice(partition.replicas), randomness.choice(others)
            move = partial(
                client.admin.move_replica, partition.partition, timeout_s=_CHORE_TIMEOUT_S
            )
            await move(leaving, joining)
            if partition.partition % 2:
                await move(joining, leaving)  # which may still put its former replica away

    async def _alter(self, client: Client, randomness: Random) -> None:
        """Alter a topic, and some time later have it require as many replicas in sync as before: a
        broker that is gone for good must not stop it."""
        plan, clock = self._client_log.plan, self._environment.clock
        topic = randomness.choice(self._client_log.topics)
        info = await client.describe_topic(topic)
        most = min(len(one.replicas) for one in info.partitions)
        await self._set_options(
            client,
            topic,
            min_insync=max(info.options.min_insync, min(2, most)),
            flush_before_ack=randomness.random() < 0.5,
            retention_bytes=randomness.choice((plan.retention_bytes, GIB, 2 * GIB)),
        )
        await clock.sleep_until(clock.now() + randomness.random() * _ALTERED_S)
        while True:
            try:
                await self._set_options(client, topic, min_insync=plan.min_insync)
            except OctopiError as error:
                if not may_pass(error):
                    raise
            else:
                return

    async def _set_options(self, client: Client, topic: str, **options: Any) -> None:  # noqa: ANN401
        known = self._options.setdefault(topic, {})
        for one in options:
            known.pop(one, None)  # until the answer comes, it may have the old value or the new one
        await client.alter_topic(topic, **options)
        known |= options

    async def _check_options(self, client: Client) -> None:
        """Check that each topic has the options that it was given last."""
        for topic, given in self._options.items():
            found = (await client.describe_topic(topic)).options
            for name, value in given.items():
                if getattr(found, name) != value:
                    self._client_log.complaints.append(
                        f"{topic} has {name} {getattr(found, name)}, but {value} was confirmed"
                    )

    async def _renew(self, client: Client, topic: str, randomness: Random) -> None:
        """Make and delete a topic several times under one name; leave the last one for the clients
        to use."""
        client_log = self._client_log
        for number in range(_RENEWALS):
            await self._use_topic(client, topic, randomness, f"{topic}-{number}")
        info = await client.create_topic(
            topic, 1, flush_before_ack=client_log.plan.flush_before_ack
        )
        self._note_new(topic, info)

    def _note_new(self, topic: str, info: TopicInfo) -> None:
        client_log = self._client_log
        client_log.note(TopicCreation(client_log.now, topic))
        client_log.logs += [LogName(topic, one.partition) for one in info.partitions]

    async def _replace(
        self, client: Client, topic: str, randomness: Random, partition: int | None = None
    ) -> None:
        """Make a topic, then delete it and make it anew at the same time; leave the new one for the
        clients to use.  *partition*: make it there, and replace it again before brokers have
        removed the first one."""
        client_log, problems = self._client_log, list[OctopiError]()
        info = await self._fill_topic(client, topic, randomness, f"{topic}-0")
        ids = [info.topic_id]

        async def delete(topic_id: str, is_removed: trio.Event) -> None:
            try:
                # By its id: a repetition must not delete the new one.
                await client.admin.delete_topic_by_id(topic_id)
            except OctopiError as error:
                problems.append(error)
                nursery.cancel_scope.cancel()
            is_removed.set()

        client_log.note(TopicRemoval(client_log.now, topic))
        async with trio.open_nursery() as nursery:
            for number in range(1 if partition is None else 2):
                if number:
                    client_log.note(TopicCreation(client_log.now, topic))
                    client_log.note(TopicRemoval(client_log.now, topic))
                is_removed = trio.Event()
                nursery.start_soon(delete, ids[-1], is_removed)
                try:
                    info = await self._make_anew(client, topic, ids, is_removed, partition)
                except OctopiError as error:
                    problems.append(error)
                    nursery.cancel_scope.cancel()
                    break
                ids.append(info.topic_id)
            else:
                self._note_new(topic, info)
        if problems:
            raise problems[0]

    async def _make_anew(
        self,
        client: Client,
        topic: str,
        older_ids: list[str],
        is_removed: trio.Event,
        partition: int | None,
    ) -> TopicInfo:
        """Make a topic as soon as the older one of that name, which has one of *older_ids*, is
        deleted."""
        clock = self._environment.clock
        while True:
            # What exists then is the new one: an answer to an earlier request was lost.
            exist_ok = is_removed.is_set()
            with contextlib.suppress(TopicExistsError):
                made = await client.create_topic(
                    topic,
                    1,
                    partition_ids=None if partition is None else [partition],
                    exist_ok=exist_ok,
                    flush_before_ack=self._client_log.plan.flush_before_ack,
                )
                if made.topic_id not in older_ids:
                    return made
            await clock.sleep_until(clock.now() + _ANEW_S)

    async def _use_topic(
        self, client: Client, topic: str, randomness: Random, sender: str = ""
    ) -> None:
        """Make a topic, send something to it, and delete it."""
        client_log = self._client_log
        await self._fill_topic(client, topic, randomness, sender or topic)
        client_log.note(TopicRemoval(client_log.now, topic))
        await client.delete_topic(topic)

    async def _fill_topic(
        self, client: Client, topic: str, randomness: Random, sender: str
    ) -> TopicInfo:
        """Make a topic, and send something to it."""
        client_log = self._client_log
        count = randomness.randint(1, client_log.plan.partitions)
        flush_before_ack = client_log.plan.flush_before_ack
        info = await client.create_topic(
            topic, count, exist_ok=True, flush_before_ack=flush_before_ack
        )
        client_log.note(TopicCreation(client_log.now, topic))
        async with client.producer(create_topics=False, delivery_timeout_s=5.0) as producer:
            for number in range(_SCRATCH_COUNT):
                value = unique_value(sender, number)
                client_log.note(Invoked(client_log.now, sender, topic, None, value))
                try:
                    receipt = await producer.send(topic, value)
                except DeliveryError as error:
                    client_log.settled(value, error)
                else:
                    client_log.settled(value, receipt)
        return info


def _milliseconds(count: int | None) -> timedelta | None:
    return None if count is None else timedelta(milliseconds=count)
