"""One member of a durable subscription, a process of its own that is there to be killed.

It writes a line of JSON for all that happens to it before it goes on, so that what it knew when it
was killed can be read afterwards.  Times are those of the machine's monotonic clock, which all
processes share.

====================== ==========================================================
``do``                 what it says
====================== ==========================================================
``handed``             the subscription handed out a message
``done``               the member has processed it; what marks it comes behind this line
``confirmed``          everything of the log below ``offset`` is marked and committed
``settled``            of a queue: all that the member has processed since the ``settled`` or
                       ``unsettled`` before is acknowledged and committed
``unsettled``          of a queue: for some of it that is unknown, or did not count
``error``              the connection or the subscription ended; another one is opened
``fenced``             the member was told that another one has its log
====================== ==========================================================
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias, cast

import trio

import octopi
from octopi.retry import may_pass

_AGAIN_S: Final = 0.2
_WORK_S: Final = 0.002
"""What a message takes, in the mean."""
QUEUE_OPTIONS: Final[Mapping[str, Any]] = {"attempts": None, "ack_timeout_s": 10.0}
"""How queues are made: no message is given up."""
_COMMIT_SHARE: Final = 0.03
"""So many messages are confirmed by themselves."""


class _Diary:
    """The file of lines."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(self, do: str, **facts: object) -> None:
        line = json.dumps({"do": do, "at": time.monotonic(), "pid": os.getpid(), **facts})
        os.write(self._file, line.encode() + b"\n")


GroupMode: TypeAlias = Literal["exclusive", "failover"]
QueueMode: TypeAlias = Literal["shared", "key_shared"]
Mode: TypeAlias = GroupMode | QueueMode


async def _belong(url: str, topic: str, mode: Mode, member: str | None, diary: _Diary) -> None:
    randomness = random.Random(os.getpid())
    while True:
        try:
            async with octopi.connect(url) as client:
                if mode == "shared" or mode == "key_shared":
                    await _work_off(client, topic, mode, member, diary, randomness)
                else:
                    await _read(client, topic, mode, member, diary, randomness)
        except octopi.MemberFencedError as error:
            diary.note("fenced", why=str(error))
        except octopi.OctopiError as error:
            diary.note("error", why=repr(error), passes=may_pass(error))
            if not may_pass(error):
                raise
        await trio.sleep(_AGAIN_S)


async def _read(
    client: octopi.Client,
    topic: str,
    mode: GroupMode,
    member: str | None,
    diary: _Diary,
    randomness: random.Random,
) -> None:
    async with client.subscription(topic, mode, mode=mode, member=member) as messages:
        async for message in messages:
            await _process(message, diary, randomness)
            if randomness.random() < _COMMIT_SHARE:
                await messages.commit()
                diary.note("confirmed", partition=message.partition, offset=message.next_offset)


async def _work_off(
    client: octopi.Client,
    topic: str,
    mode: QueueMode,
    member: str | None,
    diary: _Diary,
    randomness: random.Random,
) -> None:
    async with client.subscription(
        topic, mode, mode=mode, member=member, **QUEUE_OPTIONS
    ) as messages:
        stale_count = 0
        async for message in messages:
            async with message:
                await _process(message, diary, randomness)
            if randomness.random() < _COMMIT_SHARE:
                await messages.commit()
                is_settled = messages.stale_count == stale_count
                diary.note("settled" if is_settled else "unsettled")
                stale_count = messages.stale_count


async def _process(
    message: octopi.Message | octopi.DealtMessage, diary: _Diary, randomness: random.Random
) -> None:
    facts = {
        "partition": message.partition,
        "offset": message.offset,
        "value": message.value.decode(),
        "key": (message.key or b"").decode(),
    }
    diary.note("handed", **facts)
    await trio.sleep(randomness.expovariate(1 / _WORK_S))
    diary.note("done", **facts)


def main() -> None:
    """``python -m tests.chaos.subscriptions.member URL TOPIC MODE NAME FILE``; the subscription
    is named after its mode, and a member without NAME has no name of its own."""
    url, topic, mode, name, path = sys.argv[1:]
    trio.run(_belong, url, topic, cast(Mode, mode), name or None, _Diary(path))


if __name__ == "__main__":
    main()
