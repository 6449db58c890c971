"""`octopi-node bench`: what a running cluster can do, as one client sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from octopi.cli.config import ClientSettings
from octopi.cli.failures import CommandError, ExitCode
from octopi.cli.invocation import Invocation, client_options, json_option, pass_invocation
from octopi.cli.output import print_json, say
from octopi.cli.rendering import counted, print_table, size
from octopi.limits import BENCH_BYTES_MAX

if TYPE_CHECKING:
    from octopi.cli.benchmark import Result

_WORKLOADS: Final = ("produce", "consume", "latency")


@click.command()
@click.argument("workloads", nargs=-1, type=click.Choice(_WORKLOADS), metavar="[WORKLOAD]...")
@click.option("--topic", help="Use this topic, and keep it; by default a new one is made.")
@click.option(
    "--messages",
    type=click.IntRange(min=1),
    default=1_000_000,
    show_default=True,
    help="Produce or consume at most this many messages.",
)
@click.option(
    "--seconds",
    "seconds_max",
    type=click.FloatRange(min=0.1, max=3600),
    default=10.0,
    show_default=True,
    help="Spend at most this time on a workload.",
)
@click.option(
    "--size",
    "value_bytes",
    type=click.IntRange(min=16, max=1_000_000),
    default=100,
    show_default=True,
    metavar="BYTES",
    help="Size of a message's value.",
)
@click.option(
    "--rate",
    type=click.FloatRange(min=1, max=100_000),
    default=200.0,
    show_default=True,
    help="Messages per second of the workload latency.",
)
@click.option(
    "--partitions",
    "partition_count",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Number of partitions of the new topic.",
)
@click.option(
    "--flush-before-ack", is_flag=True, help="The new topic acknowledges what is on the disk."
)
@json_option
@client_options
@pass_invocation
def bench(
    invocation: Invocation,
    /,
    workloads: tuple[str, ...],
    topic: str | None,
    messages: int,
    seconds_max: float,
    value_bytes: int,
    rate: float,
    partition_count: int,
    flush_before_ack: bool,
    as_json: bool,
    server: str | None,
    timeout_s: float | None,
) -> None:
    """Measure a running cluster.  WORKLOAD is produce, consume or latency; by default all three.

    \b
    For instance:
      octopi-node bench
      octopi-node bench latency --rate 1000 --flush-before-ack
      octopi-node bench produce --size 1000 --json | jq '.produce.messages_per_s'

    produce sends as fast as the cluster takes messages; consume reads from the first message of the
    topic; latency sends at a steady rate, and measures how long each message takes until it is
    acknowledged, and until a consumer has it.  P50 is the median, and P99 what 99 of 100 messages
    stay below.

    The messages are in a topic of their own, which is deleted in the end.  With --topic they stay.
    One client is one process: when it uses a whole processor core, the command says that it, and
    not the cluster, sets the rate; run several at a time then.
    """
    settings = invocation.configuration().section(
        ClientSettings, server=server, timeout_s=timeout_s
    )
    if messages * value_bytes > BENCH_BYTES_MAX:
        raise CommandError(
            f"{counted(messages, 'message')} of {size(value_bytes)} are more than "
            f"{size(BENCH_BYTES_MAX)}: give smaller --messages or --size",
            ExitCode.USAGE,
        )
    if topic is not None and (partition_count != 1 or flush_before_ack):
        raise CommandError(
            "--partitions and --flush-before-ack are for the topic that is made: leave them out, "
            "or leave out --topic",
            ExitCode.USAGE,
        )

    from octopi.cli.benchmark import Benchmark, Load, scratch_topic

    chosen = [one for one in _WORKLOADS if not workloads or one in workloads]
    load = Load(
        topic=topic or scratch_topic(),
        is_scratch=topic is None,
        partition_count=partition_count,
        flush_before_ack=flush_before_ack,
        message_count_max=messages,
        seconds_max=seconds_max,
        value_bytes=value_bytes,
        rate=rate,
    )
    benchmark = Benchmark(settings, load)
    results = benchmark.run(chosen)
    if as_json:
        shown = {name: result.as_json() for name, result in results.items()}
        print_json({"topic": load.topic, "value_bytes": value_bytes, **shown})
    else:
        _print(results)
    for name, result in results.items():
        if result.is_client_busy:
            say(
                f"{name}: this client used {result.client_share:.0%} of a processor core, so it "
                "is the bottleneck, not the cluster: run several at a time with --topic",
                err=True,
            )


def _print(results: dict[str, Result]) -> None:
    print_table(
        [
            "WORKLOAD",
            "MESSAGES",
            "SECONDS",
            "MSG/S",
            "BYTES/S",
            "WHAT",
            "P50 MS",
            "P99 MS",
            "MAX MS",
        ],
        [
            [
                name,
                f"{one.messages:,}",
                f"{one.seconds:.2f}",
                f"{one.messages_per_s:,.0f}",
                f"{size(one.bytes_per_s)}/s",
                what,
                *(f"{value:.2f}" for value in (times.p50_ms, times.p99_ms, times.max_ms)),
            ]
            for name, one in results.items()
            for what, times in one.times.items()
        ],
    )
