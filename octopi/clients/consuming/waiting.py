"""Finds the topic that a consumer is to read: as it is now, by creating it, or by waiting for it.

The client asks the register again and again, as no node tells a client that a topic was created.
Nothing is missed by that: a topic that did not exist when the consumer was opened is read from its
beginning.
"""

from __future__ import annotations

import attrs

from octopi.clients.cluster_handle import ClusterHandle
from octopi.clients.consuming.start_position import LastMessages, Start
from octopi.errors import OctopiError, UnknownTopicError
from octopi.identifiers import TopicName
from octopi.limits import TOPIC_WAIT_INTERVAL_S
from octopi.retry import may_pass
from octopi.wire.messages import TopicInfo


@attrs.frozen
class FoundTopic:
    """A topic to read."""

    info: TopicInfo
    is_new: bool
    """Whether it did not exist when it was looked for first."""

    def start(self, wanted: Start) -> Start:
        """Where to begin, if the program wanted to begin at *wanted*.

        The end of a topic that did not exist was its beginning, so ``"latest"`` is its beginning
        now, and what was produced since then is not missed.
        """
        counts_from_end = wanted == "latest" or isinstance(wanted, LastMessages)
        return "earliest" if self.is_new and counts_from_end else wanted


async def find_topic(
    cluster: ClusterHandle, name: TopicName, wait_s: float | None, *, create: bool
) -> FoundTopic:
    """Topic *name*.  A missing one is created with *create*; otherwise wait for it, for *wait_s*
    (None: not at all).

    Raises:
      UnknownTopicError: if there is no such topic, after that time.
      RefusedError: FORBIDDEN, if the token doesn't grant to create it.
    """
    try:
        return FoundTopic(await cluster.router.describe_topic(name), is_new=False)
    except UnknownTopicError:
        if wait_s is None and not create:
            raise
    if create:
        return FoundTopic(await cluster.router.describe_topic(name, create=True), is_new=True)
    return FoundTopic(await _wait_for(cluster, name, wait_s or 0.0), is_new=True)


async def _wait_for(cluster: ClusterHandle, name: TopicName, wait_s: float) -> TopicInfo:
    clock, randomness = cluster.environment.clock, cluster.environment.randomness
    is_answered = True
    with clock.timeout(wait_s):
        while True:
            interval_s = TOPIC_WAIT_INTERVAL_S * (0.5 + randomness.random())
            await clock.sleep_until(clock.now() + interval_s)
            is_answered = False
            try:
                return await cluster.router.describe_topic(name)
            except UnknownTopicError:
                is_answered = True
            except OctopiError as error:
                if not may_pass(error):
                    raise
    why = "" if is_answered else "; the register did not answer when it was asked last"
    raise UnknownTopicError(f"there is no topic {name!r}; waited {wait_s:g} s for it{why}")
