"""A cluster whose partitions have loads that are drawn, vary, and are measured with noise.

Time goes in steps of `LOAD_INTERVAL_S`, in which each broker reports once.  Only leaderships move,
among the replicas of a partition, as `octopi.coordination.shedding` says.
"""

from __future__ import annotations

from collections import defaultdict
from random import Random
from typing import Final, Literal

import attrs

from octopi.coordination.loads import Loads
from octopi.coordination.shedding import Look, Shedding, SheddingRules, WeighedPartition
from octopi.identifiers import BrokerId, PartitionId
from octopi.limits import LOAD_INTERVAL_S, MIB
from octopi.wire.messages import PartitionLoad

Kind = Literal[
    "zipf", "steep zipf", "warm", "hot", "joins", "dies", "shifts", "drifts", "bursts", "even"
]
"""``zipf``, ``steep zipf``: the load of a partition falls with its rank, to the power of 0.8 and of
1.1.  ``warm``, ``hot``: one partition has 0.8 of the fair share of a broker, or twice that share.
``joins``: a broker has joined and leads nothing.  ``dies``: one dies after five minutes.
``shifts``: then the loads of all partitions change.  ``drifts``: they change all the time.
``bursts``: a fifth of the partitions works one minute of two."""

BROKERS: Final = 6
PARTITIONS: Final = 96
REPLICAS: Final = 3
CHANGE_S: Final = 300.0
"""When a broker dies, or the loads shift."""
MINUTE: Final = round(60 / LOAD_INTERVAL_S)
"""How many steps a minute has."""


@attrs.frozen
class Moved:
    """A leadership that moved."""

    at: float
    partition: int
    leader: int
    successor: int


class World:
    """One cluster."""

    def __init__(self, kind: Kind, seed: int) -> None:
        self._kind, self._randomness = kind, Random(seed)
        randomness = self._randomness
        self._base = self._drawn_loads()
        self.replicas: list[list[int]] = []
        for partition in range(PARTITIONS):
            first = partition % BROKERS
            others = [one for one in range(BROKERS) if one != first]
            self.replicas.append([first, *randomness.sample(others, REPLICAS - 1)])
        self.leaders = [one[0] for one in self.replicas]
        if kind == "joins":
            newcomer = BROKERS - 1
            self.leaders = [two if one == newcomer else one for one, two, *_ in self.replicas]
        self.live = set(range(BROKERS))
        self._walk = [1.0] * PARTITIONS
        self._phases = [randomness.randrange(120) for _ in range(PARTITIONS)]
        self.loads = Loads()
        self.shedding = Shedding(SheddingRules())
        self.ratios: list[float] = []
        """The greatest load by the average load of a broker, after each step."""
        self.moves: list[Moved] = []
        self.looks: list[Look] = []
        self.now = 0.0

    def _drawn_loads(self) -> list[float]:
        if self._kind in {"warm", "hot"}:
            share = 0.8 if self._kind == "warm" else 2.0
            return [share * PARTITIONS / (BROKERS - share), *[1.0] * (PARTITIONS - 1)]
        skew = {"even": 0.0, "steep zipf": 1.1}.get(self._kind, 0.8)
        loads = [1.0 / rank**skew for rank in range(1, PARTITIONS + 1)]
        self._randomness.shuffle(loads)
        return [one * PARTITIONS / sum(loads) for one in loads]

    def _true_loads(self) -> list[float]:
        base, randomness = self._base, self._randomness
        if self._kind == "drifts":
            self._walk = [
                min(4.0, max(0.25, one * randomness.lognormvariate(0, 0.02))) for one in self._walk
            ]
        if self._kind == "shifts" and self.now >= CHANGE_S:
            base = base[PARTITIONS // 2 :] + base[: PARTITIONS // 2]
        loads = [one * walk for one, walk in zip(base, self._walk, strict=True)]
        if self._kind == "bursts":
            for one in range(0, PARTITIONS, 5):
                loads[one] *= 2.0 if (self.now + self._phases[one]) % 120 < 60 else 0.0
        return loads

    def _die(self) -> None:
        self.live.discard(0)
        for partition, leader in enumerate(self.leaders):
            if leader == 0:
                others = [one for one in self.replicas[partition] if one in self.live]
                self.leaders[partition] = min(others, key=self.leaders.count)

    def run(self, seconds: float) -> World:
        """Let that time pass."""
        end = self.now + seconds
        while self.now < end:
            self.step()
        return self

    def step(self) -> None:
        """Let the next step pass."""
        self.now += LOAD_INTERVAL_S
        if self._kind == "dies" and self.now >= CHANGE_S and 0 in self.live:
            self._die()
        loads = self._true_loads()
        self.ratios.append(self._ratio(loads))
        self._report(loads)
        look = self.shedding.look(self.now, self._led(), [BrokerId(one) for one in self.live])
        self.looks.append(look)
        if look.move is not None:
            move = look.move
            self.leaders[move.partition] = move.successor
            self.moves.append(Moved(self.now, move.partition, move.leader, move.successor))

    def _report(self, loads: list[float]) -> None:
        leaders = {PartitionId(at): BrokerId(one) for at, one in enumerate(self.leaders)}
        for broker in self.live:
            told = [
                PartitionLoad(partition, round(seen * MIB), 0, "")
                for partition, leader in leaders.items()
                if leader == broker
                for seen in [loads[partition] * self._randomness.uniform(0.7, 1.3)]
            ]
            self.loads.reported(BrokerId(broker), self.now, told, leaders)

    def _led(self) -> list[WeighedPartition]:
        return [
            WeighedPartition(
                PartitionId(partition),
                BrokerId(leader),
                [BrokerId(one) for one in self.replicas[partition] if one in self.live - {leader}],
                self.loads.of(PartitionId(partition)),
            )
            for partition, leader in enumerate(self.leaders)
        ]

    def _ratio(self, loads: list[float]) -> float:
        led = [0.0] * BROKERS
        for partition, leader in enumerate(self.leaders):
            led[leader] += loads[partition]
        found = [led[one] for one in self.live]
        return max(found) * len(found) / sum(found)

    # --- what came of it ---------------------------------------------------------------

    def minutes(self) -> list[float]:
        """The mean ratio of each minute."""
        return [
            sum(some) / len(some)
            for at in range(0, len(self.ratios), MINUTE)
            if (some := self.ratios[at : at + MINUTE])
        ]

    def moves_after(self, seconds: float) -> list[Moved]:
        """The moves from then on."""
        return [one for one in self.moves if one.at > seconds]

    def returns(self) -> list[Moved]:
        """The moves of a partition to a broker that it had left in the five minutes before."""
        left: defaultdict[tuple[int, int], float] = defaultdict(lambda: -1e9)
        found = []
        for one in self.moves:
            if one.at - left[one.partition, one.successor] < 300:
                found.append(one)
            left[one.partition, one.leader] = one.at
        return found
