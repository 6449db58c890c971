"""Nodes write their steps and messages to files, and `trace` shows them."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import get_type_hints

import attrs
import pytest

from harness.processes import NodeProcesses
from octopi.cli.failures import CommandError, ExitCode
from octopi.cli.trace_file import SECRET_FIELDS, TraceFile, __name__ as trace_file, trace_path
from octopi.operating_system import SystemClock
from octopi.simulation.kernel.world import Event
from octopi.simulation.report.recording import Came, Sent
from octopi.simulation.report.trace_files import read_traces
from octopi.tracing.produce import P2Appended
from octopi.wire.common import Token
from octopi.wire.messages import MESSAGES
from tests.cli.conftest import Program
from tests.cli.test_replicated_cluster import eventually_healthy
from tests.simulation.test_shiviz import happened_before, parsed

CONTENT = "what-a-program-wrote"


@pytest.mark.process
def test_three_nodes_write_what_they_do_and_it_is_shown_in_one_causal_order(
    nodes: NodeProcesses, program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    traces = tmp_path / "traces"
    traces.mkdir()
    to_directory = ("--trace", str(traces))
    register = nodes.register("register", "--replicas", "2", *to_directory)
    to_register = ("broker", "--register", register.url)
    one = nodes.node("broker-1", *to_register, *to_directory)
    other = nodes.node("broker-2", *to_register, "--trace", str(tmp_path / "second.trace"))
    for node in (one, other):
        node.launch()
    for node in (one, other):
        node.wait_ready()
    monkeypatch.setenv("OCTOPI_SERVER", register.url)
    assert program("topics", "create", "orders").exit_code == 0
    eventually_healthy(program)
    assert program("produce", "orders", CONTENT).exit_code == 0
    other.kill9()
    other.start()
    eventually_healthy(program)
    for node in (one, other, register):
        node.terminate()

    files = [*sorted(traces.iterdir()), tmp_path / "second.trace"]
    one_name, register_name, _ = names = [one.stem for one in files]
    assert one.url.endswith(one_name.replace("broker-", ":"))
    assert register.url.endswith(register_name.replace("register-", ":"))
    assert not any(CONTENT.encode() in one.read_bytes() for one in files)
    recording = read_traces(files, 1_000_000)
    hosts = [name for name, kind in recording.hosts if kind != "client"]
    assert hosts == names
    assert {one.life for one in recording.happenings if one.host == "second"} == {1, 2}
    came = {one.number for one in recording.happenings if isinstance(one, Came)}
    between = [
        one
        for one in recording.happenings
        if isinstance(one, Sent) and one.host in hosts and one.target in hosts
    ]
    kinds = {one.kind for one in between}
    assert {"follow", "replicate"} <= kinds, kinds
    missing = [one for one in between if one.number not in came]
    assert len(missing) < len(between) / 4, missing
    # ShiViz reads the log, and a message that was replicated had been appended before.
    events = parsed(recording)
    appended = next(clock for _, clock, words in events if words.startswith("P2"))
    replicated = next(clock for _, clock, words in events if words.startswith("P3"))
    assert happened_before(appended, replicated)

    lines = program("trace", str(traces), str(tmp_path / "second.trace"))
    assert lines.exit_code == 0, lines.output
    assert "sends replicate to " in lines.stdout
    page, log = tmp_path / "page.html", tmp_path / "shiviz.log"
    written = program("trace", str(traces), "--page", str(page), "--shiviz", str(log))
    assert written.exit_code == 0, written.output
    assert "What 2 nodes did" in page.read_text()
    assert log.read_text()


def test_a_directory_without_files_says_how_nodes_write_some(
    program: Program, tmp_path: Path
) -> None:
    refused = program("trace", str(tmp_path))
    assert refused.exit_code == ExitCode.USAGE
    assert "start nodes with --trace" in refused.stderr


async def test_two_nodes_do_not_write_to_one_file(tmp_path: Path) -> None:
    path = tmp_path / "node.trace"
    with (
        closing(TraceFile(path, SystemClock(), "broker", "127.0.0.1:7001")),
        pytest.raises(CommandError, match="name a directory, in which each node has a file"),
    ):
        TraceFile(path, SystemClock(), "broker", "127.0.0.1:7002")


def test_a_node_has_a_file_of_its_own_in_a_directory(tmp_path: Path) -> None:
    assert trace_path(str(tmp_path), "broker", "0.0.0.0:7001") == tmp_path / "broker-7001.trace"
    (tmp_path / "broker-1.trace").touch()
    assert trace_path(str(tmp_path), "broker", "127.0.0.1:0") == tmp_path / "broker-2.trace"
    assert trace_path(str(tmp_path / "one"), "broker", "127.0.0.1:0") == tmp_path / "one"


async def test_a_trace_that_can_not_be_written_says_so_at_once(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"--trace: .*No such file"):
        TraceFile(tmp_path / "none" / "node.trace", SystemClock(), "broker", "127.0.0.1:7001")


async def test_a_full_file_or_disk_ends_the_trace_with_a_warning_and_not_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    step = P2Appended(
        **{field.name: 0 for field in attrs.fields(P2Appended)}  # type: ignore[arg-type]
    )
    monkeypatch.setattr(f"{trace_file}.FILE_BYTES_MAX", 1_000)
    clock = SystemClock()
    with closing(TraceFile(tmp_path / "full.trace", clock, "broker", "127.0.0.1:7001")) as full:
        for _ in range(50):
            full.step(step)
    assert 1_000 <= (tmp_path / "full.trace").stat().st_size < 1_500
    with closing(TraceFile(Path("/dev/full"), clock, "broker", "127.0.0.1:7001")) as broken:
        broken.step(step)
    assert [one.message for one in caplog.records] == ["trace_full", "trace_not_written"]


def test_no_token_is_written() -> None:
    secret = {
        name
        for cls in MESSAGES.values()
        for name, kind in get_type_hints(cls, include_extras=True).items()
        if kind == Token
    }
    assert secret
    assert secret <= SECRET_FIELDS


async def test_a_process_begins_behind_the_line_that_the_one_before_could_not_end(
    tmp_path: Path,
) -> None:
    path = tmp_path / "broker-1.trace"
    for cut in ("", '{"at": 12.0, "step": "P2 lea'):
        with closing(TraceFile(path, SystemClock(), "broker", "127.0.0.1:7001")):
            pass
        with path.open("a") as file:
            file.write(cut)
    with closing(TraceFile(path, SystemClock(), "broker", "127.0.0.1:7001")):
        pass
    lives = [one.life for one in read_traces([path], 100).happenings if isinstance(one, Event)]
    assert lives == [1, 2, 3]
