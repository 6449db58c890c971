"""What relays say of themselves and of their streams, for the pages of a node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final

import attrs
import trio

from octopi.admin.page_writer import Json
from octopi.clients.routing import RequestRouter
from octopi.errors import OctopiError
from octopi.identifiers import BrokerId
from octopi.limits import OFFSET_MAX
from octopi.wire.messages import BrokerInfo, TopicInfo
from octopi.wire.relay_descriptions import (
    DescribeRelays,
    DescribeRelayStream,
    RelayInfo,
    RelayList,
    RelayStreamDescription,
)

RELAYS_ASKED_MAX: Final = 20
"""How many relays are asked."""

STREAMS_COMPARED_MAX: Final = 20
"""Of how many topics the digests are compared, the first ones by name."""

_DIGEST_SHOWN_BYTES: Final = 4


@attrs.frozen
class StreamLook:
    """One stream, as relays hold it."""

    topic: str
    partition: int
    ends: dict[BrokerId, int]
    """Up to where each relay delivers it."""
    compared: int
    """So far all of them deliver: there the digests are compared."""
    digests: dict[BrokerId, bytes]
    """The digest there, of each relay that has it in memory."""


@attrs.frozen
class RelayLook:
    """Answers of relays."""

    relays: dict[BrokerId, tuple[RelayInfo, ...]]
    """By broker, those that answered."""
    streams: list[StreamLook]
    topic_count: int
    """Of the topics in memory, also those that were not compared."""


async def look_at_relays(
    router: RequestRouter, topics: Sequence[TopicInfo], brokers: Collection[BrokerInfo]
) -> RelayLook | None:
    """Ask the relays of *topics*, which are in memory, how they take part, and for their digests;
    None: there are no such topics.  Relays that don't answer are left out."""
    if not topics:
        return None
    members = {broker for one in topics for place in one.partitions for broker in place.replicas}
    asked = [one for one in brokers if one.live and one.broker in members][:RELAYS_ASKED_MAX]
    relays: dict[BrokerId, tuple[RelayInfo, ...]] = {}
    streams: list[StreamLook] = []

    async def ask(broker: BrokerInfo) -> None:
        with suppress(OctopiError):
            answer = await router.ask_broker(
                "describe relays", broker.address, DescribeRelays, RelayList
            )
            relays[broker.broker] = answer.relays

    async def compare(topic: TopicInfo) -> None:
        streams.append(await _compared(router, topic, asked))

    async with trio.open_nursery() as nursery:
        for broker in asked:
            nursery.start_soon(ask, broker)
        for one in topics[:STREAMS_COMPARED_MAX]:
            nursery.start_soon(compare, one)
    return RelayLook(relays, sorted(streams, key=lambda one: one.topic), len(topics))


async def _compared(
    router: RequestRouter, topic: TopicInfo, brokers: Iterable[BrokerInfo]
) -> StreamLook:
    [place] = topic.partitions
    ends: dict[BrokerId, int] = {}
    digests: dict[BrokerId, bytes] = {}

    async def ask(broker: BrokerInfo, at: tuple[int, ...]) -> None:
        with suppress(OctopiError):
            answer = await router.ask_broker(
                "ask a relay for its digests",
                broker.address,
                lambda request: DescribeRelayStream(
                    request, topic.topic, OFFSET_MAX, OFFSET_MAX, at
                ),
                RelayStreamDescription,
            )
            ends.setdefault(broker.broker, answer.highwater)
            for one in answer.points:
                digests[broker.broker] = one.digest

    members = [one for one in brokers if one.broker in place.replicas]
    async with trio.open_nursery() as nursery:
        for one in members:
            nursery.start_soon(ask, one, ())
    compared = min(ends.values(), default=0)
    async with trio.open_nursery() as nursery:
        for one in members if ends else ():
            nursery.start_soon(ask, one, (compared,))
    return StreamLook(topic.topic, place.partition, ends, compared, digests)


def off_the_majority(digests: Mapping[BrokerId, bytes]) -> list[BrokerId]:
    """Those whose digest is not that of more than half; if none is, all, unless they are alike."""
    counts = Counter(digests.values()).most_common(1)
    if not counts:
        return []
    most, count = counts[0]
    is_majority = 2 * count > len(digests)
    return sorted(one for one, digest in digests.items() if digest != most or not is_majority)


def relay_page(look: RelayLook, covers: Callable[[str], bool]) -> Json:
    """The relays as a page has them: the partitions by number, with what each member says of
    itself, and the streams that the requester may know of.

    ``state`` of a member is ``away`` if it did not answer.  ``digest`` is the first bytes of that
    at ``compared``, in hex; None: the member does not have it in memory, or did not answer.
    ``differs`` names the members whose digest is not that of the others."""
    partitions: dict[int, dict[BrokerId, RelayInfo]] = {}
    for broker, relays in look.relays.items():
        for one in relays:
            partitions.setdefault(one.partition, {})[broker] = one
    shown = [one for one in look.streams if covers(one.topic)]
    return {
        "partitions": [_partition(number, partitions[number]) for number in sorted(partitions)],
        "streams": [_stream(one) for one in shown],
        "topic_count": look.topic_count,
    }


def _partition(number: int, said: Mapping[BrokerId, RelayInfo]) -> Json:
    newest = max(said.values(), key=lambda one: (one.generation, one.epoch, one.state == "normal"))
    return {
        "partition": number,
        "sequencer": newest.sequencer,
        "generation": newest.generation,
        "epoch": newest.epoch,
        "members": [
            _member(broker, said.get(broker)) for broker in sorted({*newest.members, *said})
        ],
    }


def _member(broker: BrokerId, one: RelayInfo | None) -> Json:
    if one is None:
        return {"broker": broker, "state": "away"}
    return {
        "broker": broker,
        "state": one.state,
        "generation": one.generation,
        "epoch": one.epoch,
        "heard": list(one.heard),
        "streams": one.streams,
        "repairs": one.repairs,
        "held_bytes": one.held_bytes,
        "uncommitted_bytes": one.uncommitted_bytes,
    }


def _stream(one: StreamLook) -> Json:
    return {
        "topic": one.topic,
        "partition": one.partition,
        "compared": one.compared,
        "members": [
            {"broker": broker, "end": end, "digest": _short(one.digests.get(broker))}
            for broker, end in sorted(one.ends.items())
        ],
        "differs": off_the_majority(one.digests),
    }


def _short(digest: bytes | None) -> str | None:
    return None if digest is None else digest[:_DIGEST_SHOWN_BYTES].hex()
