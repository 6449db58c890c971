"""The demonstration: what it shows, and that nothing of it stays behind."""

import os
import re
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from octopi.cli.node_processes import node_environment
from octopi.cli.sample_lines import make_stream
from tests.cli.conftest import Program


def demo(tmp_path: Path, *arguments: str) -> subprocess.Popen[str]:
    """The demo, with its temporary directory in *tmp_path*."""
    (tmp_path / "tmp").mkdir()
    return subprocess.Popen(
        [sys.executable, "-m", "octopi_node", "demo", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**node_environment(), "TMPDIR": str(tmp_path / "tmp")},
        text=True,
    )


def large_file(tmp_path: Path) -> Path:
    """Lines that keep a demo busy for longer than a test looks at it."""
    file = tmp_path / "large"
    file.write_bytes(b"a line of some length\n" * 5_000_000)
    return file


def processes_using(directory: Path) -> list[int]:
    """Processes that have *directory* in their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            try:
                if os.fsencode(directory) in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue  # it has ended meanwhile
    return found


def seconds(pattern: str, stdout: str) -> float:
    found = re.search(pattern, stdout, re.MULTILINE)
    assert found is not None, stdout
    return float(found[1])


@pytest.mark.process
@pytest.mark.slow
def test_the_leader_is_killed_and_nothing_is_lost(tmp_path: Path) -> None:
    with demo(tmp_path) as process:
        stdout, stderr = process.communicate(timeout=60)
    assert (process.returncode, stderr) == (0, "")
    assert "producing  100,000 messages, 9.1 MB, the file 10 times\n" in stdout
    killed = re.search(r"^killed     broker (\d), the leader", stdout, re.MULTILINE)
    assert killed is not None, stdout
    elected = re.search(r"^elected    broker (\d), epoch 2", stdout, re.MULTILINE)
    assert elected is not None, stdout
    assert elected[1] != killed[1]
    assert seconds(r"^elected .* after ([\d.]+) s$", stdout) < 5
    assert seconds(r"^went on    after ([\d.]+) s without", stdout) < 5
    assert f"restarted  broker {killed[1]}: in sync again" in stdout
    assert re.search(r"^produced   100,000 messages.*: all acknowledged$", stdout, re.MULTILINE)
    assert "compared   the log files of brokers 1 2 3 up to the highwater mark 1" in stdout
    assert stdout.splitlines()[-1] == (
        "OK: 100,000 acknowledged messages survived the death of the leader, each once, "
        "in order, on 3 replicas"
    )
    assert list((tmp_path / "tmp").iterdir()) == []
    assert processes_using(tmp_path) == []


@pytest.mark.process
@pytest.mark.slow
def test_the_active_register_is_killed_with_the_leader_and_nothing_is_lost(tmp_path: Path) -> None:
    with demo(tmp_path, "--registers", "3") as process:
        stdout, stderr = process.communicate(timeout=90)
    assert (process.returncode, stderr) == (0, "")
    assert "started    3 registers and 3 brokers" in stdout
    killed = re.search(r"^killed     register (\d), the active one", stdout, re.MULTILINE)
    assert killed is not None, stdout
    active = re.search(r"^active     register (\d), after ([\d.]+) s$", stdout, re.MULTILINE)
    assert active is not None, stdout
    assert active[1] != killed[1]
    assert float(active[2]) < 5
    assert re.search(r"^elected    broker \d, epoch 2, after", stdout, re.MULTILINE)
    assert f"restarted  register {killed[1]}: serves again" in stdout
    assert "compared   the log files of brokers 1 2 3 up to the highwater mark 1" in stdout
    assert stdout.splitlines()[-1] == (
        "OK: 100,000 acknowledged messages survived the death of the leader and of the active "
        "register, each once, in order, on 3 replicas"
    )
    assert list((tmp_path / "tmp").iterdir()) == []
    assert processes_using(tmp_path) == []


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize("brokers", [3, 5])
def test_brokers_that_lead_and_decide_without_a_register_are_killed_and_nothing_is_lost(
    tmp_path: Path, brokers: int
) -> None:
    with demo(tmp_path, "--ring", "--brokers", str(brokers)) as process:
        stdout, stderr = process.communicate(timeout=120)
    assert (process.returncode, stderr) == (0, "")
    assert f"started    {brokers} brokers without a register, each a process" in stdout
    home = re.search(
        r"^home       partition (\d) keeps .* led by broker (\d)", stdout, re.MULTILINE
    )
    assert home is not None, stdout
    topic = re.search(
        r"^created    topic demo, partition (\d): led by broker (\d)", stdout, re.MULTILINE
    )
    assert topic is not None, stdout
    assert topic[1] != home[1]
    assert topic[2] != home[2]

    kills = re.findall(
        r"^killed     broker (\d), (the leader(?: of the home)?),", stdout, re.MULTILINE
    )
    assert [what for _, what in kills] == ["the leader", "the leader of the home"]
    (leader, _), (decider, _) = kills
    elected = re.findall(
        r"^elected    broker (\d)( for the home)?, epoch (\d)", stdout, re.MULTILINE
    )
    assert [
        (who != victim, what) for (who, what, _), (victim, _) in zip(elected, kills, strict=True)
    ] == [
        (True, ""),
        (True, " for the home"),
    ]
    assert seconds(r"^elected    broker \d, .* after ([\d.]+) s$", stdout) < 5
    assert seconds(r"^elected    broker \d for the home, .* after ([\d.]+) s$", stdout) < 5
    assert seconds(r"^decided    retention of topic demo changed, ([\d.]+) s after", stdout) < 10

    again = re.findall(r"^restarted  (.*): everything in sync again", stdout, re.MULTILINE)
    if brokers == 3:  # one at a time
        assert again == [f"broker {leader}", f"broker {decider}"]
    else:
        assert again == [f"broker {leader} and broker {decider}"]
    assert re.search(r"^produced   100,000 messages.*: all acknowledged$", stdout, re.MULTILINE)
    assert re.search(r"^compared   the log files of brokers \d \d \d up to", stdout, re.MULTILINE)
    assert stdout.splitlines()[-1] == (
        "OK: 100,000 acknowledged messages survived the death of the leader and of the leader of "
        "the topic's home, each once, in order, on 3 replicas"
    )
    assert list((tmp_path / "tmp").iterdir()) == []
    assert processes_using(tmp_path) == []


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--registers", "3"), "--registers is not an option with --ring"),
        (("--brokers", "2"), "--ring runs 3 to 9 brokers, not 2"),
        (("--brokers", "10"), "--ring runs 3 to 9 brokers, not 10"),
    ],
    ids=["registers", "too few", "too many"],
)
def test_a_demo_without_a_register_refuses_what_it_can_not_show(
    program: Program, options: tuple[str, str], why: str
) -> None:
    result = program("demo", "--ring", *options)
    assert result.exit_code == 2
    assert why in result.stderr


@pytest.mark.process
@pytest.mark.slow
def test_the_demo_repeats_any_file_and_loses_no_line_of_it(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"a\n\nb\xff\r\nc")
    with demo(tmp_path, "--brokers", "2", "-f", str(file)) as process:
        stdout, stderr = process.communicate(timeout=60)
    assert (process.returncode, stderr) == (0, "")
    assert "the file 25,000 times" in stdout
    assert stdout.splitlines()[-1].startswith("OK: 100,000 acknowledged messages survived")


def test_a_file_without_lines_is_refused(program: Program, tmp_path: Path) -> None:
    (tmp_path / "empty").write_bytes(b"")
    result = program("demo", "-f", str(tmp_path / "empty"))
    assert result.exit_code == 2
    assert "empty is empty: give a file of lines" in result.stderr


@pytest.mark.parametrize(
    ("content", "lines", "times"),
    [
        (b"a\nb\n", [b"a", b"b"], 50_000),
        (b"a\nb", [b"a", b"b"], 50_000),
        (b"\n", [b""], 100_000),
        (b"x\n" * 100_000, [b"x"] * 100_000, 1),
        (b"x\n" * 99_999 + b"y", [b"x"] * 99_999 + [b"y"], 1),
        (b"x\n" * 60_000, [b"x"] * 60_000, 2),
    ],
    ids=["short", "no newline at the end", "empty line", "long", "long, no newline", "twice"],
)
def test_the_demo_repeats_a_file_until_there_are_enough_messages(
    tmp_path: Path, content: bytes, lines: list[bytes], times: int
) -> None:
    file = tmp_path / "file"
    file.write_bytes(content)
    stream = make_stream(file, tmp_path)
    assert (stream.line_count, stream.times) == (len(lines) * times, times)
    assert stream.path.read_bytes() == b"".join(line + b"\n" for line in lines) * times
    assert file.read_bytes() == content


@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_leaves_no_file_and_no_process(
    tmp_path: Path, number: signal.Signals
) -> None:
    with demo(tmp_path, "--brokers", "2", "-f", str(large_file(tmp_path))) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("started")
        process.send_signal(number)
        _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert stderr == "octopi-node: interrupted; every process was stopped\n"
    assert list((tmp_path / "tmp").iterdir()) == []
    assert processes_using(tmp_path) == []


@pytest.mark.process
def test_nodes_end_even_if_the_demo_is_killed(tmp_path: Path) -> None:
    with demo(tmp_path, "--brokers", "2", "-f", str(large_file(tmp_path))) as process:
        assert process.stdout is not None
        process.stdout.readline()
        nodes = [pid for pid in processes_using(tmp_path) if pid != process.pid]
        assert len(nodes) == 3
        watched = [os.pidfd_open(pid) for pid in nodes]
        process.kill()
    for descriptor in watched:
        ended = select.poll()  # `select.select` takes no descriptor beyond 1,023
        ended.register(descriptor, select.POLLIN)
        assert ended.poll(20_000), "a node lives on"
        os.close(descriptor)


@pytest.mark.process
def test_a_node_that_dies_fails_the_demo(tmp_path: Path) -> None:
    with demo(tmp_path, "--brokers", "2", "-f", str(large_file(tmp_path))) as process:
        assert process.stdout is not None
        process.stdout.readline()
        broker = next(
            pid
            for pid in processes_using(tmp_path)
            if b"--register" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        )
        os.kill(broker, signal.SIGKILL)
        _, stderr = process.communicate(timeout=60)
    assert process.returncode == 1
    assert re.match(r"octopi-node: broker-\d ended by itself, code -9: ", stderr)
    assert processes_using(tmp_path) == []
