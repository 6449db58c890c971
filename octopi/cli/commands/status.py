"""`octopi-node status`: who is there, who leads, and whether all is well."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import click

from octopi.cli.config import ClientSettings
from octopi.cli.failures import ExitCode
from octopi.cli.invocation import Invocation, client_options, json_option, pass_invocation
from octopi.cli.rendering import counted, print_json, print_table

if TYPE_CHECKING:
    from octopi import ClusterInfo


@click.command()
@json_option
@client_options
@pass_invocation
def status(
    invocation: Invocation, /, as_json: bool, server: str | None, timeout_s: float | None
) -> int:
    """Show the brokers and partitions of a cluster.

    \b
    For instance:
      octopi-node status && echo all is well

    The exit code is 1 if no broker is there, one is away, or a partition has no leader.
    """
    settings = invocation.configuration().section(
        ClientSettings, server=server, timeout_s=timeout_s
    )

    from octopi.cli.asking import ask

    cluster = ask(settings, lambda client: client.describe_cluster())
    problems = _problems(cluster)
    if as_json:
        print_json({"healthy": not problems, "problems": problems, **attrs.asdict(cluster)})
    else:
        _print(cluster, problems)
    return ExitCode.FAILED if problems else ExitCode.OK


def _problems(cluster: ClusterInfo) -> list[str]:
    problems = [f"broker {one.broker} is away" for one in cluster.brokers if not one.live]
    problems += [
        f"partition {one.partition} has no leader"
        for one in cluster.partitions
        if one.leader is None
    ]
    return problems or ([] if cluster.brokers else ["no broker has joined"])


def _print(cluster: ClusterInfo, problems: list[str]) -> None:
    live = sum(one.live for one in cluster.brokers)
    click.echo(
        f"cluster {cluster.cluster or '(not formed yet)'}: "
        f"{live} of {counted(len(cluster.brokers), 'broker')} up, "
        f"{counted(len(cluster.partitions), 'partition')} in use, "
        f"{counted(cluster.topic_count, 'topic')}"
    )
    click.echo()
    print_table(
        ["BROKER", "ADDRESS", "STATE", "LEADS", "STARTS"],
        [
            [
                one.broker,
                one.address,
                "up" if one.live else "away",
                one.partitions_led,
                one.incarnation,
            ]
            for one in cluster.brokers
        ],
    )
    if cluster.partitions:
        click.echo()
        print_table(
            ["PARTITION", "LEADER", "EPOCH", "REPLICAS", "IN SYNC"],
            [
                [
                    one.partition,
                    one.leader,
                    one.epoch,
                    " ".join(map(str, one.replicas)),
                    " ".join(map(str, one.in_sync)),
                ]
                for one in cluster.partitions
            ],
        )
    click.echo()
    click.echo("healthy" if not problems else "not healthy: " + "; ".join(problems))
