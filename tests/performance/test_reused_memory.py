"""Nodes and clients put messages into memory that earlier messages have left.

Where they don't, the system maps and clears pages for each message, which can take as long as all
that Python does with it.
"""

from __future__ import annotations

from pathlib import Path
from resource import RUSAGE_SELF, getrusage

import pytest

import octopi
from harness.processes import NodeProcess, node_processes
from octopi.limits import KIB, MIB

pytestmark = pytest.mark.process

VALUE = bytes(KIB)
MESSAGES = 16 * 1024
PAGES_MAX = MESSAGES * len(VALUE) // MIB * 16
"""A sixteenth of the pages of one copy of all messages, for what else the node does meanwhile.  It
is a page or none where memory is used again, and 3,000 to 12,000 where it is given back."""
READERS_AT_MOST = 8
"""By then memory has grown to what these readers need at a time, which differs from one to the
next with the moments at which they ask."""


async def test_a_broker_reads_messages_into_memory_that_it_has_used_before(tmp_path: Path) -> None:
    with node_processes(tmp_path) as nodes:
        register = nodes.register()
        broker = nodes.broker(register)
        async with octopi.connect(register.url) as client:
            async with client.producer() as producer:
                await producer.submit_many("orders", [VALUE] * MESSAGES)
            faults = [await _faults_of_a_reader(broker, client)]  # it grows for the first
            while min(faults) >= PAGES_MAX and len(faults) < READERS_AT_MOST:
                faults.append(await _faults_of_a_reader(broker, client))
            assert min(faults) < PAGES_MAX, faults


async def test_a_client_receives_messages_into_memory_that_it_has_used_before(
    tmp_path: Path,
) -> None:
    with node_processes(tmp_path) as nodes:
        register = nodes.register()
        nodes.broker(register)
        async with octopi.connect(register.url) as client:
            async with client.producer() as producer:
                await producer.submit_many("orders", [VALUE] * MESSAGES)
            faults: list[int] = []
            while min(faults, default=PAGES_MAX) >= PAGES_MAX and len(faults) < READERS_AT_MOST:
                before = getrusage(RUSAGE_SELF).ru_minflt
                await _consume(client)
                faults.append(getrusage(RUSAGE_SELF).ru_minflt - before)
            assert min(faults) < PAGES_MAX, faults


async def _faults_of_a_reader(broker: NodeProcess, client: octopi.Client) -> int:
    before = _page_faults(broker)
    await _consume(client)
    return _page_faults(broker) - before


async def _consume(client: octopi.Client) -> None:
    async with client.consumer("orders", start="earliest") as consumer:
        seen = 0
        while seen < MESSAGES:
            seen += len(await consumer.next_batch() or [])


def _page_faults(node: NodeProcess) -> int:
    """Pages that the system has mapped for *node*, without reading them from a disk."""
    fields = Path(f"/proc/{node.pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[7])
