"""`octopi-node demo`: real nodes, real data, a killed leader, and nothing lost."""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

from octopi.cli.invocation import common_options


@click.command()
@click.option("--brokers", type=click.IntRange(2, 20), default=3, show_default=True)
@click.option(
    "-f",
    "--file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="A file of lines.  [default: 10,000 flights out of New York City]",
)
@click.option(
    "--keep",
    is_flag=True,
    help="Go on until Ctrl-C with an example for browser tabs, in which leaders keep dying.",
)
@common_options
def demo(brokers: int, file: Path | None, keep: bool) -> None:
    """Kill a leader while a file goes through it, and prove that nothing is lost.

    \b
    For instance:
      octopi-node demo
      octopi-node demo --brokers 5 -f access.log
      octopi-node demo --keep

    Starts a register and brokers as processes, on free ports, with their data in a
    temporary directory.  Each line becomes a message of a topic with three replicas; a
    short file is sent several times.  In the middle of it the leader is killed with
    SIGKILL, and started again later.  Then everything is read back and compared with what
    was sent, and the log files of all replicas with each other.  At the end all of it is
    gone again.

    Its second line is the address of the console, a page that shows all this as it happens.
    """
    from octopi.cli.demonstration import Demonstration
    from octopi.cli.live_example import live_example
    from octopi.cli.running import run

    with tempfile.TemporaryDirectory(prefix="octopi-demo-") as directory:
        demonstration = Demonstration(
            Path(directory), brokers, file, live_example if keep else None
        )
        run(demonstration.run, lambda: "interrupted; every process was stopped")
    demonstration.report()
