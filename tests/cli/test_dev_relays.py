"""`octopi-node dev --relays`: topics in memory for development."""

from __future__ import annotations

from pathlib import Path

import pytest

from octopi.cli.failures import ExitCode
from tests.cli.conftest import Program
from tests.cli.test_dev import dev

pytestmark = pytest.mark.process


@pytest.mark.usefixtures("logging_as_it_was")
def test_relays_of_dev_stand_alone(program: Program) -> None:
    refused = program("dev", "--relays", "3", "--brokers", "2")
    assert refused.exit_code == ExitCode.USAGE
    assert "leave --brokers and --registers out" in refused.stderr


def test_relays_of_dev_keep_topics_in_memory_with_tls_and_tokens(
    program: Program, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "line").write_text("umbrella\n")
    with dev("--relays", "3", "--tls", "--auth", "--data-dir", "here") as running:
        first, *others = running.url.split(",")
        assert len(others) == 2
        security = tmp_path / "here" / "security"
        access = [
            "--tls-ca", str(security / "tls" / "ca.pem"),
            "--token-file", str(security / "user.token"),
        ]  # fmt: skip
        made = program("produce", "prices", "-f", "line", "--server", first, *access)
        assert made.exit_code == 0, made.stderr
        for one in running.url.split(","):
            read = program("consume", "prices", "-o", "earliest", "-e", "--server", one, *access)
            assert read.exit_code == 0, read.stderr
            assert capfd.readouterr().out == "umbrella\n"
        verified = program("relay", "verify", "prices", "--server", first, *access)
        assert verified.exit_code == 0, verified.stderr
        stranger = program("topics", "list", "--server", first, *access[:2])
        assert stranger.exit_code == ExitCode.REFUSED
    assert "Traceback" not in running.said
    names = {one.name for one in (tmp_path / "here").iterdir()}
    assert names == {"join-secret", "security", "relay-1", "relay-2", "relay-3"}
