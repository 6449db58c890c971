"""The public conformance suite of the Durable Streams protocol, against real nodes."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from harness.processes import node_processes

ROOT = Path(__file__).parents[2]
SUITE = ROOT / ".tools/durable-streams"
KNOWN = Path(__file__).with_name("known_failures.txt")
PASSED_MIN = 325
"""The protocol's reference server passes 324 of the 338 tests."""
SUITE_S = 480


def known_failures() -> dict[str, str]:
    """The tests that don't pass, each with its reason."""
    rows = [line.split(" | ") for line in KNOWN.read_text().splitlines() if line]
    return {row[0]: row[1] for row in rows}


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.timeout(SUITE_S + 60)
def test_the_suite_of_durable_streams_passes_but_for_the_tests_that_are_named(
    tmp_path: Path,
) -> None:
    if not (SUITE / "node_modules").exists():
        if os.environ.get("CI"):
            pytest.fail("CI has to install the suite: `make .tools/durable-streams`")
        pytest.skip("there is no suite: `make .tools/durable-streams` installs it")
    report = tmp_path / "report.json"
    with node_processes(tmp_path) as nodes:
        register = nodes.register()
        broker = nodes.broker(register)
        # At the broker, which is no leader of topics yet: so requests are forwarded, too.
        url = broker.url.replace("ws://", "http://") + "/v1/streams"
        command = ["node_modules/.bin/vitest", "run", "octopi.test.js", "--testTimeout=30000"]
        subprocess.run(
            [*command, "--reporter=json", f"--outputFile={report}"],
            cwd=SUITE,
            env={**os.environ, "STREAMS_URL": url},
            capture_output=True,
            timeout=SUITE_S,
            check=False,
        )
    results = [
        one for file in json.loads(report.read_text())["testResults"]
        for one in file["assertionResults"]
    ]  # fmt: skip
    failed = {
        " > ".join([*one["ancestorTitles"], one["title"]]): one["failureMessages"]
        for one in results if one["status"] == "failed"
    }  # fmt: skip
    passed = sum(one["status"] == "passed" for one in results)
    assert failed.keys() == known_failures().keys(), failed
    assert passed >= PASSED_MIN
