"""`octopi-node demo`: kill a leader under load, and check that no message is lost."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

import click

from octopi.cli.failures import CommandError, ExitCode
from octopi.cli.invocation import common_options, registers_option

_UNWATCHED_S: Final = 10.0
"""How long --relay goes on where nobody looks."""


@click.command()
@click.option("--brokers", type=click.IntRange(2, 20), default=3, show_default=True)
@registers_option
@click.option("--ring", is_flag=True, help="Run 3 to 9 brokers without a register.")
@click.option(
    "-f",
    "--file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The file whose lines are sent.  [default: 10,000 flights out of New York City]",
)
@click.option(
    "--keep",
    is_flag=True,
    help="Then run an example for browser tabs until Ctrl-C, and keep killing leaders.",
)
@click.option(
    "--relay",
    is_flag=True,
    help="Instead: a page of shared cursors on three relays, whose sequencer is killed.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(3, 3600),
    metavar="SECONDS",
    help="How long --relay goes on.  [default: until Ctrl-C; without a terminal, 10]",
)
@common_options
def demo(
    brokers: int,
    registers: int,
    ring: bool,
    file: Path | None,
    keep: bool,
    relay: bool,
    seconds: float | None,
) -> None:
    """Kill a leader while a file is sent through it, and check that nothing is lost.

    \b
    For instance:
      octopi-node demo
      octopi-node demo --brokers 5 -f access.log
      octopi-node demo --registers 3
      octopi-node demo --ring
      octopi-node demo --keep
      octopi-node demo --relay

    The command starts a register and brokers as processes, on free ports, with their data in a
    temporary directory.  Each line of the file becomes a message of a topic with three replicas; a
    short file is sent several times.  Halfway, the leader is killed with SIGKILL, and started again
    later.  Then all messages are read back and compared with those that were sent, and the log
    files of all replicas are compared.  At the end all processes and files are removed.

    With several registers, the one that is active is killed together with the leader.

    With --ring there is no register, and brokers decide.  Beside the leader of the topic's
    partition, the leader of its home is killed, which is the broker that decides about the topic.
    Of five brokers or more both are away at once; of three or four the second one is killed when
    the first is in sync again.

    The second line of output is the address of the console, a page that shows the cluster live.

    With --relay there are three relays, brokers that keep topics in memory, instead of all that.
    Open the page that it names in several tabs: each has a cursor that all see.  The relay that is
    the sequencer is killed every 20 seconds, or when somebody asks for it on the page; no position
    is lost.  Two robots and a reader prove that without a page as well.
    """
    if relay:
        if (brokers, registers, ring, file, keep) != (3, 1, False, None, False):
            raise CommandError(
                "--relay runs three relays only: leave --brokers, --registers, --ring, --file and "
                "--keep out",
                ExitCode.USAGE,
            )
        _share_cursors(seconds)
        return
    if seconds is not None:
        raise CommandError("--seconds is for --relay", ExitCode.USAGE)

    from functools import partial

    from octopi.cli.demo_registers import RegisterTrial
    from octopi.cli.demo_ring import RingTrial, check_options
    from octopi.cli.demonstration import Demonstration
    from octopi.cli.live_example import live_example
    from octopi.cli.running import run

    if ring:
        check_options(brokers, registers)
    trial = (
        partial(RingTrial, broker_count=brokers)
        if ring
        else partial(RegisterTrial, register_count=registers)
    )
    with tempfile.TemporaryDirectory(prefix="octopi-demo-") as directory:
        demonstration = Demonstration(
            Path(directory), brokers, file, trial, live_example if keep else None
        )
        run(demonstration.run, lambda: "interrupted; every process was stopped")
    demonstration.report()


def _share_cursors(seconds: float | None) -> None:
    from octopi.cli.demo_relay import SharedCursors
    from octopi.cli.output import is_watched
    from octopi.cli.running import run

    if seconds is None and not is_watched():
        seconds = _UNWATCHED_S
    with tempfile.TemporaryDirectory(prefix="octopi-demo-") as directory:
        cursors = SharedCursors(Path(directory), seconds)
        run(cursors.run, cursors.interrupted)
    cursors.report()
