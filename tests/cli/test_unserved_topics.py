"""Two topics of one name, of which nothing tells which one was deleted, by the program."""

import json
import shutil

import pytest

from harness.processes import NodeProcesses
from tests.cli.conftest import Program
from tests.cli.test_replicated_cluster import eventually_healthy, three_brokers

pytestmark = pytest.mark.process


def test_an_unserved_topic_is_shown_and_deleted_by_its_id(
    nodes: NodeProcesses, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = three_brokers(nodes)
    monkeypatch.setenv("OCTOPI_SERVER", cluster.register.url)
    created = json.loads(program("topics", "create", "orders", "--on", "0", "--json").stdout)
    eventually_healthy(program)

    cluster.brokers[2].terminate()
    assert program("topics", "delete", "orders", "--yes").exit_code == 0
    cluster.register.kill9()  # and with it goes what is known of the deletion
    shutil.rmtree(cluster.register.data_dir)
    cluster.register.start()
    again = program("topics", "create", "orders", "--on", "0", "--json", "--timeout", "60")
    assert again.exit_code == 0, again.output
    cluster.brokers[2].start()

    status = program("status")
    assert status.exit_code == 1, status.stdout
    assert (
        f"broker 3 keeps records of a topic orders with id {created['topic_id']}, which "
        in status.stdout
    )
    assert f"name in use has id {json.loads(again.stdout)['topic_id']}" in status.stdout
    (shown,) = json.loads(program("status", "--json").stdout)["unserved"]
    assert shown["topic_id"] == created["topic_id"]

    deleted = program("topics", "delete", "--id", created["topic_id"], "--yes")
    assert deleted.exit_code == 0, deleted.output
    eventually_healthy(program)
    described = json.loads(program("topics", "describe", "orders", "--json").stdout)
    assert described["topic_id"] == json.loads(again.stdout)["topic_id"]
    assert [one["broker"] for one in described["logs"]] == [1, 2, 3]
