"""Runs plans on the unchanged code, for a process whose own code was changed.

If a plan breaks a rule in changed code, that proves something only if it breaks none in the
unchanged code.  ``python -m sim.mutants.baseline`` answers each token on standard input with one
line: the rule that its run breaks, or none.
"""

from __future__ import annotations

import subprocess
import sys
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from sim.run.plan import Plan


class Control:
    """Runs plans in a process of its own, for the duration of a block."""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "sim.mutants.baseline"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._process.communicate()

    def is_sound(self, plan: Plan) -> bool:
        """Whether *plan* breaks no rule in the unchanged code."""
        from sim.run.plan import to_token

        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{to_token(plan)}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError("the process that runs plans on the unchanged code has died")
        return answer == "\n"


def _answer() -> None:
    from octopi.simulation.invariants.oracle import Oracle
    from sim.run.plan import from_token
    from sim.run.simulation import simulate

    for line in sys.stdin:
        verdict = simulate(from_token(line.rstrip("\n")), [Oracle], events_kept=10)
        print(verdict.rule, flush=True)


if __name__ == "__main__":
    _answer()
