"""``sim replay --real`` on the command line."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path

from octopi.cli.failures import CommandError, ExitCode
from octopi.cli.output import say_lines
from octopi.cli.running import run
from sim.real.run import RealReport, run_real
from sim.real.translation import RealPlan, translate
from sim.run.plan import Plan, to_token


def replay_real(plan: Plan, keep: Path | None) -> int:
    """Say what can't happen to processes, run the rest, and print what came of it; return the exit
    code.  *keep*: the directory for the files of the nodes; None: one that is removed.

    Raises:
      CommandError: if this machine can't tell which process a connection belongs to, nothing of
        the plan can happen, or *keep* isn't empty.
    """
    if not sys.platform.startswith("linux"):
        raise CommandError("--real needs Linux, which tells whose connection is whose (/proc)")
    if keep is not None and keep.exists() and any(keep.iterdir()):
        raise CommandError(f"{keep} is not empty: name another directory", ExitCode.USAGE)
    real = translate(plan)
    _say_plan(real)
    if plan.faults and not real.fault_count:
        raise CommandError(
            "none of the faults of this plan can happen to processes; faults at a time can "
            '("kind": "AtTime"): print the plan with --json, and change it',
            ExitCode.USAGE,
        )
    say = partial(say_lines, err=True)
    with (
        tempfile.TemporaryDirectory(prefix="octopi-real-")
        if keep is None
        else nullcontext(keep) as directory
    ):
        path = Path(directory).absolute()
        path.mkdir(parents=True, exist_ok=True)
        body: Callable[[], Awaitable[RealReport]] = partial(run_real, real, path, say)
        report = run(body)
    say_lines("; ".join(f"{count} {name}" for name, count in report.counts.items()))
    if report.faults:
        for fault in report.faults:
            say_lines(f"broken: {fault}")
    else:
        say_lines("no promise was broken")
    say_lines(f"{report.seconds:.1f} s")
    say_lines(to_token(plan))
    return ExitCode.FAILED if report.faults else ExitCode.OK


def _say_plan(real: RealPlan) -> None:
    plan = real.plan
    registers = f"{plan.registers} registers" if plan.registers > 1 else "a register"
    deciders = "no register" if plan.founders else registers
    brokers = "a broker" if plan.brokers == 1 else f"{plan.brokers} brokers"
    say_lines(f"processes: {brokers} and {deciders}")
    for chain in real.chains:
        for number, one in enumerate(chain):
            if one.is_possible:
                say_lines(f"{'  then' if number else 'fault:'} {one.fault}")
    for line in real.left_out:
        say_lines(f"left out: {line}")
