"""Nodes write the history unless that is turned off."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest
import trio
import trio.testing

from octopi.cli import broker_nodes, register_nodes
from octopi.cli.config import BrokerSettings, NodeSettings, RegisterSettings, join_secret_in
from octopi.history.writer import HistoryAccess


@pytest.mark.parametrize("history", [True, False])
async def test_a_node_writes_its_history_unless_that_is_turned_off(
    history: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[tuple[str, list[str]]] = []

    async def events(node: object, access: HistoryAccess) -> None:
        begun.append(("events", list(access.servers)))

    async def rates(node: object, access: HistoryAccess) -> None:
        begun.append(("rates", list(access.servers)))

    monkeypatch.setattr(register_nodes, "write_events", events)
    monkeypatch.setattr(broker_nodes, "write_rates", rates)
    register = RegisterSettings(
        listen="127.0.0.1:0", data_dir=str(tmp_path / "register"), gather_s=0.0
    )
    common = NodeSettings(history=history)

    async with trio.open_nursery() as nursery:
        stop = trio.Event()

        async def run_register(task_status: trio.TaskStatus[str]) -> None:
            await register_nodes.run_register_node(register, common, stop, task_status.started)

        async def run_broker(task_status: trio.TaskStatus[str]) -> None:
            await broker_nodes.run_broker_node(
                BrokerSettings(data_dir=str(tmp_path / "broker"), register=url),
                attrs.evolve(common, join_secret=join_secret_in(register.data_dir)),
                stop,
                task_status.started,
            )

        url: str = await nursery.start(run_register)
        broker_url: str = await nursery.start(run_broker)
        await trio.testing.wait_all_tasks_blocked()
        stop.set()
    expected = [("events", [url]), ("rates", [url, broker_url])]
    assert begun == (expected if history else [])
