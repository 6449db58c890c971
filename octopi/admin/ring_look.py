"""What the brokers of a cluster without a register say of the ring, for the pages of a node."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import Final

import attrs
import trio

from octopi.admin.page_writer import Json
from octopi.clients.routing import RequestRouter
from octopi.errors import OctopiError
from octopi.ring.points import RING_SIZE, distance
from octopi.wire.messages import BrokerInfo
from octopi.wire.ring import DescribeRing, RingDescription, RingNode

RING_ASKED_MAX: Final = 20
"""How many brokers are asked for their neighbours."""


@attrs.frozen
class RingLook:
    """Answers of brokers about the ring."""

    own: RingDescription
    """Of the node that is asked."""
    others: dict[int, RingDescription]
    """Of the others that were asked and answered."""


async def look_at_ring(
    router: RequestRouter, address: str, brokers: Collection[BrokerInfo]
) -> RingLook:
    """Ask the node itself, at *address*, and up to `RING_ASKED_MAX` other *brokers* that are there.

    A question to any node could be answered by another one, when this one is slow.

    Raises:
      OctopiError: if the node itself does not answer.
    """
    own = await router.ask_broker("describe the ring", address, DescribeRing, RingDescription)
    others: dict[int, RingDescription] = {}

    async def ask(broker: BrokerInfo) -> None:
        with suppress(OctopiError):
            others[broker.broker] = await router.ask_broker(
                "describe the ring", broker.address, DescribeRing, RingDescription
            )

    me = None if own.me is None else own.me.broker
    asked = [one for one in brokers if one.live and one.broker != me][:RING_ASKED_MAX]
    async with trio.open_nursery() as nursery:
        for broker in asked:
            nursery.start_soon(ask, broker)
    return RingLook(own, others)


def ring_page(look: RingLook) -> Json:
    """The ring as a page has it: the brokers in its order, from the one with the lowest point on.

    ``share`` is the part of the ring for whose keys a broker comes first, from 0 to 1.
    ``before`` and ``behind`` are its neighbours as it says itself; None: it was not asked, or gave
    no answer."""
    own = look.own
    nodes: list[tuple[RingNode, int | None, bool]] = []
    if own.me is not None:
        nodes.append((own.me, 0, False))
    nodes += [(one.node, one.heard_ms, one.is_silent) for one in own.known]
    nodes.sort(key=lambda one: one[0].place)
    me = None if own.me is None else own.me.broker
    entries: list[Json] = []
    for at, (node, heard_ms, is_silent) in enumerate(nodes):
        said = own if node.broker == me else look.others.get(node.broker)
        share = distance(nodes[at - 1][0].point, node.point) if len(nodes) > 1 else RING_SIZE
        entries.append(
            {
                "broker": node.broker,
                "address": node.address,
                "host": node.host,
                "at": node.point / RING_SIZE,
                "share": share / RING_SIZE,
                "state": "silent" if is_silent else "answering",
                "heard_ms": heard_ms,
                "drained": node.broker in own.drained,
                "leaving": node.broker in own.leaving,
                "decides": node.broker in own.acceptors,
                "before": None if said is None else _number(said.predecessor),
                "behind": None if said is None else _numbers(said.successors),
                "version": None if said is None else said.change,
                "fenced": None if said is None else said.fenced,
            }
        )
    return {
        "asked": me,
        "version": own.change,
        "acceptors": list(own.acceptors),
        "waits_for": own.waits_for,
        "brokers": entries,
    }


def _number(node: RingNode | None) -> int | None:
    return None if node is None else node.broker


def _numbers(nodes: Iterable[RingNode]) -> list[int]:
    return [one.broker for one in nodes]
