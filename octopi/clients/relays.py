"""What the command line asks relays (`octopi.relay`): how they take part, and whether they hold the
same."""

from __future__ import annotations

from typing import Final

import attrs

from octopi.clients.client import Client
from octopi.errors import RefusedError, Status
from octopi.identifiers import BrokerId, Offset, TopicName, topic_name
from octopi.limits import OFFSET_MAX
from octopi.wire.common import BrokerInfo
from octopi.wire.relay_descriptions import (
    DescribeRelays,
    DescribeRelayStream,
    RelayInfo,
    RelayList,
    RelayStreamDescription,
)

_FIRST: Final = Offset(0)
_LAST: Final = Offset(OFFSET_MAX)
_LOOKS_MAX: Final = 8
"""Each look narrows down a difference to a sixtieth, and a buffer has 100,000 transactions."""


@attrs.frozen
class RelayView:
    """What a relay says of itself."""

    broker: BrokerInfo
    relays: tuple[RelayInfo, ...]
    fault: str
    """Why it could not be asked; empty: it was."""


@attrs.frozen
class RelayVerdict:
    """Whether the relays that hold a topic hold the same."""

    topic: str
    compared: Offset
    """Up to here their digests were compared: so far all of them deliver."""
    digests: dict[BrokerId, bytes]
    """The digest there, of each relay; empty: the relay does not know it."""
    differs: Offset | None
    """They are known to be alike up to here, and differ somewhere behind; None: they don't
    differ."""

    @property
    def is_right(self) -> bool:
        """Whether all of them have the same digest."""
        return self.differs is None


async def describe_relays(client: Client) -> list[RelayView]:
    """What each relay says of itself.

    Raises:
      RefusedError: WRONG_ENDPOINT, if the cluster has no topics in memory.
    """
    found: list[RelayView] = []
    for broker in (await client.admin.describe_cluster()).brokers:
        if not broker.live:
            found.append(RelayView(broker, (), "not connected to the relay that was asked"))
            continue
        answer = await client._router.ask_broker(
            f"describe relay {broker.broker}", broker.address, DescribeRelays, RelayList
        )
        found.append(RelayView(broker, answer.relays, ""))
    return found


async def verify_relays(client: Client, topic: str) -> RelayVerdict:
    """Compare the digests of *topic* at all relays that serve it.

    Raises:
      UnknownTopicError: if nobody uses it.
      RefusedError: WRONG_KIND, if it is in logs.
      OctopiError: if a relay can't be asked.
    """
    name = topic_name(topic)
    info = await client.describe_topic(name)
    if not info.is_relay:
        raise RefusedError(f"topic {name} is in logs, not in memory", Status.WRONG_KIND)
    [place] = info.partitions
    brokers = {one.broker: one for one in (await client.admin.describe_cluster()).brokers}
    comparison = _Comparison(client, name, [brokers[one] for one in place.in_sync])
    return await comparison.verdict()


class _Comparison:
    """Looks for the first transaction in which relays differ."""

    def __init__(self, client: Client, topic: TopicName, brokers: list[BrokerInfo]) -> None:
        self._client, self._topic, self._brokers = client, topic, brokers

    async def verdict(self) -> RelayVerdict:
        said = {one.broker: await self._ask(one) for one in self._brokers}
        compared = min(Offset(one.highwater) for one in said.values())
        begin = max(Offset(one.start) for one in said.values())
        if begin > compared:
            return RelayVerdict(self._topic, compared, dict.fromkeys(said, b""), None)
        digests = await self._digests([compared])
        at_end = {broker: held.get(compared, b"") for broker, held in digests.items()}
        differs = None
        if len(set(at_end.values())) > 1:
            differs = await self._common(begin, compared)
        return RelayVerdict(self._topic, compared, at_end, differs)

    async def _common(self, low: Offset, high: Offset) -> Offset:
        """The last place of the first relay at which all have its digest, from *low* on."""
        for _ in range(_LOOKS_MAX):
            points = (await self._ask(self._brokers[0], begin=low, end=high)).points
            known = await self._digests([Offset(one.offset) for one in points])
            alike = [
                Offset(one.offset)
                for one in points
                if all(held.get(one.offset) == one.digest for held in known.values())
            ]
            before, low = low, max(alike, default=low)
            behind = [Offset(one.offset) for one in points if one.offset > low]
            if not behind or (before == low and behind[0] == high):
                break
            high = behind[0]
        return low

    async def _digests(self, ends: list[Offset]) -> dict[BrokerId, dict[int, bytes]]:
        """What each relay has at *ends*."""
        found: dict[BrokerId, dict[int, bytes]] = {}
        for broker in self._brokers:
            answer = await self._ask(broker, ends=tuple(ends))
            found[broker.broker] = {one.offset: one.digest for one in answer.points}
        return found

    async def _ask(
        self,
        broker: BrokerInfo,
        *,
        begin: Offset = _FIRST,
        end: Offset = _LAST,
        ends: tuple[Offset, ...] = (),
    ) -> RelayStreamDescription:
        return await self._client._router.ask_broker(
            f"ask relay {broker.broker} for its digests",
            broker.address,
            lambda request: DescribeRelayStream(request, self._topic, begin, end, ends),
            RelayStreamDescription,
        )
