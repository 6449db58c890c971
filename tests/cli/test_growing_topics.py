"""Topics get other partitions, by the program."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from octopi.cli.failures import ExitCode
from tests.cli.conftest import Program, RunningCluster

pytestmark = pytest.mark.process

Topics = Callable[..., Result]


@pytest.fixture
def topics(program: Program, cluster: RunningCluster, monkeypatch: pytest.MonkeyPatch) -> Topics:
    """`octopi-node topics` with these arguments."""
    monkeypatch.setenv("OCTOPI_TIMEOUT_S", "20")

    def run(*arguments: str) -> Result:
        return program("topics", *arguments, "--server", cluster.url)

    return run


def numbers(text: str) -> list[int]:
    return [int(one) for one in re.findall(r"\d+", text)]


def test_a_topic_grows_and_its_description_has_all_generations(
    topics: Topics, program: Program, cluster: RunningCluster
) -> None:
    assert topics("create", "wide").exit_code == 0
    server = ("--server", cluster.url)
    for key in ("a", "b", "c"):
        assert program("produce", "wide", "one", "--key", key, *server).exit_code == 0
    grown = topics("grow", "wide", "--partitions", "3")
    assert grown.exit_code == 0, grown.stderr
    found = re.fullmatch(r"wide is on 3 partitions now: ([\d ]+) \(generation 2\)\n", grown.stdout)
    assert found is not None
    places = numbers(found[1])
    for key in ("a", "b", "c"):
        assert program("produce", "wide", "two", "--key", key, *server).exit_code == 0
    page = topics("describe", "wide").stdout
    assert re.search(r"^GENERATION +PARTITIONS +LOGS END AT$", page, re.MULTILINE)
    assert re.search(rf"^ *1 +{places[0]} +[1-9]\d*$", page, re.MULTILINE)
    assert re.search(rf"^ *2 +{' '.join(map(str, places))} +in force$", page, re.MULTILINE)
    again = json.loads(topics("grow", "wide", "--partitions", "4", "--json").stdout)
    assert [one["number"] for one in again["generations"]] == [1, 2, 3]
    assert [one["partition"] for one in again["partitions"]][:3] == places
    assert topics("delete", "wide", "--yes").exit_code == 0


def test_a_topic_moves_and_the_former_partition_is_still_described(topics: Topics) -> None:
    created = json.loads(topics("create", "busy", "--json").stdout)
    (former,) = [one["partition"] for one in created["partitions"]]
    later = former + 1 if former == 0 else former - 1
    moved = topics("move", "busy", "--partition", str(later))
    assert moved.stdout == f"busy is on 1 partition now: {later} (generation 2)\n"
    described = json.loads(topics("describe", "busy", "--json").stdout)
    assert [one["partition"] for one in described["partitions"]] == [later]
    assert [one["partition"] for one in described["sealed_partitions"]] == [former]
    back = topics("move", "busy", "--partition", str(former))
    assert back.exit_code == ExitCode.REFUSED
    assert "has a sealed log of topic busy: choose another one" in back.stderr
    assert topics("delete", "busy", "--yes").exit_code == 0


def test_what_can_not_grow_or_move_is_refused_with_the_reason(topics: Topics) -> None:
    assert topics("create", "firm", "--partitions", "2").exit_code == 0
    assert topics("grow", "firm").exit_code == ExitCode.USAGE
    assert topics("move", "firm").exit_code == ExitCode.USAGE
    for count in ("1", "2"):
        refused = topics("grow", "firm", "--partitions", count)
        assert refused.exit_code == ExitCode.REFUSED
        assert "topic firm has 2 partitions and the cluster" in refused.stderr
    refused = topics("grow", "firm", "--partitions", "1000")
    assert "octopi-node partitions add" in refused.stderr
    assert "only a topic of one is moved" in topics("move", "firm", "--partition", "1").stderr
    assert "there is no partition 9999" in topics("move", "firm", "--partition", "9999").stderr
    assert "there is no topic" in topics("grow", "nothing", "--partitions", "2").stderr
    assert json.loads(topics("describe", "firm", "--json").stdout)["generations"] == []
    assert topics("delete", "firm", "--yes").exit_code == 0


def test_a_topic_that_grew_is_consumed_whole_and_not_backed_up_in_part(
    topics: Topics,
    program: Program,
    cluster: RunningCluster,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert topics("create", "kept").exit_code == 0
    server = ("--server", cluster.url)
    keys = ("a", "b", "c")
    for value in ("1", "2"):
        for key in keys:
            done = program("produce", "kept", key + value, "--key", key, *server)
            assert done.exit_code == 0, done.stderr
        if value == "1":
            assert topics("grow", "kept", "--partitions", "4").exit_code == 0
    capfd.readouterr()
    assert program("consume", "kept", "-e", *server).exit_code == 0
    lines = capfd.readouterr().out.split()
    assert sorted(lines) == sorted(key + value for key in keys for value in "12")
    for key in keys:
        assert lines.index(key + "1") < lines.index(key + "2")
    refused = program("backup", "kept", str(tmp_path / "copy"), *server)
    assert refused.exit_code == ExitCode.REFUSED
    assert "copy it with `octopi-node pipeline archive`" in refused.stderr
    assert not (tmp_path / "copy").exists()
    assert topics("delete", "kept", "--yes").exit_code == 0
