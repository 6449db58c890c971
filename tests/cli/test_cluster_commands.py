"""Looking at a cluster, and at its topics, by the program."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from click.testing import Result

import octopi
from harness.processes import NodeProcesses
from octopi.cli.failures import ExitCode
from tests.browser.clusters import in_a_thread
from tests.cli.conftest import Program, RunningCluster, produce

pytestmark = pytest.mark.process


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCTOPI_TIMEOUT_S", "20")


Topics = Callable[..., Result]


@pytest.fixture
def topics(program: Program, cluster: RunningCluster) -> Topics:
    """`octopi-node topics` with these arguments."""

    def run(*arguments: str) -> Result:
        return program("topics", *arguments, "--server", cluster.url)

    return run


def test_a_topic_waits_for_subscriptions_if_it_is_created_so(topics: Topics) -> None:
    hold = ("--retention", "1m", "--hold", "9s", "--hold-size", "500")
    assert topics("create", "slow", *hold).exit_code == 0
    (described, *_) = topics("describe", "slow").stdout.splitlines()
    assert described.endswith("): retention_ms 60000, hold_ms 9000, hold_bytes 500")
    assert topics("delete", "slow", "--yes").exit_code == 0
    refused = topics("create", "kept", "--hold", "9s")
    assert refused.exit_code != 0
    assert "hold_ms and hold_bytes are for topics with retention_ms" in refused.stderr


def test_a_topic_is_altered_as_far_as_that_is_asked_for(topics: Topics) -> None:
    assert topics("create", "bills", "--retention", "1d", "--segment-size", "64KiB").exit_code == 0
    altered = topics("alter", "bills", "--retention", "7d", "--retention-size", "10GB")
    assert altered.stdout == (
        "altered bills: retention_ms 604800000, retention_bytes 10000000000, segment_bytes 65536\n"
    )
    altered = topics("alter", "bills", "--retention", "default", "--flush-before-ack", "--json")
    options = json.loads(altered.stdout)["options"]
    assert options["retention_ms"] is None
    assert options["retention_bytes"] == 10_000_000_000
    assert options["flush_before_ack"] is True
    (described, *_) = topics("describe", "bills").stdout.splitlines()
    assert described.endswith(
        "): retention_bytes 10000000000, segment_bytes 65536, flush_before_ack True"
    )
    assert topics("delete", "bills", "--yes").exit_code == 0


def test_what_can_not_be_altered_is_refused_and_changes_nothing(topics: Topics) -> None:
    assert topics("create", "firm").exit_code == 0
    assert topics("alter", "firm").exit_code == ExitCode.USAGE
    assert topics("alter", "firm", "--retention", "7x").exit_code == ExitCode.USAGE
    assert topics("alter", "firm", "--retention-size", "0").exit_code == ExitCode.USAGE
    refused = topics("alter", "firm", "--min-insync", "99", "--retention", "1h")
    assert refused.exit_code == ExitCode.REFUSED
    assert "so 99 can't be in sync" in refused.stderr
    assert topics("alter", "other", "--retention", "1h").exit_code == ExitCode.REFUSED
    assert (
        json.loads(topics("describe", "firm", "--json").stdout)["options"]["retention_ms"] is None
    )
    assert topics("delete", "firm", "--yes").exit_code == 0


def test_several_topics_are_created_though_one_of_them_exists(topics: Topics) -> None:
    assert topics("create", "one").exit_code == 0
    created = topics("create", "one", "two", "three")
    assert [line.split()[1] for line in created.stdout.splitlines()] == ["two", "three"]
    assert created.exit_code == ExitCode.FAILED
    assert "not created: one: topic one exists already" in created.stderr
    assert "1 of 3 topics could not be created" in created.stderr
    assert topics("delete", "one", "two", "three", "--yes").exit_code == 0


def test_topics_are_listed_with_their_sizes_the_largest_first(
    topics: Topics, program: Program, cluster: RunningCluster
) -> None:
    assert topics("create", "empty", "full").exit_code == 0
    produced = program("produce", "full", "0123456789" * 200, "--server", cluster.url)
    assert produced.exit_code == 0, produced.stderr
    by_size = json.loads(topics("list", "--sort", "size", "--json").stdout)
    sizes = {one["topic"]: one["messages_bytes"] for one in by_size}
    assert next(iter(sizes)) == "full"
    assert sizes["full"] > 1000
    assert sizes["empty"] == 0
    assert {one["topic"]: one["message_count"] for one in by_size} == {"full": 1, "empty": 0}
    assert by_size[0]["written_bytes_per_s"] is None
    with_most = json.loads(topics("list", "--sort", "messages", "--json").stdout)
    assert [one["topic"] for one in with_most] == ["full", "empty"]
    (described,) = json.loads(topics("describe", "full", "--json").stdout)["counts"]
    assert described["log"]["count"] == 1
    rows = topics("list", "--rates").stdout.splitlines()
    assert rows[0].endswith("WRITTEN/S")
    assert [row.split()[-2:] for row in rows[1:]] == [["0", "B"]] * 2
    assert topics("delete", "empty", "full", "--yes").exit_code == 0


def test_a_topic_is_created_listed_described_and_deleted(topics: Topics) -> None:
    created = topics("create", "orders", "--partitions", "2", "--retention", "60")
    assert created.exit_code == 0
    assert created.stdout.startswith("created orders on partitions ")
    listed = topics("list").stdout.splitlines()
    headings = ["TOPIC", "KIND", "PARTITIONS", "LEADERS", "MESSAGES", "SIZE", "ON", "DISK"]
    assert listed[0].split() == headings
    assert [line.split()[:2] for line in listed[1:]] == [["orders", "log"]]
    described = topics("describe", "orders").stdout.splitlines()
    assert described[0].startswith("orders (id ")
    assert described[0].endswith("): retention_ms 60000")
    assert described[2].split() == [
        "PARTITION",
        "LEADER",
        "EPOCH",
        "REPLICAS",
        "IN",
        "SYNC",
        "STATE",
    ]
    assert [line.split()[-1] for line in described[3:5]] == ["ok", "ok"]
    assert len(described) == 2 + 3 + 1 + 3
    deleted = topics("delete", "orders", "--yes")
    assert (deleted.exit_code, deleted.stdout, deleted.stderr) == (0, "", "deleted orders\n")
    assert topics("list").stdout.splitlines()[1:] == []


def test_the_json_has_everything(topics: Topics) -> None:
    created = json.loads(topics("create", "wide", "--on", "1,6", "--json").stdout)
    assert [one["partition"] for one in created["partitions"]] == [1, 6]
    listed = json.loads(topics("list", "--json").stdout)
    assert created.items() <= next(one for one in listed if one["topic"] == "wide").items()
    described = json.loads(topics("describe", "wide", "--json").stdout)
    assert [one["log"]["partition"] for one in described["logs"]] == [1, 6]
    assert described["logs"][0]["log"]["highwater"] == 0
    topics("delete", "wide", "--yes")


def test_a_topic_that_exists_is_refused(topics: Topics) -> None:
    assert topics("create", "twice").exit_code == 0
    again = topics("create", "twice")
    assert again.exit_code == 4
    assert "topic_exists" in again.stderr
    topics("delete", "twice", "--yes")


def test_invalid_and_unknown_partitions_are_refused(topics: Topics) -> None:
    assert topics("create", "x", "--on", "one").exit_code == 2
    assert topics("create", "x", "--on", "7777").exit_code == 4
    assert topics("create", "x", "--partitions", "0").exit_code == 2


def test_a_topic_is_deleted_only_if_yes_is_given(topics: Topics) -> None:
    topics("create", "dear")
    refused = topics("delete", "dear")
    assert refused.exit_code == 2
    assert "confirm with --yes" in refused.stderr
    assert "dear" in topics("list").stdout
    topics("delete", "dear", "--yes")


@asynccontextmanager
async def reading(url: str, name: str, topic: str) -> AsyncIterator[None]:
    """For the block, a consumer of that name works on the first of ten messages."""
    async with octopi.connect(url, name=name) as client:
        async with client.producer() as producer:
            await producer.submit_many(topic, [b"x" * 1_000] * 10)
        async with client.consumer(topic, start="earliest") as consumer:
            await anext(consumer)
            yield


def test_the_programs_that_read_are_listed_with_their_names_and_their_lag(
    program: Program, cluster: RunningCluster
) -> None:
    def consumers(*arguments: str) -> Result:
        return program("consumers", "list", *arguments, "--server", cluster.url)

    with in_a_thread(reading(cluster.url, "bill\u202fing", "lagging")):
        dealt = None
        while dealt is None:  # it has yet to be reported
            [one] = json.loads(consumers("lagging", "--json").stdout)
            dealt = one["dealt"]
        assert (one["name"], one["topic"]) == ("bill\u202fing", "lagging")
        assert one["lag_bytes"] == one["highwater"] - dealt > 10_000
        heading, line = consumers("lagging").stdout.splitlines()
        words = ["NAME", "PROGRAM", "ADDRESS", "BROKER", "TOPIC", "PARTITION", "TO", "SEND", "LAG"]
        assert heading.split() == words
        assert line.startswith("bill\\u202fing  octopi-python/")
        assert line.endswith("kB")
    refused = consumers("nothing")
    assert (refused.exit_code, refused.stdout) == (ExitCode.REFUSED, "")
    assert "nothing" in refused.stderr


def test_the_list_of_brokers_has_their_versions_and_uptimes(
    program: Program, cluster: RunningCluster
) -> None:
    heading, line = program("brokers", "list", "--server", cluster.url).stdout.splitlines()
    columns = ["STARTS", "VERSION", "UPTIME", "DISK", "FREE"]
    assert heading.split()[-5:] == columns
    assert f"  {octopi.__version__}  " in line
    [one] = json.loads(program("brokers", "list", "--server", cluster.url, "--json").stdout)
    assert (one["broker"], one["node"]["role"]) == (1, "broker")


def test_the_status_is_watched_until_it_is_interrupted(cluster: RunningCluster) -> None:
    watch = [sys.executable, "-m", "octopi_node", "status", "--watch", "--server", cluster.url]
    with subprocess.Popen([*watch, "--json"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        facts = [json.loads(process.stdout.readline()) for _ in range(2)]
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)
    assert process.returncode == 130
    assert facts[0]["time_ms"] < facts[1]["time_ms"]
    assert [one["healthy"] for one in facts] == [True, True]
    with subprocess.Popen(watch, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for _ in range(2):
            while process.stdout.readline() != "healthy\n":
                pass
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)


def test_the_status_is_watched_through_a_restart_of_the_register(nodes: NodeProcesses) -> None:
    register = nodes.register()
    nodes.broker(register)
    watch = ["status", "--watch", "--json", "--timeout", "1", "--server", register.url]
    with subprocess.Popen(
        [sys.executable, "-m", "octopi_node", *watch],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        while not json.loads(process.stdout.readline())["nodes"]:
            pass
        register.kill9()
        while "asking again" not in process.stderr.readline():
            pass
        register.restart()
        while not json.loads(process.stdout.readline())["nodes"]:
            pass
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)


def test_the_status_of_a_healthy_cluster_is_0(program: Program, cluster: RunningCluster) -> None:
    result = program("status", "--server", cluster.url)
    assert result.exit_code == 0
    assert ": 1 of 1 broker up, " in result.stdout
    assert result.stdout.endswith("\nhealthy\n")
    agent = f"octopi-node/{octopi.__version__}"
    assert result.stdout.splitlines()[1].startswith(f"register: {agent}, up ")
    fields = json.loads(program("status", "--server", cluster.url, "--json").stdout)
    assert fields["healthy"] is True
    assert (fields["asked"]["role"], fields["asked"]["agent"]) == ("register", agent)
    [node] = fields["nodes"]
    assert (node["broker"], node["agent"], node["protocol_version"]) == (1, agent, 2)
    assert node["uptime_s"] >= 0
    assert fields["brokers"][0]["address"] == cluster.broker.url


def test_the_status_as_a_tree_has_brokers_topics_and_the_marks_of_subscriptions(
    program: Program, nodes: NodeProcesses, tmp_path: Path
) -> None:
    register = nodes.register()
    broker = nodes.broker(register)
    server = ["--server", register.url]
    for command in (
        ["topics", "create", "orders", "--on", "3,5"],
        ["topics", "create", "idle", "--on", "3"],
        ["subscriptions", "create", "billing", "--topic", "orders"],
        ["subscriptions", "create", "work", "--topic", "orders", "--mode", "shared"],
    ):
        assert program(*command, *server).exit_code == 0
    produce(program, tmp_path, "orders", b"one\n", "--partition", "5", *server)
    result = program("status", "--tree", "--json", *server)
    assert result.exit_code == 0, result.stderr
    tree = json.loads(result.stdout)
    assert tree["brokers"]["1"]["address"] == broker.url
    assert (tree["brokers"]["1"]["state"], tree["brokers"]["1"]["leads"]) == ("up", 2)
    assert sorted(tree["topics"]) == ["idle", "orders", "orders.work.dead"]
    orders = tree["topics"]["orders"]
    assert orders["partitions"]["5"] == {
        "leader": 1,
        "address": broker.url,
        "epoch": 1,
        "replicas": [1],
        "in_sync": [1],
    }
    marks = orders["subscriptions"]["billing"]["marks"]
    assert [(key, one["mark"]) for key, one in marks.items()] == [("3", 0), ("5", 0)]
    assert marks["5"]["highwater"] > 0
    assert orders["subscriptions"]["work"]["mode"] == "shared"
    text = program("status", "--tree", *server).stdout.splitlines()
    assert text[0] == f"cluster {tree['cluster']}"
    assert f"    1  {broker.url}  up, leads 2, load 0.0" in "\n".join(text)
    assert "      subscription billing  exclusive" in text
    assert f"        5  mark 0 of {marks['5']['highwater']}" in text
    broker.kill9()
    until = time.monotonic() + 60
    # Nothing announces that the register has missed it.  It may do so while the command asks.
    while time.monotonic() < until:
        result = program("status", "--tree", "--json", *server)
        assert result.exit_code == 0, result.stderr
        tree = json.loads(result.stdout)
        led = tree["topics"]["orders"]["partitions"]["3"]["address"]
        if tree["brokers"]["1"]["state"] == "away" and not led:
            break
    assert tree["topics"]["orders"]["problem"].startswith("marks are not known")
    assert tree["topics"]["orders"]["partitions"]["3"]["address"] == ""


def test_the_status_as_a_tree_is_not_watched(program: Program) -> None:
    result = program("status", "--tree", "--watch")
    assert result.exit_code == 2
    assert "can't be combined" in result.stderr


def test_the_status_without_a_broker_is_1(program: Program, nodes: NodeProcesses) -> None:
    register = nodes.register()
    result = program("status", "--server", register.url)
    assert result.exit_code == 1
    assert result.stdout.endswith("not healthy:\n  no broker has joined\n")


def test_the_status_with_a_broker_away_is_1(program: Program, nodes: NodeProcesses) -> None:
    register = nodes.register()
    broker = nodes.broker(register)
    server = ["--server", register.url]
    assert program("topics", "create", "orders", "--on", "3", *server).exit_code == 0
    assert program("status", *server).exit_code == 0
    assert broker.terminate() == 0
    result = program("status", *server)
    assert result.exit_code == 1
    assert result.stdout.endswith(
        "not healthy:\n"
        "  broker 1 is away\n"
        "  no leader: partition 3\n"
        "  partition 3: it waits for broker 1, in sync last: start these brokers; "
        "`octopi-node partitions recover 3` shows what may be lost otherwise\n"
    )
    described = program("topics", "describe", "orders", *server, "--timeout", "1")
    assert described.exit_code == 0
    assert "  no leader\n" in described.stdout
    assert "  away  " in described.stdout
    broker.restart()
    deadline = time.monotonic() + 20  # it leads a moment after it has joined
    while program("status", *server).exit_code:
        assert time.monotonic() < deadline, "the cluster does not become healthy again"


def test_a_topic_is_deleted_by_its_id(topics: Topics) -> None:
    created = json.loads(topics("create", "by-id", "--json").stdout)
    topic_id = created["topic_id"]
    deleted = topics("delete", "--id", topic_id, "--yes")
    assert (deleted.exit_code, deleted.stderr) == (0, f"deleted the topic with id {topic_id}\n")
    again = topics("delete", "--id", topic_id, "--yes")
    assert "unknown_topic" in again.stderr
    assert topics("delete", "--yes").exit_code == 2
