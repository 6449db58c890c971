"""`octopi-node status`: brokers, leaders and lag of a cluster, and whether it is healthy."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NoReturn

import attrs
import click

from octopi.cli.config import ClientSettings
from octopi.cli.failures import PROGRAM, ExitCode
from octopi.cli.invocation import Invocation, client_options, json_option, pass_invocation
from octopi.cli.output import clear_screen, print_json, print_json_line, say
from octopi.cli.rendering import counted, print_table, size, span

if TYPE_CHECKING:
    from octopi import BrokerInfo, ClusterInfo, ClusterLoads, NodeInfo
    from octopi.admin.cluster_snapshot import ClusterSnapshot, ReplicaStatus

_WATCH_INTERVAL_S: Final = 2.0


@click.command()
@click.option("-w", "--watch", "is_watching", is_flag=True, help="Print it anew until Ctrl-C.")
@click.option(
    "--tree",
    "is_tree",
    is_flag=True,
    help="Print all brokers, topics and subscriptions as a tree instead.",
)
@json_option
@client_options
@pass_invocation
def status(
    invocation: Invocation,
    /,
    is_watching: bool,
    is_tree: bool,
    as_json: bool,
    server: str | None,
    timeout_s: float | None,
) -> int:
    """Show the brokers, partitions and replicas of a cluster.

    \b
    For instance:
      octopi-node status && echo all is well
      octopi-node status --watch
      octopi-node status --json | jq '.replicas[] | select(.lag_bytes > 1000000)'
      octopi-node status --tree --json | jq '.topics.orders.subscriptions'

    The exit code is 1 if the cluster is unhealthy: a broker is away, does not answer or has a full
    disk; a partition has no leader, accepts no records or has replicas out of sync; a log is
    damaged; or a broker holds a topic that it does not serve because another topic has its name.

    VERSION is the program that a broker runs, and UPTIME how long ago that began to serve; a
    version that does not tell its uptime is shown without.  Log ends and highwater marks are in
    bytes, summed over the topics of a partition.  LAG is the number of bytes that the leader has
    and the replica lacks.

    LOAD is how much work the partitions are that a broker leads: 1 for each MiB/s that it takes
    and gives, averaged over a minute.  If one broker has much more than others, the register has
    another one lead some of its partitions.

    With --tree the metadata is printed: the cluster, below it its brokers, and its topics with
    their partitions and durable subscriptions, these with the mark in each log.  That judges
    nothing, so the exit code is 0.  It asks about one topic after the other.

    With --watch the page stays in its place on a terminal, and is printed anew every two seconds;
    with --json each time gives one line.
    """
    settings = invocation.configuration().section(
        ClientSettings, server=server, timeout_s=timeout_s
    )
    if is_tree and is_watching:
        raise click.UsageError("--tree and --watch can't be combined")
    if is_tree:
        return _print_tree(settings, as_json=as_json)
    if is_watching:
        _watch(settings, as_json=as_json)

    from octopi.admin.cluster_snapshot import look, problems
    from octopi.cli.client_request import ask

    seen = ask(settings, look)
    wrong = problems(seen)
    if as_json:
        print_json(_json(seen, wrong))
    else:
        _print_all(seen, wrong)
    return ExitCode.FAILED if wrong else ExitCode.OK


def _print_tree(settings: ClientSettings, *, as_json: bool) -> int:
    from octopi.admin.cluster_tree import look_at_all, tree_json, tree_lines
    from octopi.cli.client_request import ask

    tree = ask(settings, look_at_all)
    if as_json:
        print_json(tree_json(tree))
    else:
        for line in tree_lines(tree):
            say(line)
    return ExitCode.OK


def _watch(settings: ClientSettings, *, as_json: bool) -> NoReturn:
    """Print the state of the cluster again and again.  What can't be found out now is said, and
    asked again.

    Raises:
      InterruptedByUserError: on Ctrl-C.
      OctopiError: if the first question fails, or a later one for good.
    """
    import trio

    from octopi.admin.cluster_snapshot import look, problems
    from octopi.cli.client_request import connected
    from octopi.cli.running import run
    from octopi.errors import OctopiError
    from octopi.retry import may_pass

    async def body() -> NoReturn:
        has_answered = False
        async with connected(settings) as client:
            while True:
                try:
                    seen = await look(client)
                except OctopiError as error:
                    if not has_answered or not may_pass(error):
                        raise
                    say(f"no answer: {error}; asking again", err=True)
                else:
                    has_answered = True
                    wrong = problems(seen)
                    if as_json:
                        print_json_line({"time_ms": _now_ms(), **_json(seen, wrong)})
                    else:
                        clear_screen()
                        say(datetime.now(UTC).isoformat(sep=" ", timespec="seconds"))
                        _print_all(seen, wrong)
                await trio.sleep(_WATCH_INTERVAL_S)

    run(body)
    raise AssertionError("it watches until it is interrupted")


def _now_ms() -> int:
    return round(datetime.now(UTC).timestamp() * 1000)


def _json(seen: ClusterSnapshot, wrong: list[str]) -> dict[str, Any]:
    from octopi.admin.cluster_snapshot import replicas

    asked = seen.asked
    return {
        "healthy": not wrong,
        "problems": wrong,
        **attrs.asdict(seen.cluster),
        "asked": None if asked is None else attrs.asdict(asked),
        "nodes": [{"broker": one, **attrs.asdict(seen.nodes[one])} for one in sorted(seen.nodes)],
        "loads": None if seen.loads is None else attrs.asdict(seen.loads),
        "replicas": [attrs.asdict(one) for one in replicas(seen, seen.cluster.partitions)],
        "logs": [attrs.asdict(one) for one in seen.logs],
    }


def _print_all(seen: ClusterSnapshot, wrong: list[str]) -> None:
    from octopi.admin.cluster_snapshot import holds, hot_partitions, notes, replicas

    _print(seen, replicas(seen, seen.cluster.partitions))
    say("not healthy:" if wrong else "healthy")
    for problem in wrong:
        say(f"  {problem}")
    hot = hot_partitions(seen.loads)
    for note in [*notes(seen.cluster.partitions), *holds(seen.logs), *hot]:
        say(f"note: {note}")


def _print(seen: ClusterSnapshot, found: list[ReplicaStatus]) -> None:
    from octopi.admin.cluster_snapshot import (
        PARTITION_HEADINGS,
        RELAY_HEADINGS,
        partition_rows,
        relay_rows,
    )

    cluster = seen.cluster
    live = sum(one.live for one in cluster.brokers)
    say(
        f"cluster {cluster.cluster or '(not formed yet)'}: "
        f"{live} of {counted(len(cluster.brokers), 'broker')} up, "
        f"{len(cluster.partitions)} of {counted(cluster.partition_count, 'partition')} in use, "
        f"{counted(cluster.topic_count, 'topic')}"
    )
    if seen.asked is not None and seen.asked.role == "register":
        uptime = "" if seen.asked.uptime_s is None else f", up {span(seen.asked.uptime_s)}"
        say(f"register: {seen.asked.agent}{uptime}")
    say()
    print_brokers(cluster, seen.nodes, seen.loads, has_starts=False)
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
    if cluster.relays:
        print_table(RELAY_HEADINGS, relay_rows(cluster.relays))
        say()


def print_brokers(
    cluster: ClusterInfo,
    nodes: dict[int, NodeInfo],
    loads: ClusterLoads | None,
    *,
    has_starts: bool = True,
) -> None:
    """Print a table of the brokers.  *nodes*: those that answered, as they describe themselves.
    *loads*: how much they have to do, if that is known.  *has_starts*: whether it says how often
    they were started, which makes it wider."""
    from octopi.admin.cluster_snapshot import broker_state

    has_hosts = any(one.host for one in cluster.brokers)
    print_table(
        [
            *("BROKER", "ADDRESS", *(["HOST"] if has_hosts else [])),
            *("STATE", "LEADS", *(["LOAD"] if loads is not None else []), "REPLICAS"),
            *(["STARTS"] if has_starts else []),
            *("VERSION", "UPTIME", "DISK FREE"),
        ],
        [
            [
                one.broker,
                one.address,
                *([one.host] if has_hosts else []),
                broker_state(one, [*cluster.partitions, *cluster.relays]),
                sum(place.leader == one.broker for place in cluster.partitions),
                *([_load(loads.brokers.get(one.broker))] if loads is not None else []),
                sum(one.broker in place.replicas for place in cluster.partitions),
                *([one.incarnation] if has_starts else []),
                *_program(nodes.get(one.broker)),
                _room(one),
            ]
            for one in cluster.brokers
        ],
    )


def _program(node: NodeInfo | None) -> tuple[str | None, str | None]:
    """The version of a node and its uptime, as far as they are known."""
    if node is None:
        return None, None
    return (
        node.agent.removeprefix(f"{PROGRAM}/"),
        None if node.uptime_s is None else span(node.uptime_s),
    )


def _load(load: float | None) -> str | None:
    return None if load is None else f"{load:.2f}"


def _room(broker: BrokerInfo) -> str | None:
    """Free and total space of a broker's disk; None if the broker has not reported it."""
    free_bytes, total_bytes = broker.disk_free_bytes, broker.disk_total_bytes
    if not broker.live or free_bytes is None or total_bytes is None:
        return None
    return f"{size(free_bytes)} of {size(total_bytes)}{', full' * bool(broker.disk_trouble)}"
