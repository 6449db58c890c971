"""Syncs that are wanted at the same time are made together, and none is told done that wasn't."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from functools import partial

import attrs
import pytest
import trio
import trio.testing
from trio.testing import wait_all_tasks_blocked

from octopi.group_sync import GroupSync


@attrs.define
class Device:
    """Takes a second for each sync, and notes what it was asked to sync."""

    alone: list[str] = attrs.Factory(list)
    together: list[list[str]] = attrs.Factory(list)
    error: OSError | None = None
    """How the next sync of everything fails."""

    async def sync_all(self, files: Sequence[str]) -> None:
        self.together.append(list(files))
        await trio.sleep(1)
        if self.error is not None:
            raise self.error

    async def sync(self, file: str) -> None:
        self.alone.append(file)
        await trio.sleep(1)


@attrs.define
class Bench:
    """A group, and the files that want to be synced."""

    device: Device
    group: GroupSync[str]
    nursery: trio.Nursery
    done: list[str] = attrs.Factory(list)
    failed: list[str] = attrs.Factory(list)
    scopes: dict[str, trio.CancelScope] = attrs.Factory(dict)

    def want(self, names: str) -> None:
        for name in names:
            self.nursery.start_soon(self._sync, name)

    async def _sync(self, name: str) -> None:
        with trio.CancelScope() as self.scopes[name]:
            try:
                await self.group.sync(name, partial(self.device.sync, name))
            except OSError:
                self.failed.append(name)
            else:
                self.done.append(name)


@pytest.fixture
def bench(nursery: trio.Nursery) -> Bench:
    device = Device()
    return Bench(device, GroupSync(device.sync_all, alone_max=2, together_min=3), nursery)


async def test_few_files_are_synced_each_by_itself(
    bench: Bench, autojump_clock: trio.testing.MockClock
) -> None:
    bench.want("ab")
    await trio.sleep(1.5)
    assert sorted(bench.device.alone) == sorted(bench.done) == ["a", "b"]
    assert not bench.device.together


async def test_many_files_are_synced_together(
    bench: Bench, autojump_clock: trio.testing.MockClock
) -> None:
    bench.want("abcdefgh")
    await trio.sleep(1.5)
    assert sorted(bench.done) == list("abcdefgh")
    assert len(bench.device.alone) == 2
    assert [len(one) for one in bench.device.together] == [6]


async def test_too_few_for_a_sync_of_everything_are_synced_by_themselves(
    bench: Bench, autojump_clock: trio.testing.MockClock
) -> None:
    bench.want("abcd")
    await trio.sleep(1.5)
    assert sorted(bench.done) == list("abcd") == sorted(bench.device.alone)
    assert not bench.device.together


async def test_a_sync_that_is_wanted_later_is_not_covered_by_one_that_has_begun(
    bench: Bench, autojump_clock: trio.testing.MockClock
) -> None:
    bench.want("abcde")
    await trio.sleep(0.5)
    bench.want("fgh")
    await trio.sleep(0.6)
    assert sorted(bench.done) == list("abcde")
    await trio.sleep(1)
    assert sorted(bench.done) == list("abcdefgh")
    assert [sorted(one) for one in bench.device.together][1] == list("fgh")


async def test_a_failed_sync_fails_for_all_who_waited_for_it_and_is_the_last_of_its_kind(
    bench: Bench, autojump_clock: trio.testing.MockClock
) -> None:
    bench.device.error = OSError(errno.EIO, "a bad block")
    bench.want("abcdefgh")
    await trio.sleep(0.5)
    bench.want("ijk")  # these wait for their turn
    await trio.sleep(3)
    assert len(bench.failed) == 6
    assert len(bench.done) == 5
    assert {*"ijk"} <= {*bench.done} & {*bench.device.alone}
    bench.want("lmnopq")
    await trio.sleep(3)
    assert {*"lmnopq"} <= {*bench.device.alone}
    assert len(bench.device.together) == 1


async def test_the_end_of_the_one_who_syncs_for_all_leaves_the_others_to_themselves(
    bench: Bench, autojump_clock: trio.testing.MockClock
) -> None:
    bench.want("abcde")
    await trio.sleep(0.1)
    for name in "fgh":  # the first one is to sync for the others, too
        bench.want(name)
        await wait_all_tasks_blocked()
    bench.scopes["f"].cancel()
    await trio.sleep(5)
    assert len(bench.done) == 7
    assert len(bench.device.together) == 1


async def test_where_the_system_can_not_do_it_each_file_is_synced_by_itself(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    device = Device()
    bench = Bench(device, GroupSync(None, alone_max=1, together_min=1), nursery)
    bench.want("abcdef")
    await trio.sleep(1.5)
    assert sorted(bench.done) == sorted(device.alone) == list("abcdef")
