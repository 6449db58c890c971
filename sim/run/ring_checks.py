"""What must hold in a cluster without a register when all faults have ended: its brokers are one
ring, and each of them lists the topics that there are.
"""

from __future__ import annotations

from typing import Final

from octopi.clients.client import connect
from octopi.environment import Environment
from octopi.errors import OctopiError
from octopi.retry import may_pass
from octopi.simulation.invariants.ring_order import fault_of_ring
from sim.run.client_log import ClientLog

_HOST: Final = "lister"
_AGAIN_S: Final = 0.2


class RingChecks:
    """Checks of the cluster of *client_log*; with a register, nothing is ever missing."""

    def __init__(self, client_log: ClientLog) -> None:
        self.cut_off = ""
        """The host that stays away; empty: none."""
        self._client_log = client_log
        self._cluster = client_log.cluster
        self._unlisted: str | None = None
        """How the lists of topics differ; None: nobody has asked yet."""
        if self._cluster.is_ring:
            self._cluster.add_client(_HOST, self._run)

    def fault(self) -> str:
        """How the brokers are not one ring, as text; empty: they are."""
        return fault_of_ring(self._cluster, self.cut_off) if self._cluster.is_ring else ""

    def unlisted(self) -> str:
        """Which brokers list other topics than there are, as text; empty: none."""
        if not self._cluster.is_ring:
            return ""
        self._cluster.boot(_HOST)
        return "not known yet" if self._unlisted is None else self._unlisted

    async def _run(self, environment: Environment) -> None:
        clock = environment.clock
        while self._unlisted != "":
            try:
                self._unlisted = await self._find_unlisted(environment)
            except OctopiError as error:
                if not may_pass(error):
                    self._client_log.complain(_HOST, error)
                    return
            await clock.sleep_until(clock.now() + _AGAIN_S)

    async def _find_unlisted(self, environment: Environment) -> str:
        state = self._cluster.decided.state
        for node in self._cluster.brokers:
            if node.name == self.cut_off:
                continue
            address = self._cluster.address_of(node.name)
            async with connect([address], environment=environment) as client:
                listed = {one.topic: one.topic_id for one in await client.topics()}
            topics = state.topics_after("", state.topic_count)
            known = {one.topic: one.topic_id for one in topics}
            if listed != known:
                return f"{node.name} lists {listed}, and there are {known}"
        return ""
