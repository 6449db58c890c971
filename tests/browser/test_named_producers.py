"""Producers of octopi.js that have a name: one life at a time, also beside other clients."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

import octopi
from harness.processes import node_processes
from tests.browser.test_reading import leader_of, start_cluster
from tests.browser.tools import STATIC, node_command

Ask = Callable[[str], Any]


@contextmanager
def page(*arguments: str) -> Iterator[Ask]:
    """A program of Node, which is asked a line at a time."""
    script = Path(__file__).with_name("named_producers.mjs")
    command = [*node_command(), str(script), STATIC.as_uri(), *arguments]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:

        def ask(line: str) -> Any:  # noqa: ANN401  # JSON is any of many types
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(f"{line}\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())

        try:
            yield ask
        finally:
            process.kill()


def test_ids_are_made_from_names_without_the_cryptography_of_secure_pages() -> None:
    with page() as ask:
        for text in ("", "abc", "octopi producer pricing", "x" * 55, "x" * 56, "x" * 64, "x" * 200):
            assert ask(f"hash {text}") == hashlib.sha256(text.encode()).hexdigest()


async def _values(client: octopi.Client) -> list[bytes]:
    async with client.consumer("prices", start="earliest", stop_at_end=True) as prices:
        return [price.value async for price in prices]


async def _life_between(url: str, ask: Ask) -> list[bytes]:
    """A page and a program of Python open one name in turn."""
    async with octopi.connect(url) as client:
        assert ask("open") == "pricing"
        assert ask("publish 1") is False
        with pytest.raises(octopi.ProducerFencedError):  # noqa: PT012
            async with client.producer(name="pricing", topics=["prices"]) as producer:
                late = ask("publish late")
                assert late["code"] == "producer_fenced"
                again = ask("publish late")
                assert again["code"] == "producer_fenced"
                assert "the producer 'pricing' was opened again" in again["message"]
                assert "open it again here" in again["message"]
                await producer.send("prices", b"2")
                assert ask("open") == "pricing"
                with pytest.raises(octopi.NotDeliveredError):
                    await producer.send("prices", b"late")
        assert ask("publish 3") is False
        assert "a name has 1 to 200 letters" in ask("open-badly")["message"]
        return await _values(client)


@pytest.mark.process
def test_a_page_and_a_program_of_the_same_name_end_each_other(tmp_path: Path) -> None:
    with node_processes(tmp_path) as nodes:
        register, brokers = start_cluster(nodes)
        with page(register.url) as ask, page(register.url) as other:
            assert trio.run(_life_between, register.url, ask) == [b"1", b"2", b"3"]
            assert other("open") == "pricing"
            brokers[trio.run(leader_of, register.url, "prices")].kill9()
            assert ask("publish late")["code"] in {"producer_fenced", "outcome_unknown"}
            assert other("publish 4") is False
            assert ask("publish late")["code"] == "producer_fenced"
