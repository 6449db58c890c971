"""`octopi-node brokers`: list brokers, drain one, remove one for good."""

from __future__ import annotations

import attrs
import click

from octopi.cli.config import ClientSettings
from octopi.cli.invocation import Invocation, client_options, json_option, pass_invocation
from octopi.cli.output import print_json, say


@click.group()
def brokers() -> None:
    """List brokers, drain one before a restart, remove one that is gone for good."""


@brokers.command("list")
@json_option
@client_options
@pass_invocation
def list_brokers(
    invocation: Invocation, /, as_json: bool, server: str | None, timeout_s: float | None
) -> None:
    """Print the brokers of the cluster.

    \b
    For instance:
      octopi-node brokers list

    STATE is `up` for a broker that works.  `drained`: it works, and leads nothing until it is
    started again.  `leaving`: it is removed as soon as nothing counts on it.  `away`: it has no
    session with the register, or the other brokers of the ring don't hear it, but it still holds
    replicas.  `retired`: it is away and holds no replicas; `brokers remove` removes it from the
    cluster.  LOAD is how much work the partitions are that a broker leads, as `octopi-node status
    --help` says.  HOST, where brokers have one (--host), is the machine that some share.  STARTS
    is the number of times its process was started.  VERSION is the program that it runs, and UPTIME
    how long ago that began to serve.
    """
    settings = invocation.configuration().section(
        ClientSettings, server=server, timeout_s=timeout_s
    )

    from octopi.admin.cluster_snapshot import look_at_brokers
    from octopi.cli.client_request import ask
    from octopi.cli.commands.status import print_brokers

    cluster, nodes, loads = ask(settings, look_at_brokers)
    if as_json:
        print_json(
            [
                {
                    **attrs.asdict(one),
                    "load": None if loads is None else loads.brokers.get(one.broker),
                    "node": attrs.asdict(nodes[one.broker]) if one.broker in nodes else None,
                }
                for one in cluster.brokers
            ]
        )
    else:
        print_brokers(cluster, nodes, loads)


@brokers.command()
@click.argument("broker", type=int, metavar="ID")
@client_options
@pass_invocation
def drain(
    invocation: Invocation, /, broker: int, server: str | None, timeout_s: float | None
) -> None:
    """Move the leaderships of broker ID to other brokers.

    \b
    For instance, to restart broker 2 without an interruption:
      octopi-node brokers drain 2
      systemctl restart octopi-broker

    Each partition that the broker leads gets another leader among its in-sync replicas.  The
    broker stays a follower, and leads nothing until it is started again.  The command returns when
    the broker leads no partition.

    In a cluster without a register, what the broker keeps moves to other brokers as well, if it is
    not started again within half a minute and there are enough others.
    """
    settings = invocation.configuration().section(
        ClientSettings, server=server, timeout_s=timeout_s
    )

    from octopi.cli.client_request import ask

    ask(settings, lambda client: client.admin.drain_broker(broker))
    say(f"broker {broker} leads no partition; it can be restarted now", err=True)


@brokers.command()
@click.argument("broker", type=int, metavar="ID")
@client_options
@pass_invocation
def remove(
    invocation: Invocation, /, broker: int, server: str | None, timeout_s: float | None
) -> None:
    """Remove broker ID, which is gone for good, from the cluster.

    \b
    For instance, when broker 5 has taken the place of broker 2:
      octopi-node partitions move 7 --from 2 --to 5
      octopi-node brokers remove 2

    The register refuses while the broker runs or holds replicas.  The id is never used again, and
    a broker can't be started with the old data directory.

    Without a register it is refused only while the broker runs: what the broker had is made
    elsewhere first.  Until then the command says what is missing; run it again, or `ring leave`.
    """
    settings = invocation.configuration().section(
        ClientSettings, server=server, timeout_s=timeout_s
    )

    from octopi.cli.client_request import ask

    ask(settings, lambda client: client.admin.remove_broker(broker))
    say(f"broker {broker} is removed from the cluster", err=True)
