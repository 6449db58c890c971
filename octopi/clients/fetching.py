"""Fetches records with one request: `octopi.clients.client.Client.fetch`."""

from __future__ import annotations

from octopi.clients.answers import FetchResult
from octopi.clients.options import not_negative, within
from octopi.clients.routing import RequestRouter
from octopi.errors import HistoryForkedError
from octopi.identifiers import Offset, PartitionId, TopicId, topic_name
from octopi.limits import BATCH_BYTES_MAX, FETCH_WAIT_S_MAX
from octopi.position import Anchor, Place, checked_anchor
from octopi.record import decode
from octopi.wire.messages import Fetch, Fetched


async def fetch(
    router: RequestRouter,
    topic: str,
    place: Place,
    partition: PartitionId,
    bytes_max: int,
    wait_s: float,
    at: str | None,
) -> FetchResult:
    """The messages from *place* on; see `octopi.clients.client.Client.fetch`.

    Raises:
      OctopiError: see there.
    """
    within("bytes_max", bytes_max, 1, BATCH_BYTES_MAX)
    within("wait_s", wait_s, 0, FETCH_WAIT_S_MAX)
    offset, anchor = place.offset, checked_anchor(place.anchor)
    not_negative(offset=offset)
    name = topic_name(topic)
    wait_ms = round(wait_s * 1000)
    what = f"fetch from {topic}/{partition}"

    def question(request: int) -> Fetch:
        return Fetch(request, name, partition, offset, bytes_max, wait_ms, anchor)

    try:
        if at is None:
            found = await router.ask_leader(what, name, partition, question, Fetched, wait_s)
        else:
            found = await router.ask_broker(what, at, question, Fetched, wait_s)
    except HistoryForkedError as error:
        if error.offset is None:
            raise
        raise HistoryForkedError.of_range(name, partition, error.offset, offset) from None
    return FetchResult(
        TopicId(found.topic_id),
        decode(found.records, offset, name, PartitionId(partition)),
        Offset(found.log_start),
        Offset(found.highwater),
        Anchor(found.anchor),
    )
