"""Work that goes on although whoever asked for it has gone, and entries that are waited for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

from octopi.errors import NotReadyError, OctopiError, StorageError
from octopi.identifiers import PartitionId
from octopi.replication.effects import CommitReceipt, Refusal
from octopi.ring.homes import Entry
from octopi.roles.broker.ring.topics.ports import TopicLogs

_T = TypeVar("_T")


async def appended(logs: TopicLogs, partition: PartitionId, entries: list[Entry]) -> Refusal | None:
    """Append *entries* to the log of *partition*, and wait; None: they are committed.  Otherwise
    they may be committed all the same, now or later."""
    answered = trio.Event()
    answers: list[CommitReceipt | Refusal] = []

    def take(answer: CommitReceipt | Refusal) -> None:
        answers.append(answer)
        answered.set()

    logs.append_all(partition, entries, take)
    await answered.wait()
    return answers[0] if isinstance(answers[0], Refusal) else None


async def carried_out(tasks: trio.Nursery, work: Callable[[], Awaitable[_T]]) -> _T:
    """What *work* returns, which is done in *tasks*: it goes on even if this is cancelled.

    Raises:
      OctopiError: that of *work*.
    """
    done = trio.Event()
    outcomes: list[_T | OctopiError] = []

    async def run() -> None:
        try:
            outcomes.append(await work())
        except StorageError as error:
            outcomes.append(NotReadyError(str(error.args[0])))
        except OctopiError as error:
            outcomes.append(error)
        finally:
            done.set()

    tasks.start_soon(run)
    await done.wait()
    if not outcomes:
        raise NotReadyError("this broker ends")
    outcome = outcomes[0]
    if isinstance(outcome, OctopiError):
        raise outcome
    return outcome
