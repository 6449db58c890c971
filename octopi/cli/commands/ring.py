"""`octopi-node ring`: the brokers of a cluster without a register, and which one holds what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs
import click

from octopi.cli.config import ClientSettings
from octopi.cli.invocation import Invocation, client_options, json_option, pass_invocation
from octopi.cli.output import print_json, say
from octopi.cli.rendering import counted, print_table

if TYPE_CHECKING:
    from octopi import Client
    from octopi.wire.ring import LeaveProgress, RingDescription, RingNode

_LOOK_INTERVAL_S: Final = 0.5


@click.group()
def ring() -> None:
    """Look at a cluster without a register: its brokers, and who holds a partition; have a broker
    leave it."""


@ring.command()
@json_option
@client_options
@pass_invocation
def show(
    invocation: Invocation, /, as_json: bool, server: str | None, timeout_s: float | None
) -> None:
    """Print what one broker knows of the ring.

    \b
    For instance:
      octopi-node ring show --server ws://127.0.0.1:9101

    It says how many partitions the asked broker leads, and of how many of them no majority of the
    acceptors answers it, which brokers are drained or leave, and in which stage a hand-over to
    registers is, and for whom it waits.  There is a line for each broker,
    in the order of the ring from the asked one on.  STATE is `asked` for that one, `successor` and
    its number for those that it keeps in touch with, `known` for the others, and `silent` for a
    broker that did not answer last.  HEARD is the seconds since it was heard, by any broker that
    told of it.
    """
    settings = invocation.configuration().section(
        ClientSettings, server=server, timeout_s=timeout_s
    )

    from octopi.cli.client_request import ask
    from octopi.clients.ring import describe_ring

    found = ask(settings, describe_ring)
    if as_json:
        print_json(attrs.asdict(found))
        return
    if found.waits_for:
        say(f"not in the ring: {found.waits_for}")
    if not found.cluster:
        return
    agreed = " ".join(map(str, found.acceptors))
    say(f"cluster {found.cluster}: {found.partitions} partitions; brokers {agreed} agree about it")
    if found.me is None:
        return
    fenced = f", {found.fenced} of them without a majority" if found.fenced else ""
    say(f"it leads {found.leads} partitions{fenced}")
    if found.drained:
        say(f"drained until they are started again: {' '.join(map(str, found.drained))}")
    if found.leaving:
        say(f"leaving for good: {' '.join(map(str, found.leaving))}")
    if found.ending:
        say(hand_over_line(found))
    places = {one.identity: f"successor {at}" for at, one in enumerate(found.successors, 1)}
    rows: list[list[object]] = [_row(found.me, "asked", 0.0)]
    own = found.me.place
    for one in sorted(found.known, key=lambda one: (one.node.place < own, one.node.place)):
        state = "silent" if one.is_silent else places.get(one.node.identity, "known")
        heard_s = None if one.heard_ms is None else one.heard_ms / 1000
        rows.append(_row(one.node, state, heard_s))
    print_table(["BROKER", "ADDRESS", "HOST", "POINT", "STARTS", "STATE", "HEARD"], rows)


def hand_over_line(found: RingDescription) -> str:
    """How far it is that registers are to decide."""
    to = " ".join(found.registers)
    match found.ending:
        case "ended":
            return f"handed over to {to}"
        case "given_up":
            return f"the hand-over to {to} was given up: nothing has changed"
    awaited = " ".join(map(str, found.ending_awaits))
    return f"being handed over to {to}, stage {found.ending}: waits for broker {awaited}"


def _row(node: RingNode, state: str, heard_s: float | None) -> list[object]:
    heard = None if heard_s is None else round(heard_s, 1)
    point = f"{node.point:013x}"
    return [node.broker, node.address, node.host, point, node.incarnation, state, heard]


@ring.command()
@click.argument("what", metavar="TOPIC|PARTITION")
@json_option
@client_options
@pass_invocation
def locate(
    invocation: Invocation, /, what: str, as_json: bool, server: str | None, timeout_s: float | None
) -> None:
    """Print which broker holds PARTITION (a number), or the home partition of TOPIC: the one that
    would keep the record of a topic of that name.

    \b
    For instance:
      octopi-node ring locate orders
      octopi-node ring locate 7

    The brokers behind the holder are named, too, in their order.  ASKED is how many brokers were
    asked on the way.
    """
    settings = invocation.configuration().section(
        ClientSettings, server=server, timeout_s=timeout_s
    )

    from octopi.cli.client_request import ask
    from octopi.clients.ring import locate as located

    number = int(what) if what.isdecimal() and what.isascii() else None
    if number is None:
        found = ask(settings, lambda client: located(client, what))
    else:
        partition = number
        found = ask(settings, lambda client: located(client, partition=partition))
    if as_json:
        print_json(attrs.asdict(found))
        return
    behind = " ".join(str(one.broker) for one in found.successors)
    print_table(
        ["PARTITION", "KEY", "BROKER", "ADDRESS", "BEHIND IT", "ASKED"],
        [
            [
                found.partition,
                f"{found.key:013x}",
                found.holder.broker,
                found.holder.address,
                behind,
                found.steps,
            ]
        ],
    )


@ring.command()
@click.argument("broker", type=click.IntRange(min=1), metavar="ID")
@click.option(
    "--cancel", is_flag=True, help="Take the order back: the broker stays, unless it is gone."
)
@client_options
@pass_invocation
def leave(
    invocation: Invocation,
    /,
    broker: int,
    cancel: bool,
    server: str | None,
    timeout_s: float | None,
) -> None:
    """Have broker ID leave the cluster for good.

    \b
    For instance, to have one broker fewer:
      octopi-node ring leave 4

    Others lead what it leads, get what it has, and agree instead of it; then it is removed, and its
    process ends.  Producers and consumers are not interrupted.  A broker that is dead is removed in
    the same way, at once instead of after ten minutes.  The id is never used again, and a broker
    can't be started with the old data directory.

    The command waits until the broker is gone, and says what still counts on it.  The brokers go on
    by themselves if the command is interrupted, or any broker dies; run it again to wait again.
    """
    settings = invocation.configuration().section(
        ClientSettings, server=server, timeout_s=timeout_s
    )

    import trio

    from octopi.cli.client_request import ask
    from octopi.clients.ring import order_leave

    if cancel:
        found = ask(settings, lambda client: order_leave(client, broker, is_taken_back=True))
        say(f"broker {broker} {'is gone already' if found.is_gone else 'stays'}", err=True)
        return

    # It may be the broker that leaves to which this command was pointed.
    known = ask(settings, lambda client: client.admin.describe_cluster()).brokers
    others = [one.address for one in known if one.broker != broker and one.live]
    settings = attrs.evolve(settings, server=",".join(others) or settings.server)

    async def wait(client: Client) -> None:
        said = ""
        while not (found := await order_leave(client, broker)).is_gone:
            if (line := _progress(found)) != said:
                say(line, err=True)
                said = line
            await trio.sleep(_LOOK_INTERVAL_S)

    ask(settings, wait)
    say(f"broker {broker} is removed from the cluster", err=True)


def _progress(found: LeaveProgress) -> str:
    line = (
        f"broker {found.broker} leads {counted(found.leads, 'partition')}, has a replica of "
        f"{found.replicas}, decides about {found.decides}"
    )
    return f"{line}; {found.waits_for}" if found.waits_for else line
