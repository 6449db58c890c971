"""Measures what the hooks for observers cost in production, where there is no observer.

A hook is ``if (trace := environment.trace) is not None: ...``.  The number of hooks in a produce is
counted in a real cluster on this machine, with an observer.  The cost of one hook, and that of a
produce without an observer, are measured.  Their quotient is so small that measurements of
throughput with and without hooks would not differ.
"""

from __future__ import annotations

import tempfile
from functools import partial
from statistics import median
from time import process_time
from timeit import repeat
from typing import Final

import attrs
import trio

from octopi.clients.client import connect
from octopi.environment import Environment, Trace, TraceEvent
from octopi.limits import JOIN_SECRET_BYTES
from octopi.operating_system import SystemClock, SystemDisk, SystemRandomness, SystemStreams
from octopi.roles.broker.node import BrokerOptions, run_broker
from octopi.roles.register.options import RegisterOptions
from octopi.roles.register.running import run_register
from octopi.security.join_secret import JoinSecrets
from octopi.transport.websocket import WebSocketNet
from sim.search.bench import FEW, Figure

_BROKERS: Final = 3
_WARM_COUNT: Final = 50
_COUNT: Final = 300
_LOOPS: Final = 1_000_000
_HOOK: Final = "if (trace := environment.trace) is not None: pass"


def figures(runs: int) -> list[Figure]:
    """What the hooks cost, in parts and as a share: medians of *runs*, at most `FEW`."""
    clusters = range(min(runs, FEW))
    hooks = median(_count_hooks() for _ in clusters)
    cpu_s = median(trio.run(_produce, None) for _ in clusters)
    hook_s = _hook_s()
    return [
        Figure("hooks: in a produce of one message", hooks, "hooks"),
        Figure("hooks: one, unobserved", hook_s * 1e9, "ns"),
        Figure("hooks: a produce of one message", cpu_s * 1e6, "CPU us"),
        Figure("hooks: share of the cost of a produce", hooks * hook_s / cpu_s * 100, "%", "<= 1"),
    ]


class _Counter:
    def __init__(self) -> None:
        self.count = 0

    def __call__(self, step: TraceEvent) -> None:
        self.count += 1


def _count_hooks() -> float:
    """The number of hooks for each message, without the first messages, which need more."""
    counter = _Counter()
    trio.run(_produce, counter)
    return counter.count / _COUNT


def _hook_s() -> float:
    """The time of a hook in seconds: the smallest of many measurements, which other processes
    disturbed least."""

    @attrs.frozen
    class Observable:
        trace: Trace | None = None

    names = {"environment": Observable()}
    with_hook = min(repeat(_HOOK, globals=names, number=_LOOPS, repeat=7))
    without = min(repeat("pass", number=_LOOPS, repeat=7))
    return (with_hook - without) / _LOOPS


async def _produce(counter: _Counter | None) -> float:
    """The processor time of a message in seconds, from `send` to its receipt, in all nodes of a
    cluster in this process, with real connections and files."""
    with tempfile.TemporaryDirectory(prefix="octopi-bench-") as directory:
        async with trio.open_nursery() as nursery:
            net = WebSocketNet(SystemStreams(), SystemClock(), nursery)
            here = Environment(SystemClock(), net, SystemDisk(), SystemRandomness(), counter)
            stop = trio.Event()
            secrets = JoinSecrets((here.randomness.token_bytes(JOIN_SECRET_BYTES),))
            register = RegisterOptions(
                "127.0.0.1:0", f"{directory}/register", 1, gather_s=0.0, secrets=lambda: secrets
            )
            url: str = await nursery.start(partial(run_register, here, register, stop=stop))
            for number in range(1, _BROKERS + 1):
                broker = BrokerOptions(
                    "127.0.0.1:0", f"{directory}/broker-{number}", [url], lambda: secrets
                )
                await nursery.start(partial(run_broker, here, broker, stop=stop))
            cpu_s = await _send(url, here, counter)
            stop.set()
    return cpu_s


async def _send(url: str, environment: Environment, counter: _Counter | None) -> float:
    async with connect(url, environment=environment) as client:
        await client.create_topic("bench")
        async with client.producer(linger_s=0.0) as producer:
            for _ in range(_WARM_COUNT):
                await producer.send("bench", b"warm")
            if counter is not None:
                counter.count = 0
            began = process_time()
            for _ in range(_COUNT):
                await producer.send("bench", bytes(100))
            return (process_time() - began) / _COUNT
