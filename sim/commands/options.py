"""Options that several commands of the search have."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from octopi.cli.failures import CommandError, ExitCode, InterruptedByUserError
from octopi.cli.output import say_lines

if TYPE_CHECKING:
    from sim.run.plan import Plan

_F = TypeVar("_F", bound=Callable[..., Any])

PLAN_HELP: Final = "PLAN is a seed, a token, or a file with a plan as JSON."


def jobs_option(function: _F) -> _F:
    """Add ``--jobs``."""
    return click.option(
        "--jobs",
        type=click.IntRange(min=1),
        default=_cores,
        metavar="N",
        help="How many processes to use.  [default: one for each core]",
    )(function)


def need_python() -> None:
    """For a command that starts Pythons of its own.

    Raises:
      CommandError: if this program is an executable, which has no Python to start.
    """
    if getattr(sys, "frozen", False):
        raise CommandError(
            "this command starts Pythons with other options or with changed sources, and an "
            "executable has neither: run it in a checkout of octopi-node",
            ExitCode.USAGE,
        )


def _cores() -> int:
    """How many cores this process may use; macOS says only how many there are."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def tier_option(function: _F) -> _F:
    """Add ``--tier``."""
    return click.option(
        "--tier",
        type=click.Choice(["message", "websocket"]),
        help="Whole messages, or real WebSocket bytes.  [default: drawn from the seed]",
    )(function)


def json_file_option(function: _F) -> _F:
    """Add ``--json FILE``."""
    return click.option(
        "--json",
        "json_file",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="Write the results to FILE, too, as JSON.",
    )(function)


def plan_of(text: str, tier: str | None = None) -> Plan:
    """The plan that *text*, an argument on the command line, stands for.

    Raises:
      CommandError: if it is not valid.
    """
    from sim.generate.swarm import draw
    from sim.run.plan import TOKEN_PREFIX, PlanError, from_json, from_token, is_stale

    if text.isdecimal():
        return draw(int(text), tier)  # type: ignore[arg-type]  # the option allows no other
    try:
        if text.startswith(TOKEN_PREFIX):
            plan = from_token(text)
            if is_stale(text):
                told = "made with other versions of Octopi, Trio or the WebSocket stack"
                say_lines(f"this token was {told}: its run may go differently here", err=True)
            return plan
        return from_json(Path(text).read_text(encoding="utf-8"))
    except (PlanError, OSError) as error:
        raise CommandError(
            f"{text[:60]} is not a valid plan: {error}; give a seed, a token in single quotes, or "
            "a file with a plan as JSON",
            ExitCode.USAGE,
        ) from error


def name_of(text: str) -> str:
    """The name of the run of *text* in messages."""
    return f"Seed {text}" if text.isdecimal() else "This plan"


def write_numbers(path: Path | None, numbers: object) -> None:
    """Write *numbers* to *path* as JSON, if a path was given; make its directory if necessary."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")


def interrupted(summary: str) -> InterruptedByUserError:
    """The exception for a campaign that was interrupted; *summary* says what was done."""
    return InterruptedByUserError(f"interrupted: {summary}")
