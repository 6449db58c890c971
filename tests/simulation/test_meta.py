"""The same seeds run in other processes, and different digests are reported."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from octopi.cli.failures import ExitCode
from sim.generate.swarm import draw
from sim.run.simulation import simulate
from sim.search.determinism import (
    Comparison,
    Interpreter,
    MetaError,
    Share,
    interpreters,
    run_share,
    shares,
)
from tests.cli.conftest import Program

OURS = Interpreter(sys.executable, "3.11.7")
OTHER = Interpreter("python3.13", "3.13.0")


@pytest.mark.slow
def test_other_processes_find_the_digests_that_this_one_does(
    monkeypatch: pytest.MonkeyPatch, program: Program, tmp_path: Path
) -> None:
    monkeypatch.setattr("sim.search.determinism._MINORS", ())
    numbers = tmp_path / "meta.json"
    result = program("sim", "meta", "--seeds", "2", "--jobs", "1", "--json", str(numbers))
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("2 seeds in 4 runs by Python 3.")
    assert result.stdout.endswith(": 0 mismatches\n")
    assert json.loads(numbers.read_text())["mismatches"] == []
    share = Share(OURS, 7, 1, 2)
    assert run_share(share, None) == [simulate(draw(seed)).digest for seed in (1, 2)]


def test_a_seed_is_run_twice_by_this_python_and_once_by_each_other_one() -> None:
    found = list(shares(1, 30, [OURS, OTHER]))
    assert [(one.interpreter, one.first, one.count) for one in found] == [
        (OURS, 1, 25),
        (OURS, 1, 25),
        (OTHER, 1, 25),
        (OURS, 26, 5),
        (OURS, 26, 5),
        (OTHER, 26, 5),
    ]
    assert len({one.hash_seed for one in found}) > 1


def test_different_digests_are_reported_with_their_processes() -> None:
    comparison = Comparison()
    comparison.add(Share(OURS, 10, 5, 2), ["a", "b"])
    comparison.add(Share(OURS, 20, 5, 2), ["a", "c"])
    comparison.add(Share(OTHER, 30, 5, 2), ["a", "b"])
    assert (comparison.seed_count, comparison.runs) == (2, 6)
    assert [str(one) for one in comparison.mismatches()] == [
        "seed 6: b (Python 3.11.7, hash seed 10, Python 3.13.0, hash seed 30); "
        "c (Python 3.11.7, hash seed 20)"
    ]


def test_a_mismatch_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, program: Program, tmp_path: Path
) -> None:
    digests = iter(["one", "other"])
    monkeypatch.setattr("sim.search.determinism._MINORS", ())
    monkeypatch.setattr("sim.search.determinism.run_share", lambda share, tier: [next(digests)])
    result = program("sim", "meta", "--seeds", "1", "--first", "9", "--jobs", "1")
    assert result.exit_code == ExitCode.FAILED
    assert result.stdout.startswith("seed 9: one (Python ")
    assert result.stdout.endswith(": 1 mismatch\n")


def test_a_python_that_can_not_run_plans_is_left_out_with_the_reason(tmp_path: Path) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho 'no package trio' >&2\nexit 1\n")
    broken.chmod(0o755)
    found, skipped = interpreters([str(broken), "no-such-python"])
    assert found[0].path == sys.executable
    assert f"{broken}: no package trio" in skipped
    assert any(why.startswith("no-such-python: ") for why in skipped)


def test_a_python_with_other_versions_is_left_out_with_the_reason(tmp_path: Path) -> None:
    other = tmp_path / "python"
    other.write_text("""#!/bin/sh\necho '["3.12.1", ["0.1", "0.12.2", "1.3.2", "6.2.1"]]'\n""")
    other.chmod(0o755)
    _, skipped = interpreters([str(other)])
    assert any(why.startswith(f"{other}: it has trio 0.1, not ") for why in skipped)


def test_a_process_without_results_ends_the_comparison(tmp_path: Path) -> None:
    silent = tmp_path / "python"
    silent.write_text("#!/bin/sh\necho 'out of memory' >&2\n")
    silent.chmod(0o755)
    with pytest.raises(MetaError, match="out of memory"):
        run_share(Share(Interpreter(str(silent), "3.12.1"), 1, 1, 2), None)
