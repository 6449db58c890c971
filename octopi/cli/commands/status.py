"""`octopi-node status`: brokers, leaders and lag of a cluster, and whether it is healthy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import click

from octopi.cli.config import ClientSettings
from octopi.cli.failures import ExitCode
from octopi.cli.invocation import Invocation, client_options, json_option, pass_invocation
from octopi.cli.output import print_json, say
from octopi.cli.rendering import counted, print_table, size

if TYPE_CHECKING:
    from octopi import BrokerInfo, ClusterInfo
    from octopi.admin.cluster_snapshot import ReplicaStatus


@click.command()
@json_option
@client_options
@pass_invocation
def status(
    invocation: Invocation, /, as_json: bool, server: str | None, timeout_s: float | None
) -> int:
    """Show the brokers, partitions and replicas of a cluster.

    \b
    For instance:
      octopi-node status && echo all is well
      octopi-node status --json | jq '.replicas[] | select(.lag_bytes > 1000000)'

    The exit code is 1 if the cluster is unhealthy: a broker is away, does not answer or has a full
    disk; a partition has no leader, accepts no records or has replicas out of sync; a log is
    damaged; or a broker holds a topic that it does not serve because another topic has its name.

    Log ends and highwater marks are in bytes, summed over the topics of a partition.  LAG is the
    number of bytes that the leader has and the replica lacks.
    """
    settings = invocation.configuration().section(
        ClientSettings, server=server, timeout_s=timeout_s
    )

    from octopi.admin.cluster_snapshot import holds, look, notes, problems, replicas
    from octopi.cli.client_request import ask

    seen = ask(settings, look)
    wrong = problems(seen)
    found = replicas(seen, seen.cluster.partitions)
    if as_json:
        print_json(
            {
                "healthy": not wrong,
                "problems": wrong,
                **attrs.asdict(seen.cluster),
                "replicas": [attrs.asdict(one) for one in found],
                "logs": [attrs.asdict(one) for one in seen.logs],
            }
        )
    else:
        _print(seen.cluster, found)
        say("not healthy:" if wrong else "healthy")
        for problem in wrong:
            say(f"  {problem}")
        for note in [*notes(seen.cluster.partitions), *holds(seen.logs)]:
            say(f"note: {note}")
    return ExitCode.FAILED if wrong else ExitCode.OK


def _print(cluster: ClusterInfo, found: list[ReplicaStatus]) -> None:
    from octopi.admin.cluster_snapshot import PARTITION_HEADINGS, partition_rows

    live = sum(one.live for one in cluster.brokers)
    say(
        f"cluster {cluster.cluster or '(not formed yet)'}: "
        f"{live} of {counted(len(cluster.brokers), 'broker')} up, "
        f"{len(cluster.partitions)} of {counted(cluster.partition_count, 'partition')} in use, "
        f"{counted(cluster.topic_count, 'topic')}"
    )
    say()
    print_brokers(cluster)
    say()
    if cluster.partitions:
        print_table(PARTITION_HEADINGS, partition_rows(cluster, cluster.partitions))
        say()
        print_table(
            ["PARTITION", "BROKER", "ROLE", "STATE", "LOGS", "LOG END", "HIGHWATER", "LAG"],
            [
                [
                    one.partition,
                    one.broker,
                    one.role,
                    one.state,
                    one.log_count,
                    one.log_end,
                    one.highwater,
                    one.lag_bytes,
                ]
                for one in found
            ],
        )
        say()


def print_brokers(cluster: ClusterInfo) -> None:
    """Print a table of the brokers."""
    from octopi.admin.cluster_snapshot import broker_state

    print_table(
        ["BROKER", "ADDRESS", "STATE", "LEADS", "REPLICAS", "STARTS", "DISK FREE"],
        [
            [
                one.broker,
                one.address,
                broker_state(one, cluster.partitions),
                sum(place.leader == one.broker for place in cluster.partitions),
                sum(one.broker in place.replicas for place in cluster.partitions),
                one.incarnation,
                _room(one),
            ]
            for one in cluster.brokers
        ],
    )


def _room(broker: BrokerInfo) -> str | None:
    """Free and total space of a broker's disk; None if the broker has not reported it."""
    free_bytes, total_bytes = broker.disk_free_bytes, broker.disk_total_bytes
    if not broker.live or free_bytes is None or total_bytes is None:
        return None
    return f"{size(free_bytes)} of {size(total_bytes)}{', full' * bool(broker.disk_trouble)}"
