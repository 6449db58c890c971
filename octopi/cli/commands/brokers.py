"""`octopi-node brokers`: list brokers, take the lead from one, forget one for good."""

from __future__ import annotations

import attrs
import click

from octopi.cli.config import ClientSettings
from octopi.cli.invocation import Invocation, client_options, json_option, pass_invocation
from octopi.cli.output import print_json, say


@click.group()
def brokers() -> None:
    """List brokers; drain one before it is stopped; remove one that is gone for good."""


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

    A broker that is `away` is missed; one that is `retired` is gone and holds no replica any
    more: `brokers remove` makes the cluster forget it.  STARTS counts how often its process
    was started.
    """
    settings = invocation.configuration().section(
        ClientSettings, server=server, timeout_s=timeout_s
    )

    from octopi.cli.client_request import ask
    from octopi.cli.commands.status import print_brokers

    cluster = ask(settings, lambda client: client.admin.describe_cluster())
    if as_json:
        print_json([attrs.asdict(one) for one in cluster.brokers])
    else:
        print_brokers(cluster)


@brokers.command()
@click.argument("broker", type=int, metavar="ID")
@client_options
@pass_invocation
def drain(
    invocation: Invocation, /, broker: int, server: str | None, timeout_s: float | None
) -> None:
    """Have other brokers lead what broker ID leads.

    \b
    For instance, to restart broker 2 without anybody noticing:
      octopi-node brokers drain 2
      systemctl restart octopi-broker

    Each partition that it leads gets another leader among its replicas in sync; the broker
    goes on as a follower and leads nothing before it is started again.  Ends when it leads
    nothing.
    """
    settings = invocation.configuration().section(
        ClientSettings, server=server, timeout_s=timeout_s
    )

    from octopi.cli.client_request import ask

    ask(settings, lambda client: client.admin.drain_broker(broker))
    say(f"broker {broker} leads nothing", err=True)


@brokers.command()
@click.argument("broker", type=int, metavar="ID")
@client_options
@pass_invocation
def remove(
    invocation: Invocation, /, broker: int, server: str | None, timeout_s: float | None
) -> None:
    """Have the cluster forget broker ID, which is gone for good.

    \b
    For instance, when broker 5 has taken the place of broker 2:
      octopi-node partitions move 7 --from 2 --to 5
      octopi-node brokers remove 2

    It is refused while the broker runs or holds replicas.  Its id is never given again, and
    its data directory can't come back.
    """
    settings = invocation.configuration().section(
        ClientSettings, server=server, timeout_s=timeout_s
    )

    from octopi.cli.client_request import ask

    ask(settings, lambda client: client.admin.remove_broker(broker))
    say(f"broker {broker} is forgotten", err=True)
