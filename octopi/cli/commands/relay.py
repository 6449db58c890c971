"""`octopi-node relay`: relays, which keep topics in memory, and whether they hold the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import click

from octopi.cli.config import ClientSettings
from octopi.cli.failures import CommandError, ExitCode
from octopi.cli.invocation import Invocation, client_options, json_option, pass_invocation
from octopi.cli.output import print_json, say
from octopi.cli.rendering import print_table, size
from octopi.cli.topic_completion import complete_topics

if TYPE_CHECKING:
    from octopi.clients.relays import RelayView


@click.group()
def relay() -> None:
    """Look at relays, which keep topics in memory."""


@relay.command()
@json_option
@client_options
@pass_invocation
def status(
    invocation: Invocation, /, as_json: bool, server: str | None, timeout_s: float | None
) -> None:
    """Print how each relay takes part in each relay partition.

    \b
    For instance:
      octopi-node relay status --server ws://127.0.0.1:7101

    STATE is `normal` for a relay that takes part, `joining` for one that knows nothing yet,
    `changing` while another sequencer begins, `fenced` for one that hears no majority, and `away`
    for one that the asked relay is not connected to.  SEQUENCER is who puts messages in order.
    EPOCH is the generation of the timeline and the number in it: a greater generation than before
    means that history may have been lost.  WAITING is what no majority has written yet.
    """
    settings = invocation.configuration().section(
        ClientSettings, server=server, timeout_s=timeout_s
    )

    from octopi.cli.client_request import ask
    from octopi.clients.relays import describe_relays

    found = ask(settings, describe_relays)
    if as_json:
        print_json([attrs.asdict(one) for one in found])
        return
    if not any(one.relays or one.fault for one in found):
        say("no topic is in memory; `octopi-node topics create NAME --kind relay` makes one")
        return
    header = ["PARTITION", "RELAY", "STATE", "SEQUENCER", "EPOCH", "STREAMS", "REPAIRS"]
    print_table([*header, "HELD", "WAITING", "HEARS"], _rows(found))


def _rows(found: list[RelayView]) -> list[list[object]]:
    rows: list[list[object]] = []
    for view in found:
        broker = view.broker.broker
        if view.fault:
            rows.append([None, broker, "away", None, None, None, None, None, None, None])
        for one in view.relays:
            epoch = f"{one.generation}.{one.epoch}" if one.generation else None
            heard = " ".join(map(str, one.heard))
            held, waiting = size(one.held_bytes), size(one.uncommitted_bytes)
            role = [one.partition, broker, one.state, one.sequencer, epoch]
            rows.append([*role, one.streams, one.repairs, held, waiting, heard])
    return sorted(rows, key=lambda row: (row[0] is None, row[0] or 0, row[1]))


@relay.command("set")
@click.argument("partition", type=click.IntRange(min=0))
@click.argument("members", metavar="BROKER,BROKER,...|auto")
@client_options
@pass_invocation
def set_members(
    invocation: Invocation,
    /,
    partition: int,
    members: str,
    server: str | None,
    timeout_s: float | None,
) -> None:
    """Give a relay partition these members, in a cluster with a register.

    \b
    For instance:
      octopi-node relay set 3 1,2,5
      octopi-node relay set 3 auto

    One after the other is added or removed, and messages go on meanwhile.  A set has 3 to 9
    members, which lie on different hosts.  The register replaces by itself members that were
    removed or drained (`octopi-node brokers`), or have been away for five minutes, as long as the
    set has as many members as it was given last.

    It also moves members so that each broker is in about as many sets as others, but not those of a
    set that was given its members by this command.  `auto` gives that set back to the register.
    """
    settings = invocation.configuration().section(
        ClientSettings, server=server, timeout_s=timeout_s
    )
    try:
        wanted = [] if members == "auto" else [int(one) for one in members.split(",")]
    except ValueError:
        raise CommandError(
            f"members are the ids of brokers, with commas between them, or auto, not {members!r}",
            ExitCode.USAGE,
        ) from None

    from octopi.cli.client_request import ask

    ask(settings, lambda client: client.admin.set_relays(partition, wanted))
    if wanted:
        say(f"relay partition {partition} has the members {' '.join(map(str, sorted(wanted)))}")
    else:
        say(f"the register chooses the members of relay partition {partition} again")


@relay.command()
@click.argument("topic", shell_complete=complete_topics)
@json_option
@client_options
@pass_invocation
def verify(
    invocation: Invocation,
    /,
    topic: str,
    as_json: bool,
    server: str | None,
    timeout_s: float | None,
) -> None:
    """Compare what the relays hold of TOPIC, by its digests.

    \b
    For instance:
      octopi-node relay verify prices

    The digest at an offset covers all messages before it since the topic began, so equal digests
    mean equal histories.  If two differ, the command says up to where they are alike, and ends with
    exit code 5.
    """
    settings = invocation.configuration().section(
        ClientSettings, server=server, timeout_s=timeout_s
    )

    from octopi.cli.client_request import ask
    from octopi.clients.relays import verify_relays

    found = ask(settings, lambda client: verify_relays(client, topic))
    if as_json:
        told = {str(broker): digest.hex() for broker, digest in found.digests.items()}
        print_json({**attrs.asdict(found), "digests": told})
    else:
        rows: list[list[object]] = [
            [broker, digest.hex() or None] for broker, digest in sorted(found.digests.items())
        ]
        print_table(["RELAY", f"DIGEST AT {found.compared}"], rows)
        if found.is_right:
            say(f"{len(rows)} relays hold the same up to offset {found.compared}")
    if not found.is_right:
        raise CommandError(
            f"the relays differ behind offset {found.differs}: a relay's memory is wrong, and it "
            "will repair itself within a minute; if it does not, restart that relay",
            ExitCode.DATA_FAULT,
        )
