"""What must hold of topics in memory when all faults have ended: the members of each set take part
in one epoch, and hold the same.
"""

from __future__ import annotations

from typing import Final

from octopi.clients.client import Client, connect
from octopi.clients.relays import describe_relays, verify_relays
from octopi.environment import Environment
from octopi.errors import OctopiError
from octopi.limits import RELAYS_MIN
from octopi.retry import may_pass
from octopi.simulation.history.events import LogName
from octopi.simulation.quiescence import Quiescence
from sim.run.client_log import ClientLog

_HOST: Final = "verifier"
_AGAIN_S: Final = 0.2


class RelayChecks:
    """Checks of the cluster of *client_log*; without topics in memory, nothing is ever missing."""

    def __init__(self, client_log: ClientLog) -> None:
        self.cut_off = ""
        """The host that stays away; empty: none."""
        self.ends: dict[LogName, int] = {}
        """The end of each stream, at the last look at which all was right."""
        self._client_log = client_log
        self._cluster = client_log.cluster
        self._rest = Quiescence(self._cluster)
        self._wrong = "not known yet"
        if client_log.relay_topics:
            self._cluster.add_client(_HOST, self._run)

    def fault(self) -> str:
        """How relays differ, or are none, as text; empty: they don't, or there are none."""
        if not self._client_log.relay_topics:
            return ""
        self._cluster.boot(_HOST)
        return self._wrong

    def look_again(self) -> None:
        """Have `fault` tell how it is from now on."""
        self._wrong = "not known yet"

    async def _run(self, environment: Environment) -> None:
        client_log, clock = self._client_log, environment.clock
        async with connect(self._cluster.addresses, environment=environment) as client:
            while self._wrong:
                try:
                    self._wrong = await self._find_wrong(client)
                except OctopiError as error:
                    self._wrong = str(error)
                    if not may_pass(error):
                        client_log.complain(_HOST, error)
                        return
                await clock.sleep_until(clock.now() + _AGAIN_S)

    async def _find_wrong(self, client: Client) -> str:
        views = {one.broker.broker: one for one in await describe_relays(client)}
        away = self._cluster.broker_of(self.cut_off) if self.cut_off else None
        for place in (await client.admin.describe_cluster()).relays:
            for broker in place.replicas:
                if self._rest.is_gone(broker):
                    await client.admin.remove_broker(broker)
                    return (
                        f"broker {broker}, which is gone, was in relay partition {place.partition}"
                    )
            least = min(RELAYS_MIN, len(self._rest.ids()))
            if len(place.replicas) < least:
                return f"relay partition {place.partition} has only the members {place.replicas}"
            wanted = [one for one in place.replicas if one != away]
            told = {
                broker: [one for one in views[broker].relays if one.partition == place.partition]
                for broker in wanted
                if broker in views
            }
            normal = {
                broker: of.epoch
                for broker, some in told.items()
                for of in some
                if of.state == "normal"
            }
            if len(normal) < len(wanted) or len({*normal.values()}) != 1:
                return f"relay partition {place.partition} has members {place.replicas}: {told}"
        for stream in self._client_log.streams:
            verdict = await verify_relays(client, stream.topic)
            found = await client.find_offset(stream.topic, "latest", partition=stream.partition)
            if not verdict.is_right or verdict.compared != found.offset:
                return f"{stream} ends at {found.offset}: {verdict}"
            self.ends[stream] = found.offset
        return ""
