"""Records a run so that it can be shown: an observer of a cluster's steps and of its network.

It only observes, so a run takes the same course with and without it, and has the same digest.  It
is used where one run is shown; the search for failures does without it.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final

import attrs

from octopi.simulation.cluster import SimulatedCluster
from octopi.simulation.kernel.world import Event, World
from octopi.simulation.network.connection import Arrival, Departure
from octopi.simulation.network.network import Network
from octopi.simulation.report.frame_decoder import SpokenStream, message
from octopi.simulation.report.recording import Broken, Came, Causes, Happening, Recording, Sent

HAPPENINGS_MAX: Final = 200_000
"""The most happenings that are kept, the latest ones: more than anybody looks at."""


@attrs.define
class _Way:
    """One direction of a connection."""

    stream: SpokenStream | None
    """Decodes a stream of bytes.  None: each piece is a message."""
    sent_units: int = 0
    came_units: int = 0
    """The units that arrived: bytes of a stream, or pieces."""
    under_way: deque[tuple[int, int]] = attrs.Factory(deque)
    """The number of each message in flight, and the units with whose arrival it is complete."""


class Recorder:
    """Keeps what happens in a run; `recording` returns it."""

    def __init__(self) -> None:
        self._cluster: SimulatedCluster | None = None
        self._world: World | None = None
        self._over_at: float | None = None
        """The time at which the run failed."""
        self._happenings: deque[Happening] = deque(maxlen=HAPPENINGS_MAX)
        self._message_count = 0
        self._ways: dict[tuple[int, str, int], _Way] = {}
        """The directions by connection, sending host and life."""
        self._asked: dict[tuple[int, int], tuple[str, int | None]] = {}
        """The logs that requests are about, by connection and request number."""

    def watch(self, cluster: SimulatedCluster) -> Recorder:
        """Begin to record *cluster*.  The caller passes every event to the recorder."""
        self._cluster = cluster
        self.watch_network(cluster.network)
        return self

    def watch_network(self, network: Network) -> None:
        """Begin to record a network without a cluster."""
        self._world = network.world
        network.observers.append(self._hear)

    def __call__(self, event: Event) -> None:
        """Keep *event*, as one of `octopi.simulation.kernel.world.World.observers`."""
        self._keep(event)

    def _keep(self, happening: Happening) -> None:
        """Keep *happening*, unless it is later than the failure of the run: then it only shows how
        the run is taken down."""
        if self._over_at is None and self._world is not None and self._world.failure is not None:
            self._over_at = happening.at
        if self._over_at is None or happening.at <= self._over_at:
            self._happenings.append(happening)

    def recording(
        self,
        title: str,
        *,
        broken: Broken | None = None,
        command: str = "",
        options: tuple[str, ...] = (),
        faults: tuple[str, ...] = (),
        causes: Causes | None = None,
        digest: str = "",
    ) -> Recording:
        """Everything that was recorded, and what the page says about it."""
        nodes = self._cluster.nodes.values() if self._cluster is not None else ()
        return Recording(
            title,
            tuple(self._happenings),
            tuple((node.name, node.kind) for node in nodes),
            broken,
            command,
            options,
            faults,
            digest,
            causes=causes,
        )

    # --- messages ------------------------------------------------------------------------

    def _hear(self, piece: Departure | Arrival) -> None:
        key = piece.connection, piece.source.host.name, piece.source.number
        if isinstance(piece, Departure):
            way = self._ways.get(key)
            if way is None:
                # On the message tier the first piece is the request of a handshake, or its answer,
                # which is an object.
                is_stream = isinstance(piece.data, bytes)
                way = self._ways[key] = _Way(SpokenStream() if is_stream else None)
            self._left(way, piece)
        elif key in self._ways:
            self._arrived(self._ways[key], piece)

    def _left(self, way: _Way, piece: Departure) -> None:
        if way.stream is None:
            kind, content = _said(piece.data)
            way.sent_units += 1
            self._note(way, piece, kind, content, way.sent_units, _size_bytes(piece.data))
            return
        for kind, content, end in way.stream.add(piece.data):
            self._note(way, piece, kind, content, end, end - way.sent_units)
            way.sent_units = end

    def _note(
        self, way: _Way, piece: Departure, kind: str, content: object, end: int, size_bytes: int
    ) -> None:
        life = piece.source
        topic, partition = self._log(piece.connection, content)
        number = self._message_count
        self._message_count += 1
        way.under_way.append((number, end))
        self._keep(
            Sent(
                number,
                piece.at,
                life.host.name,
                life.number,
                piece.target,
                kind,
                topic,
                partition,
                size_bytes,
                content,
            )
        )

    def _log(self, connection: int, content: object) -> tuple[str, int | None]:
        """The log that a message is about; for an answer, the log of its request."""
        request = getattr(content, "request", None)
        topic = getattr(content, "topic", "") or getattr(content, "topic_id", "")
        partition = getattr(content, "partition", None)
        log = (topic if isinstance(topic, str) else ""), partition
        if request is None:
            return log
        if partition is not None:
            self._asked[connection, request] = log
            return log
        return self._asked.get((connection, request), log)

    def _arrived(self, way: _Way, piece: Arrival) -> None:
        way.came_units += 1 if way.stream is None else len(piece.data)
        while way.under_way and way.under_way[0][1] <= way.came_units:
            number, _ = way.under_way.popleft()
            life = piece.target
            self._keep(Came(number, piece.at, life.host.name, life.number))


def _said(data: Any) -> tuple[str, object]:  # noqa: ANN401
    if isinstance(data, bytes):
        return message(data)
    return type(data).__name__.lstrip("_").lower(), None


def _size_bytes(data: object) -> int:
    return len(data) if isinstance(data, bytes) else 0
