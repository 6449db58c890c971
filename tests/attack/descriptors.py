"""Idle connections, far more than nodes may open files: logs, brokers and operators have what they
need all the same, and nothing is left behind when the strangers go."""

from __future__ import annotations

import json
import time
from functools import partial
from pathlib import Path
from typing import Final

import trio

from harness.processes import NodeProcess, join_secret, node_processes
from octopi.cli.node_processes import node_command, node_environment
from octopi.transport.frame_reader import BINARY
from octopi.wire import messages as m
from octopi.wire.codec import encode
from octopi.wire.endpoints import CLIENT, MEMBERSHIP
from tests.attack.bystanders import TOPIC, Here, brokers_left, probing, producing, start_cluster
from tests.attack.flooder import Target, flooding, frame, upgrade
from tests.attack.frame import Attack, Figure

FILES_MAX: Final = 512
CONNECTIONS: Final = 2_000
"""To each of two nodes."""
AGAIN_PER_S: Final = 20.0
"""Of each kind: where a node closes one, another one comes."""
SECONDS: Final = 5.0
P99_MS: Final = 200.0
HEALED_MS: Final = 1_000.0
ANSWER_S: Final = 5.0
REJOINED_S: Final = 15.0
_SEGMENT_BYTES: Final = 4096
_MORE_SOCKETS: Final = 8
"""Producers and followers that have connected anew may have so many more."""
_LOOK_S: Final = 0.01
_HEAL_S_MAX: Final = 10.0


def _idle(node: NodeProcess) -> list[Target]:
    """Strangers of each kind that stay and say nothing more."""
    host = node.url.partition("://")[2]
    head, hello = upgrade(CLIENT.path, host), frame(encode(m.Hello(1, "idle", nonce=b"x" * 32)))
    kinds = [b"", head[:40], head, upgrade(MEMBERSHIP.path, host) + hello]
    return [_stays(node, kind) for kind in kinds]


def _stays(node: NodeProcess, said: bytes, connections: int = CONNECTIONS // 4) -> Target:
    return Target(node.url, connections, said, once=True, is_bare=True, again_per_s=AGAIN_PER_S)


async def _status(here: Here, *options: str) -> tuple[float, bool, dict[str, object]]:
    """How many seconds `octopi-node status` takes; whether all is well; and what it says."""
    began = time.perf_counter()
    command = node_command("status", "--json", "--server", here.register.url, *options)
    done = await trio.run_process(command, capture_stdout=True, check=False, env=node_environment())
    said = json.loads(done.stdout) if done.stdout else {}
    took_s = time.perf_counter() - began if said else float("inf")
    return took_s, done.returncode == 0, said


def _logs(here: Here) -> list[int]:
    """How many segments each log of the bystanders has, at each broker."""
    return [
        len(list(one.glob("*.log")))
        for broker in here.brokers
        for one in sorted(broker.data_dir.glob(f"logs/*/{TOPIC}*"))
    ]


def _faults(here: Here) -> list[str]:
    """Lines of the nodes' logs about disks that are full or fail, and logs that take no records."""
    words = ("disk full", "disk fails", "read-only", "read_only", "Too many open files")
    return [
        f"{node.name}: {line[:150]}"
        for node in here.nodes
        for line in node.log().splitlines()
        if any(word in line for word in words)
    ]


async def _healed_ms(here: Here, before: list[int], directory: Path) -> float:
    """How long after now no node has more sockets than *before*, and each answers a new client."""
    began = time.perf_counter()

    def is_back() -> bool:
        both = zip(here.nodes, before, strict=True)
        return all(node.socket_count() <= count + _MORE_SOCKETS for node, count in both)

    with trio.move_on_after(_HEAL_S_MAX):
        while not is_back():  # noqa: ASYNC110  # other processes set no event
            await trio.sleep(_LOOK_S)
        for node in here.nodes:
            async with probing(node.url, directory) as probe:
                await probe.answered.wait()
        return (time.perf_counter() - began) * 1000
    return float("inf")


async def strangers(directory: Path) -> list[Figure]:
    """Thousands of strangers at the register and at one broker, all of which may open few files."""
    with node_processes(directory) as nodes:
        here = start_cluster(nodes, files_max=FILES_MAX)
        attacked = [here.register, here.brokers[0]]
        async with producing(here, segment_bytes=_SEGMENT_BYTES) as observed:
            await trio.sleep(1)
            before, segments = [one.socket_count() for one in here.nodes], _logs(here)
            with trio.fail_after(60):
                async with flooding([one for node in attacked for one in _idle(node)]) as outcome:
                    observed.latencies_s.clear()
                    await trio.sleep(SECONDS)
                    most = max(len(one.descriptors()) for one in attacked)
                    answer_s, _, _ = await _status(here)
                    stuck = sum(
                        now <= then for now, then in zip(_logs(here), segments, strict=True)
                    )
                    figures = observed.figures(P99_MS)
                    left = await brokers_left(here, directory)
                    rejoined_s = await _restarted(here)
            healed_ms = await _healed_ms(here, before, directory)
        faults = _faults(here)
    note = f"{outcome['closed']:,} connections closed, {most} descriptors at most"
    return [
        Figure("brokers that left", left, "", 0, note),
        *figures,
        Figure("logs that began no segment", stuck, "", 0, f"of {len(segments)}"),
        Figure("faults of disks", len(faults), "", 0, "; ".join(faults[:1])),
        Figure("answer of status", answer_s, "s", ANSWER_S),
        Figure("a restarted broker is in sync", rejoined_s, "s", REJOINED_S),
        Figure("healed after they left", healed_ms, "ms", HEALED_MS),
    ]


async def _restarted(here: Here) -> float:
    """Kill a broker and start it again; how many seconds until it is in sync everywhere."""
    began = time.perf_counter()
    broker = here.brokers[1]
    broker.kill9()
    broker.launch()
    await trio.to_thread.run_sync(broker.wait_ready)
    while not (await _status(here))[1]:  # noqa: ASYNC110  # nor does this one
        await trio.sleep(0.1)
    return time.perf_counter() - began


async def clients(directory: Path) -> list[Figure]:
    """Clients that take all places: an operator is answered, and others when they have left."""
    with node_processes(directory) as nodes:
        here = start_cluster(nodes, files_max=FILES_MAX)
        async with producing(here) as observed:
            before = [one.socket_count() for one in here.nodes]
            hello = frame(encode(m.Hello(1, "idle")), opcode=BINARY)
            crowd = [
                _stays(node, upgrade(CLIENT.path, node.url.partition("://")[2]) + hello, FILES_MAX)
                for node in here.nodes
            ]
            async with flooding(crowd) as outcome:
                observed.latencies_s.clear()
                await trio.sleep(SECONDS)
                secret = ("--join-secret", str(join_secret(directory)))
                answer_s, is_healthy, _ = await _status(here, *secret)
                figures = observed.figures(P99_MS)
            healed_ms = await _healed_ms(here, before, directory)
    return [
        Figure("answer of status to an operator", answer_s, "s", ANSWER_S),
        Figure("brokers or logs that are not well", int(not is_healthy), "", 0),
        *figures,
        Figure(
            "healed after they left", healed_ms, "ms", HEALED_MS, f"{outcome['closed']:,} closed"
        ),
    ]


ATTACKS: Final = [
    Attack(
        "descriptors, strangers",
        "2,000 idle strangers at the register and 2,000 at a broker, which may open 512 files each",
        partial(strangers),
        timeout_s=120,
        planned_s=20,
    ),
    Attack(
        "descriptors, clients",
        "512 idle clients at each node, which may open 512 files",
        partial(clients),
        timeout_s=90,
        planned_s=15,
    ),
]
