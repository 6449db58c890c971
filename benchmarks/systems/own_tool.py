"""What the peers' own benchmark tools have in common: each runs as a child of a client process.

The processor time of the client is then that of the tool, with its start; the rate is the one that
the tool prints, without its start.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from typing import Final

from benchmarks.client import Gate
from benchmarks.processes import CLIENT_TIMEOUT_S

_NUMBER: Final = r"(\d[\d,]*(?:\.\d+)?)"


def output_of(access: Gate, command: Sequence[str]) -> str:
    """Run the tool when all clients are ready; return what it printed.

    Raises:
      RuntimeError: if it failed.
    """
    access.wait()
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=CLIENT_TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        lines = done.stdout.strip().splitlines() or ["it printed nothing"]
        raise RuntimeError(f"{command[0]} ended with exit code {done.returncode}: {lines[-1]}")
    return done.stdout


def number_in(pattern: str, output: str) -> float:
    """The last number in *output* that stands at ``NUMBER`` in the regular expression *pattern*;
    commas between thousands are fine.

    Raises:
      RuntimeError: if there is none; perhaps a new version of the tool prints something else.
    """
    found = re.findall(pattern.replace("NUMBER", _NUMBER), output)
    if not found:
        raise RuntimeError(f"the tool printed no rate: {output.strip()[-300:]}")
    return float(found[-1].replace(",", ""))


def took_s(count: int, rate: float) -> dict[str, float]:
    """The figure that a client returns so that its rate is the tool's.

    Raises:
      RuntimeError: if the tool measured nothing.
    """
    if rate <= 0:
        raise RuntimeError("the tool printed a rate of 0")
    return {"wall_s": count / rate}
