"""What strangers send to a real node does not become lines of its log."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from harness.processes import NodeProcess, NodeProcesses
from octopi.errors import OctopiError, RefusedError, Status
from octopi.identifiers import Offset, PartitionId
from octopi.transport.handshake import open_connection
from octopi.wire import messages as m
from octopi.wire.endpoints import CLIENT
from tests.admin.nodes import ask
from tests.kit.cluster import system_environment

EVIL = "orders\n12:00:00 [error] the disk is full\x1b[2J\u202e"


@pytest.mark.parametrize("log_format", ["console", "json"])
def test_a_log_has_only_lines_of_its_node(
    log_format: str, nodes: NodeProcesses, tmp_path: Path
) -> None:
    settings = tmp_path / "log.toml"
    settings.write_text(f'[log]\nformat = "{log_format}"\nlevel = "debug"\n')
    register = nodes.register("register", "--config", str(settings))
    broker = nodes.broker(register, "broker", "--config", str(settings))
    trio.run(_be_evil, register)
    trio.run(_be_evil, broker)
    for node in (register, broker):
        node.terminate()
        lines = node.log().splitlines()
        assert len(lines) > 1
        for line in lines:
            assert line.isprintable()
            assert line.startswith("{" if log_format == "json" else ("1", "0", "2")), line
            assert "[error" not in line


async def _be_evil(node: NodeProcess) -> None:
    questions: list[partial[Any]] = [
        partial(
            m.CreateTopic, topic=EVIL, partition_count=1, partitions=None, options=m.TopicOptions()
        ),
        partial(m.DescribeTopic, topic=EVIL, create=True),
        partial(m.DeleteTopic, topic=EVIL),
        partial(m.Produce, topic=EVIL, partition=PartitionId(0), records=b"x"),
        partial(
            m.Fetch, topic=EVIL, partition=PartitionId(0), offset=Offset(0), bytes_max=1, wait_ms=0
        ),
        partial(m.FindOffset, topic=EVIL, partition=PartitionId(0), at="latest", value=0),
        partial(m.Subscribe, topic=EVIL, partition=PartitionId(0), offset=Offset(0), credit=1),
    ]
    allowed = CLIENT.to_decider if "register" in node.name else CLIENT.to_leader
    async with trio.open_nursery() as nursery:
        here = system_environment(nursery)
        connection = await open_connection(here, node.url, CLIENT, "a program")
        nursery.start_soon(connection.run, lambda message: None)
        for question in questions:
            if question.func in allowed:
                message = question(request=connection.next_request())
                with pytest.raises(RefusedError) as caught:
                    await connection.request(message, m.Done, 10)
                assert caught.value.status in {Status.INVALID_TOPIC, Status.NOT_LEADER}
        await connection.close(1000, "a\nb\x1b[2J")
        with pytest.raises(OctopiError):
            await here.net.connect(node.url, "/v1/\x1b[2J")
        nursery.cancel_scope.cancel()
    for path in ("/%0a%1b[2J", "/console/%0a", "/api/v1/%1b[2J"):
        assert (await ask(node.url, path)).status == 404
