"""The executables that `make executables` makes, on a system that has no Python."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pytest
import trio

from octopi import kernels
from tests.dist.bare import KINDS, OF_EXECUTABLES, Bare, bare_root
from tests.kit.cluster import eventually

pytestmark = OF_EXECUTABLES


@pytest.fixture(scope="module", params=KINDS)
def bare(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Bare:
    return bare_root(tmp_path_factory.mktemp("bare"), request.param)


@contextmanager
def running(bare: Bare, *arguments: str) -> Iterator[str]:
    """A cluster of the executable, until the end of the block; gives the line that it prints."""
    with subprocess.Popen(
        bare.command("dev", "--listen", "127.0.0.1:0", *arguments),
        env={},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as dev:
        assert dev.stdout is not None
        try:
            yield dev.stdout.readline()
        finally:
            dev.send_signal(signal.SIGTERM)
            _, log = dev.communicate(timeout=60)
    assert dev.returncode == 0, log


def test_it_has_the_compiled_kernels_of_the_installation_that_made_it(bare: Bare) -> None:
    compiled = kernels.load("")
    expected = "Python" if isinstance(compiled, str) else "compiled"
    assert f" (records: {expected}" in bare.run("--version").stdout


# What does not depend on how the program is packed is shown with one kind.
in_a_directory = pytest.mark.parametrize("bare", ["directory"], indirect=True, scope="module")


@in_a_directory
def test_a_cluster_takes_messages_and_gives_them_back(bare: Bare) -> None:
    with running(bare, "--brokers", "3", "--data-dir", "/data/dev") as line:
        url = line.split()[-1]
        bare.run("produce", "notes", "--server", url, text="first\nsecond\n")
        read = bare.run("consume", "notes", "-o", "earliest", "-e", "--server", url)
        assert read.stdout == "first\nsecond\n"
        assert "3 of 3 brokers up" in bare.run("status", "--server", url).stdout
    assert (bare.root / "data" / "dev" / "broker-3").is_dir()


def test_the_demonstration_kills_nodes_that_are_the_executable_itself(bare: Bare) -> None:
    shown = bare.run("demo").stdout
    assert re.search(r"^went on .* without an acknowledgement$", shown, re.MULTILINE)
    assert "survived the death of the leader" in shown.splitlines()[-1]
    assert list((bare.root / "tmp").iterdir()) == []


@pytest.mark.parametrize(("command", "nodes_count"), [("dev", 0), ("demo", 4)])
def test_no_node_outlives_the_cluster_that_is_killed(
    bare: Bare, command: str, nodes_count: int
) -> None:
    """``dev`` is one process, and ``demo`` starts a process for each node."""
    options = ["--listen", "127.0.0.1:0"] if command == "dev" else []
    with subprocess.Popen(
        bare.command(command, *options),
        env={},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as started:
        try:
            if command == "dev":
                assert started.stdout is not None
                assert started.stdout.readline().startswith(b"ready register ")
            wait_until(lambda: len(running_as(bare, "--role")) >= nodes_count)
            of_cluster = running_as(bare, command)
            # Of one file, the process that was started only unpacks: the cluster is its child.
            (cluster,) = of_cluster - {started.pid} or of_cluster
            if cluster != started.pid:
                os.kill(started.pid, signal.SIGKILL)
                started.wait()
                assert running_as(bare, command) == {cluster}, "docs/install.md says: it goes on"
            os.kill(cluster, signal.SIGKILL)
            wait_until(lambda: not bare.processes())
        finally:
            for pid in bare.processes():
                os.kill(pid, signal.SIGKILL)
            for left in (bare.root / "tmp").iterdir():  # the other tests leave nothing
                shutil.rmtree(left)


def running_as(bare: Bare, first: str) -> set[int]:
    """The processes of the executable whose first argument is *first*."""
    return {pid for pid, words in bare.processes().items() if words[1] == first}


def wait_until(holds: Callable[[], bool]) -> None:
    trio.run(partial(eventually, holds, within_s=30))


def test_the_simulator_runs_in_several_processes(bare: Bare) -> None:
    shown = bare.run("sim", "run", "--seeds", "2", "--jobs", "2").stdout
    assert shown.startswith("2 seeds, 0 failed")


@in_a_directory
def test_certificates_keys_and_tokens_are_made(bare: Bare) -> None:
    bare.run("tls", "dev-ca", "/data/tls")
    bare.run("token", "keygen", "/data/signing.json", "--public", "/data/keys.json")
    make = ["token", "create", "--key", "/data/signing.json", "--subject", "shop", "--admin", "*"]
    assert bare.run(*make).stdout.count(".") == 2


@in_a_directory
@pytest.mark.parametrize("command", ["meta", "mutants"])
def test_what_needs_a_python_says_so(bare: Bare, command: str) -> None:
    refused = bare.run("sim", command, code=2)
    (line,) = refused.stderr.splitlines()
    assert line.endswith("run it in a checkout of octopi-node")


@in_a_directory
def test_spark_is_not_part_of_it(bare: Bare) -> None:
    refused = bare.run("pipeline", "rates", "orders", code=2)
    assert "octopi-node[spark]" in refused.stderr.splitlines()[-1]
