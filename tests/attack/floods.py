"""Floods of legal messages that ask for nothing, or for what is refused: the cluster stays whole,
and producers hardly notice."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Final

import trio

from harness.processes import node_processes
from octopi.security.grants import Verb
from octopi.security.tokens import secret_key
from octopi.transport.frame_reader import CONTINUATION, PING
from octopi.wire import messages as m
from octopi.wire.codec import encode
from octopi.wire.endpoints import CLIENT
from tests.attack.bystanders import brokers_left, producing, start_cluster
from tests.attack.flooder import Target, flooding, frame, upgrade
from tests.attack.frame import Attack, Figure
from tests.security.tokens import SECRET, key_ring, token

P99_MS: Final = 200.0
SECONDS: Final = 4.0
_PIECE_BYTES: Final = 1 << 18

_EMPTY_FRAME: Final = frame(b"", opcode=CONTINUATION, final=False)

_BAD_TOKEN: Final = token(ring=key_ring(secret_key("test", bytes(32))), subscribe="*")
"""By a key of another cluster, so its signature has to be looked at."""

FLOODS: Final = {
    "heartbeats": frame(encode(m.Heartbeat())),
    "pings": frame(b"", opcode=PING),
    "credits": frame(encode(m.Credit(1, 1 << 60))),
    "empty continuations": _EMPTY_FRAME,
    "bad tokens": frame(encode(m.Authenticate(1, _BAD_TOKEN))),
}
"""What is sent without pause."""

_WITH_TOKENS: Final = {"bad tokens"}
"""Nodes ask for tokens; the flooders have one that grants nothing."""

_FIRST: Final = {"empty continuations": frame(b"", final=False)}


async def flood(kind: str, connections: int, directory: Path) -> list[Figure]:
    """Flood each broker over so many connections."""
    one = FLOODS[kind]
    payload = one * (_PIECE_BYTES // len(one) + 1)
    options, all_of_it, nothing = (
        _with_tokens(directory) if kind in _WITH_TOKENS else ([], None, None)
    )
    with node_processes(directory) as nodes:
        here = start_cluster(nodes, *options)
        targets = [
            Target(node.url, connections, payload, first=_FIRST.get(kind, b""), token=nothing)
            for node in here.brokers
        ]
        async with producing(here, all_of_it) as observed, flooding(targets) as outcome:
            await trio.sleep(SECONDS)
        left = await brokers_left(here, directory, all_of_it)
    sent_rate = outcome["sent_bytes"] / SECONDS / (1 << 20)
    note = f"{sent_rate:.1f} MiB/s sent, {outcome['closed']} connections closed"
    return [Figure("brokers that left", left, "", 0, note), *observed.figures(P99_MS)]


def _with_tokens(directory: Path) -> tuple[list[str], str, str]:
    """Options of nodes that ask for tokens; one that grants all, and one that grants nothing."""
    keys, file = directory / "keys.json", directory / "node.token"
    keys.write_text(json.dumps({"keys": [secret_key("test", SECRET)]}))
    all_of_it = key_ring().sign("operator", {verb: ["*"] for verb in Verb}, 0, None)
    file.write_text(all_of_it)
    return ["--auth-keys", str(keys), "--token-file", str(file)], all_of_it, token()


async def crowd(what: str, directory: Path) -> list[Figure]:
    """A crowd of strangers that connect and leave without pause (``storm``), or ask over HTTP."""
    with node_processes(directory) as nodes:
        here = start_cluster(nodes)
        storm = what == "storm"
        targets = []
        for node in here.nodes:
            head = upgrade(CLIENT.path, node.url.partition("://")[2])
            hello = frame(encode(m.Hello(1, "flooder")))
            asked = b"GET /api/v1/status HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 1000
            payload = head + hello if storm else asked
            targets.append(
                Target(node.url, 25, payload, once=storm, is_bare=True, comes_again=storm)
            )
        async with producing(here) as observed, flooding(targets) as outcome:
            observed.latencies_s.clear()
            await trio.sleep(SECONDS)
        left = await brokers_left(here, directory)
    note = f"{outcome['sent_bytes'] >> 20} MiB sent, {outcome['closed']} connections closed"
    return [Figure("brokers that left", left, "", 0, note), *observed.figures(P99_MS)]


def _attack(kind: str, connections: int) -> Attack:
    run: Callable[[Path], Awaitable[list[Figure]]] = partial(flood, kind, connections)
    each = "one connection" if connections == 1 else f"{connections} connections"
    return Attack(
        f"{kind}, {connections}", f"{each} to each of three brokers: {kind} without pause", run
    )


ATTACKS: Final = [
    *(_attack(kind, count) for kind in FLOODS for count in (1, 100)),
    Attack(
        "storm of connections",
        "25 strangers for each node connect, say hello and leave, without pause",
        partial(crowd, "storm"),
    ),
    Attack(
        "HTTP without pause",
        "25 strangers for each node ask over HTTP without waiting for answers",
        partial(crowd, "http"),
    ),
]
