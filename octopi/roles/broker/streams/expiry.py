"""When streams expire: by a time, or when nobody has used them for a while.

When a stream was used last is known to its leader alone, in memory.  A new leader counts from the
beginning of its leadership, so a stream may live longer after a change of leaders, never shorter.
The register deletes what has expired.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from octopi.environment import Clock
from octopi.identifiers import TopicId
from octopi.roles.broker.local_log import LocalLog
from octopi.roles.broker.replica_manager import ReplicaManager

_LOOK_INTERVAL_S: Final = 1.0


class Expiry:
    """The streams that this broker leads and that may expire."""

    def __init__(
        self, clock: Clock, manager: ReplicaManager, report: Callable[[TopicId], None]
    ) -> None:
        """*report* tells the register of an expired stream."""
        self._clock = clock
        self._manager = manager
        self._report = report
        self._used_at: dict[TopicId, float] = {}

    def used(self, log: LocalLog) -> None:
        """The stream is read or written now."""
        stream = log.topic.stream
        if stream is not None and stream.ttl_s is not None:
            self._used_at[log.topic_id] = self._clock.now()

    def is_expired(self, log: LocalLog) -> bool:
        """Whether the stream of *log*, which this broker leads, has expired."""
        stream = log.topic.stream
        if stream is None:
            return False
        if stream.expires_at_ms is not None and self._clock.wall_ms() >= stream.expires_at_ms:
            return True
        if stream.ttl_s is None:
            return False
        used_at = self._used_at.setdefault(log.topic_id, self._clock.now())
        return self._clock.now() - used_at >= stream.ttl_s

    async def run(self) -> None:
        """Report expired streams, until cancelled."""
        while True:
            await self._clock.sleep_until(self._clock.now() + _LOOK_INTERVAL_S)
            led: set[TopicId] = set()
            for replica in self._manager.replicas:
                if not replica.leads:
                    continue
                for log in list(replica.logs.values()):
                    if log.topic.stream is None:
                        continue
                    led.add(log.topic_id)
                    if self.is_expired(log):
                        self._report(log.topic_id)
            self._used_at = {one: at for one, at in self._used_at.items() if one in led}
