"""`octopi-node cluster`: who decides in a cluster, a register or its brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs
import click

from octopi.cli.config import ClientSettings
from octopi.cli.invocation import Invocation, client_options, pass_invocation
from octopi.cli.output import say
from octopi.cli.rendering import counted

if TYPE_CHECKING:
    from octopi.cli.config import ClientSettings as Settings
    from octopi.identifiers import BrokerId
    from octopi.wire.hand_over import RegistersProgress

_LOOK_INTERVAL_S: Final = 0.5
_ANSWER_S: Final = 2.0
"""How long a broker has to say whether it is in the ring."""


@click.group()
def cluster() -> None:
    """Change who decides in a cluster."""


@cluster.command()
@click.option("--dry-run", is_flag=True, help="Only say whether it is possible.")
@client_options
@pass_invocation
def to_ring(
    invocation: Invocation,
    /,
    dry_run: bool,
    server: str | None,
    timeout_s: float | None,
) -> None:
    """Have the brokers decide without a register from now on, for good.

    \b
    For instance, with brokers that were started with --join beside --register:
      octopi-node cluster to-ring --server ws://127.0.0.1:7000

    The register hands over all that it has decided, and decides nothing any more.  Each broker
    takes that over within its process.  For a moment nobody leads: producers and consumers wait,
    and no message is lost.  The register refuses as long as a broker is away or is not
    prepared, and says what to do.

    The command waits until all brokers have taken over.  They go on by themselves if it is
    interrupted; run it again to wait again.  Stop the register only after that.
    """
    settings = invocation.configuration().section(
        ClientSettings, server=server, timeout_s=timeout_s
    )

    from octopi.cli.client_request import ask
    from octopi.cli.running import run
    from octopi.clients.ring import hand_over_to_ring

    brokers = ask(settings, lambda client: hand_over_to_ring(client, dry_run=dry_run))
    if dry_run:
        say(f"the register can hand over to {counted(len(brokers), 'broker')}", err=True)
        return
    say(f"the cluster has no register any more: {counted(len(brokers), 'broker')} decide", err=True)
    run(lambda: _wait_for(brokers, settings))
    say("all brokers have taken over: the register can be stopped", err=True)


async def _wait_for(brokers: list[str], settings: Settings) -> None:
    """Wait until all *brokers* are in the ring, and say which ones are awaited."""
    import trio

    said = ""
    while missing := [one for one in brokers if not await _is_in_ring(one, settings)]:
        line = f"not in the ring yet: {', '.join(missing)}"
        if line != said:
            say(line, err=True)
            said = line
        await trio.sleep(_LOOK_INTERVAL_S)


async def _is_in_ring(broker: str, settings: Settings) -> bool:
    from octopi.cli.client_request import connected
    from octopi.clients.ring import describe_ring
    from octopi.errors import OctopiError

    try:
        asked = attrs.evolve(settings, server=broker, timeout_s=_ANSWER_S)
        async with connected(asked) as client:
            found = await describe_ring(client)
    except OctopiError:
        return False
    return found.me is not None and not found.waits_for


@cluster.command()
@click.argument("registers", nargs=-1, required=True)
@click.option("--dry-run", is_flag=True, help="Only say whether it is possible.")
@client_options
@pass_invocation
def to_registers(
    invocation: Invocation,
    /,
    registers: tuple[str, ...],
    dry_run: bool,
    server: str | None,
    timeout_s: float | None,
) -> None:
    """Have a register, or several that agree, decide from now on, in a cluster without one.

    REGISTERS: their addresses.  They run with empty data directories and the join secret of the
    brokers.

    \b
    For instance:
      octopi-node cluster to-registers ws://127.0.0.1:7000 --server ws://127.0.0.1:9101

    The brokers finish what they have begun about topics, close all partitions, and then join the
    registers, each within its process.  For a moment nobody leads: producers and consumers wait,
    and no message is lost.  The order is refused as long as a broker is away or a register is not
    empty, and given up if a broker is lost before all partitions are closed.

    The command waits until all brokers have joined.  They go on by themselves if it is interrupted;
    run it again to wait again.
    """
    settings = invocation.configuration().section(
        ClientSettings, server=server, timeout_s=timeout_s
    )

    from octopi.cli.client_request import ask
    from octopi.cli.nodes import addresses_in
    from octopi.cli.running import run
    from octopi.clients.ring import hand_over_to_registers

    addresses = [address for one in registers for address in addresses_in(one)]
    progress = ask(
        settings, lambda client: hand_over_to_registers(client, addresses, dry_run=dry_run)
    )
    if dry_run:
        count = counted(len(progress.brokers), "broker")
        say(f"{count} can hand the cluster over to {', '.join(addresses)}", err=True)
        return
    run(lambda: _follow(progress, addresses, settings))
    say("all brokers have joined: the cluster has a register", err=True)


async def _follow(progress: RegistersProgress, registers: list[str], settings: Settings) -> None:
    """Wait until all brokers have joined a register, and say how far it is."""
    import trio

    from octopi.cli.client_request import connected
    from octopi.clients.ring import hand_over_to_registers
    from octopi.errors import OctopiError
    from octopi.ring.ending import EndingStage

    said, brokers = "", progress.brokers
    while True:
        asked = settings
        if progress.stage == EndingStage.ENDED:
            missing = await _not_joined(brokers, registers, settings)
            if not missing:
                return
            line = f"registers decide; not joined yet: broker {', '.join(map(str, missing))}"
        else:
            waits_for = ", ".join(map(str, progress.waits_for))
            line = f"{progress.stage}: waits for broker {waits_for}"
        if line != said:
            say(line, err=True)
            said = line
        await trio.sleep(_LOOK_INTERVAL_S)
        if progress.stage != EndingStage.ENDED:
            try:
                async with connected(asked) as client:
                    progress = await hand_over_to_registers(client, registers)
            except OctopiError as error:
                say(f"asks again: {error}", err=True)


async def _not_joined(
    brokers: list[BrokerId], registers: list[str], settings: Settings
) -> list[BrokerId]:
    """Those of *brokers* that no register counts as its own now."""
    from octopi.cli.client_request import connected
    from octopi.errors import OctopiError

    try:
        asked = attrs.evolve(settings, server=",".join(registers), timeout_s=_ANSWER_S)
        async with connected(asked) as client:
            found = await client.admin.describe_cluster()
    except OctopiError:
        return brokers
    live = {one.broker for one in found.brokers if one.live}
    return [one for one in brokers if one not in live]
