"""Runs a relay of a static list.  Other nodes don't load what it needs."""

from __future__ import annotations

from collections.abc import Callable

import trio

from octopi.admin.relay_view import RelayBrokerView
from octopi.cli.compose import AGENT, place_for_node
from octopi.cli.config import BrokerSettings, NodeSettings
from octopi.cli.failures import CommandError, ExitCode
from octopi.cli.nodes import addresses_in, begin_broker
from octopi.identifiers import BrokerId
from octopi.limits import BROKER_ID_MAX
from octopi.roles.broker.relay.mesh import PlacedStreams
from octopi.roles.broker.relay.node import run_relay_broker
from octopi.roles.broker.relay.options import RelayOptions


async def run_relay_node(
    settings: BrokerSettings,
    partitions: int,
    replicas: int,
    common: NodeSettings,
    stop: trio.Event,
    ready: Callable[[str], None],
) -> None:
    """Run a relay until *stop* is set; *ready* is called with its url when it listens.
    *partitions* and *replicas* are the same on all relays of the list.

    Raises:
      CommandError: if the settings contradict each other.
      InvalidOptionError: if the list of relays is wrong.
      OctopiError: see `octopi.roles.broker.relay.node.run_relay_broker`.
    """
    relays, placed = relays_in(settings.relay_peers), places_in(settings.relay_place)
    me = settings.id
    if me is None or me not in relays:
        raise CommandError(
            "a relay says which one of --relay-peers it is: --id, one of "
            f"{', '.join(map(str, relays))}",
            ExitCode.USAGE,
        )
    broker = BrokerId(me)
    listen = settings.listen
    if listen == BrokerSettings().listen:
        listen = relays[broker].partition("://")[2].rstrip("/")
    secrets = begin_broker(settings, common)
    async with place_for_node(common, "broker", listen, ready, secrets) as place:
        options = RelayOptions(
            listen=listen,
            data_directory=settings.data_dir,
            broker=broker,
            relays=relays,
            secrets=secrets,
            partition_count=partitions,
            replica_count=replicas,
            placed=placed,
            relay_memory_bytes=settings.relay_memory,
            agent=AGENT,
            token=place.shelter.token,
            authenticator=place.shelter.authenticator,
            memory_budget_bytes=common.memory_budget,
        )
        await run_relay_broker(
            place.environment,
            options,
            stop=stop,
            show=lambda node: place.show(RelayBrokerView(node)),
            task_status=place,
        )


def relays_in(text: str) -> dict[BrokerId, str]:
    """The relays in *text*, such as ``1=ws://a:7001,2=ws://b:7001``.

    Raises:
      CommandError: if it is no such list, or has an id twice.
    """
    relays: dict[BrokerId, str] = {}
    for one in addresses_in(text):
        number, _, address = one.partition("=")
        if not (number.isascii() and number.isdecimal()) or not address:
            raise CommandError(
                f"--relay-peers: {one!r} is no relay; one looks like 1=ws://a:7001", ExitCode.USAGE
            )
        broker = BrokerId(int(number))
        if not 1 <= broker <= BROKER_ID_MAX or broker in relays:
            raise CommandError(
                f"--relay-peers: {one!r}: each relay has an id of its own, from 1", ExitCode.USAGE
            )
        relays[broker] = address
    return relays


def places_in(text: str) -> list[PlacedStreams]:
    """Which relays hold which topics, as in ``prices.*=1+2+3,games.*=3+4+5``.

    Raises:
      CommandError: if it has another form.
    """
    placed: list[PlacedStreams] = []
    for one in addresses_in(text) if text else []:
        pattern, _, members = one.partition("=")
        numbers = members.split("+")
        if not pattern or not all(each.isascii() and each.isdecimal() for each in numbers):
            raise CommandError(
                f"--relay-place: {one!r} places no topics; write prices.*=1+2+3: a topic name, in "
                "which * stands for any characters, and ids of relays",
                ExitCode.USAGE,
            )
        placed.append(PlacedStreams(pattern, tuple(BrokerId(int(each)) for each in numbers)))
    return placed
