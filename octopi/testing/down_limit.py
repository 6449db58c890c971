"""How many hosts may be down at once while faults are drawn."""

from __future__ import annotations

from collections.abc import Collection

from octopi.simulation.cluster import SimulatedCluster
from octopi.simulation.faults.actions import Action, Cut, FillDisk, Kill, LosePower, Pause, Stop
from octopi.testing.errors import MisuseError

_TAKING_DOWN = (Kill, LosePower, Stop, Pause, FillDisk)


class DownLimit:
    """Says which faults would take more than *count* of *hosts* down at once (without any: of the
    brokers).

    A host is down while no process runs on it, or its process stops or is paused, while it is cut
    off from the register and all brokers, and while its disk is full.
    """

    def __init__(self, simulated: SimulatedCluster, count: int, hosts: Collection[str]) -> None:
        if count < 1:
            raise MisuseError(
                f"at_most_down is {count}; it has to be at least 1: without a fault that takes a "
                "host down, leave these kinds of faults out"
            )
        self._simulated = simulated
        self._count = count
        self._hosts = tuple(hosts)

    def allows(self, action: Action, host: str) -> bool:
        """Whether *action* may happen to *host* now."""
        before = self.down()
        after = self._down_with(action, host)
        return after <= before or len(after) <= self._count

    def down(self) -> set[str]:
        """Those of the hosts that are down now."""
        return {one for one in self._counted() if self._is_down(one, ())}

    def _down_with(self, action: Action, host: str) -> set[str]:
        """Those of the hosts that are down when *action* has happened to *host*."""
        cuts: set[tuple[str, str]] = set()
        if isinstance(action, Cut):
            peers = self._simulated.nodes if action.peer == "others" else (action.peer,)
            cuts = {pair for peer in peers for pair in ((host, peer), (peer, host))}
        down = {one for one in self._counted() if self._is_down(one, cuts)}
        if isinstance(action, _TAKING_DOWN) and host in self._counted():
            down.add(host)
        return down

    def _counted(self) -> list[str]:
        if self._hosts:
            return [one for one in self._hosts if one in self._simulated.nodes]
        return [node.name for node in self._simulated.brokers]

    def _is_down(self, host: str, cuts: Collection[tuple[str, str]]) -> bool:
        node = self._simulated.nodes[host]
        life = node.host.life
        if life is None or life.is_paused or node.stop.is_set():
            return True
        if node.host.disk.capacity_bytes == 0:
            return True
        others = [one.name for one in self._simulated.servers if one.name != host]
        return bool(others) and all(self._is_cut(host, one, cuts) for one in others)

    def _is_cut(self, host: str, other: str, cuts: Collection[tuple[str, str]]) -> bool:
        """Whether packets are lost between the two, in one direction at least."""
        network = self._simulated.network
        return (host, other) in cuts or any(
            network.route(*pair).is_cut for pair in ((host, other), (other, host))
        )
