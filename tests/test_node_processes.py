"""How tests, `dev` and `demo` start nodes as processes of their own."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from harness.fork_server import ForkedProcess, ForkServer, fork_server
from harness.processes import NodeProcesses
from octopi.cli.node_processes import node_environment

pytestmark = pytest.mark.process


def test_nodes_inherit_the_choice_of_an_implementation_and_no_setting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("OCTOPI_KERNELS", "OCTOPI_PLAIN_WEBSOCKET", "OCTOPI_DATA_DIR", "ELSE"):
        monkeypatch.setenv(name, "1")
    found = node_environment()
    assert {"OCTOPI_KERNELS", "OCTOPI_PLAIN_WEBSOCKET", "ELSE"} <= found.keys()
    assert "OCTOPI_DATA_DIR" not in found


def started(server: ForkServer, tmp_path: Path, *arguments: str) -> ForkedProcess:
    with (tmp_path / "errors").open("ab") as errors:
        return server.start(
            arguments,
            stderr=errors.fileno(),
            cwd=tmp_path,
            environment={**node_environment(), "OCTOPI_DATA_DIR": "here"},
        )


def output(process: ForkedProcess) -> bytes:
    with process.stdin, process.stdout:
        return process.stdout.read()


def test_a_forked_program_has_its_arguments_environment_directory_and_exit_status(
    tmp_path: Path,
) -> None:
    with fork_server() as server:
        version = started(server, tmp_path, "--version")
        assert output(version).startswith(b"octopi-node ")
        assert version.wait(10) == version.poll() == 0

        wrong = started(server, tmp_path, "--no-such-option")
        assert output(wrong) == b""
        assert wrong.wait(10) == 2
        assert "--no-such-option" in (tmp_path / "errors").read_text()

        node = started(server, tmp_path, "--role", "register", "--listen", "127.0.0.1:0")
        with node.stdin, node.stdout:
            assert node.stdout.readline().startswith(b"ready register ")
            assert (tmp_path / "here").is_dir()
            assert node.poll() is None
            with pytest.raises(subprocess.TimeoutExpired):
                node.wait(0.0)
            node.kill()
            assert node.wait(10) == -signal.SIGKILL
        node.kill()  # it has ended already


def test_another_way_of_running_the_program_is_not_forked(tmp_path: Path) -> None:
    with fork_server() as server:
        assert server.suits({"PYTHONHASHSEED": "1"})  # it begins with the first
        output(started(server, tmp_path, "--version"))
        assert server.suits({**node_environment(), "TZ": "UTC"})
        assert not server.suits({**node_environment(), "OCTOPI_KERNELS": "0"})


def test_a_node_with_options_of_its_own_is_executed(tmp_path: Path) -> None:
    nodes = NodeProcesses(tmp_path)
    with nodes.node("register", "register", "--gather", "0", files_max=500) as node:
        limits = Path(f"/proc/{node.pid}/limits").read_text()
        assert b"octopi_node" in Path(f"/proc/{node.pid}/cmdline").read_bytes()
        assert "Max open files            500" in limits
