"""What members of a durable subscription said, and whether it keeps what docs/subscriptions.md
promises.  It shares no code with the checker of the simulator.

- Every acknowledged message was processed by some member.
- No message below an offset that a member saw confirmed is handed out after that; of a queue, none
  that a member had acknowledged when it saw its acknowledgements confirmed.
- But in the mode ``shared``, a message is handed out only when all earlier ones of its key were
  processed.
- A message is handed out again only where a failure explains it: the member that had it was killed,
  paused or fenced, or a broker failed, at most `UNSTORED_S` after the member had done with it.
- A member is fenced only where a failure explains that, at most `FENCED_S` before.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import accumulate
from pathlib import Path
from typing import Any, Final, TypeAlias

import attrs

UNSTORED_S: Final = 2.0
"""A mark of a living member at a living leader is committed within this time.  It takes 100 ms and
250 ms on a quiet machine."""

FENCED_S: Final = 60.0
"""Between a failure and the next commit of a member that lost a log by it."""

Log: TypeAlias = int
"""A partition of the one topic."""


@attrs.frozen
class Failure:
    """Something was done to a process, and was over at `end`."""

    what: str
    begin: float
    end: float
    pid: int | None = None
    """The member's; None: it was a broker, which concerns all of them."""


@attrs.frozen
class Delivery:
    """A member was handed a message."""

    log: Log
    offset: int
    value: str
    key: str
    pid: int
    handed_at: float
    done_at: float | None
    """None: the member did not say that it had processed it."""


@attrs.frozen
class Confirmation:
    """A member knows that all below `offset` is committed."""

    log: Log
    offset: int
    at: float


@attrs.frozen
class Settlement:
    """A member of a queue asked whether all is committed that it acknowledged since it asked
    before."""

    pid: int
    at: float
    is_certain: bool = True
    """False: for some of it that is unknown, or did not count."""


@attrs.define
class History:
    """One subscription, over a whole run."""

    mode: str
    deliveries: list[Delivery]
    confirmations: list[Confirmation]
    fences: list[Failure] = attrs.field(factory=list)
    """When members were told that another one has a log; their messages in hand come again."""
    settlements: list[Settlement] = attrs.field(factory=list)

    @classmethod
    def read(cls, mode: str, files: Iterable[Path]) -> History:
        """What the members of *mode* wrote; a last line that was cut off is left out."""
        found = cls(mode, [], [])
        for file in files:
            lines = file.read_bytes().split(b"\n")
            assert not lines[-1], f"{file} ends in the middle of a line"
            found._add([json.loads(line) for line in lines[:-1]])
        found.deliveries.sort(key=lambda one: one.handed_at)
        return found

    def _add(self, lines: list[dict[str, Any]]) -> None:
        handed: dict[int, dict[str, Any]] = {}

        def end(one: dict[str, Any], done_at: float | None) -> None:
            where = one["partition"], one["offset"], one["value"], one["key"]
            self.deliveries.append(Delivery(*where, one["pid"], one["at"], done_at))

        for line in lines:
            pid = line["pid"]
            if line["do"] == "handed":
                if (before := handed.pop(pid, None)) is not None:
                    end(before, None)
                handed[pid] = line
            elif line["do"] == "done":
                end(handed.pop(pid), line["at"])
            elif line["do"] == "confirmed":
                self.confirmations.append(
                    Confirmation(line["partition"], line["offset"], line["at"])
                )
            elif line["do"] in {"settled", "unsettled", "error"}:
                self.settlements.append(Settlement(pid, line["at"], line["do"] == "settled"))
            elif line["do"] == "fenced":
                self.fences.append(Failure("member fenced", line["at"], line["at"], pid))
        for one in handed.values():
            end(one, None)

    # --- judging -----------------------------------------------------------------------

    def judge(self, acknowledged: Iterable[str], failures: list[Failure]) -> list[str]:
        """The faults, each a sentence."""
        return [
            *self._passed_over(acknowledged),
            *self._confirmed_and_again(),
            *self._settled_and_again(),
            *self._out_of_order(),
            *self._unexplained(failures),
            *self._fenced_for_nothing(failures),
        ]

    def _fenced_for_nothing(self, failures: list[Failure]) -> list[str]:
        return [
            f"{self.mode}: the member {fence.pid} was fenced, and no failure explains it"
            for fence in self.fences
            if not any(
                one.pid in {None, fence.pid} and one.begin <= fence.begin <= one.end + FENCED_S
                for one in failures
            )
        ]

    def _passed_over(self, acknowledged: Iterable[str]) -> list[str]:
        done = {one.value for one in self.deliveries if one.done_at is not None}
        missing = [value for value in acknowledged if value not in done]
        if not missing:
            return []
        return [f"{self.mode}: {len(missing)} messages passed over: {', '.join(missing[:5])}"]

    def _confirmed_and_again(self) -> list[str]:
        faults = []
        for log, all_of_log in _by_log(self.confirmations).items():
            all_of_log.sort(key=lambda one: one.at)
            times = [one.at for one in all_of_log]
            highest = list(accumulate((one.offset for one in all_of_log), max))
            for handed in self.deliveries:
                known = bisect_right(times, handed.handed_at)
                if handed.log == log and known and handed.offset < highest[known - 1]:
                    faults.append(
                        f"{self.mode}: {handed.value} at {log}/{handed.offset} was handed out "
                        f"although all below {highest[known - 1]} was confirmed"
                    )
        return faults

    def _settled_and_again(self) -> list[str]:
        by_member: dict[int, list[Settlement]] = defaultdict(list)
        for settlement in sorted(self.settlements, key=lambda settlement: settlement.at):
            by_member[settlement.pid].append(settlement)
        settled: dict[tuple[Log, int], float] = {}
        for one in self.deliveries:
            if one.done_at is None:
                continue
            asked = by_member[one.pid]
            next_asked = bisect_right(asked, one.done_at, key=lambda settlement: settlement.at)
            if next_asked < len(asked) and asked[next_asked].is_certain:
                place, at = (one.log, one.offset), asked[next_asked].at
                settled[place] = min(settled.get(place, at), at)
        return [
            f"{self.mode}: {one.value} at {one.log}/{one.offset} was handed out although its "
            "acknowledgement was confirmed"
            for one in self.deliveries
            if one.handed_at > settled.get((one.log, one.offset), one.handed_at)
        ]

    def _out_of_order(self) -> list[str]:
        if self.mode == "shared":
            return []
        of_key: dict[tuple[Log, str], list[Delivery]] = defaultdict(list)
        for one in self.deliveries:
            of_key[one.log, one.key].append(one)
        return [fault for some in of_key.values() for fault in self._out_of_order_in(some)]

    def _out_of_order_in(self, deliveries: list[Delivery]) -> list[str]:
        """Of one key, in the order in which they were handed out."""
        offsets = sorted({one.offset for one in deliveries})
        dones = sorted((one.done_at, one.offset) for one in deliveries if one.done_at is not None)
        done: set[int] = set()
        first_undone = seen = 0
        faults = []
        for one in deliveries:
            while seen < len(dones) and dones[seen][0] < one.handed_at:
                done.add(dones[seen][1])
                seen += 1
            while first_undone < len(offsets) and offsets[first_undone] in done:
                first_undone += 1
            if first_undone < len(offsets) and offsets[first_undone] < one.offset:
                faults.append(
                    f"{self.mode}: {one.value} at {one.log}/{one.offset} was handed out before "
                    f"the one at {offsets[first_undone]} of its key was processed"
                )
        return faults

    def again(self) -> list[tuple[Delivery, Delivery]]:
        """Each delivery of a message that was handed out before, with the one before."""
        last: dict[tuple[Log, int], Delivery] = {}
        pairs = []
        for one in self.deliveries:
            if (before := last.get((one.log, one.offset))) is not None:
                pairs.append((before, one))
            last[one.log, one.offset] = one
        return pairs

    def _unexplained(self, failures: list[Failure]) -> list[str]:
        return [
            f"{self.mode}: {second.value} at {second.log}/{second.offset} was handed out again "
            f"{second.handed_at - first.handed_at:.3f} s later, and no failure explains it"
            for first, second in self.again()
            if explanation(first, second, [*failures, *self.fences]) is None
        ]

    def causes(self, failures: list[Failure]) -> Counter[str]:
        """How many messages came again, by what explains it."""
        known = [*failures, *self.fences]
        pairs = self.again()
        return Counter(explanation(*pair, known) or "nothing" for pair in pairs)


def explanation(first: Delivery, second: Delivery, failures: list[Failure]) -> str | None:
    """The failure because of which a message came again; None: there is none."""
    begin = first.handed_at
    end = second.handed_at
    if first.done_at is not None:
        end = min(end, first.done_at + UNSTORED_S)
    for one in failures:
        concerns = one.pid is None or one.pid == first.pid
        if concerns and one.begin <= end and one.end >= begin:
            return one.what
    return None


def _by_log(confirmations: Iterable[Confirmation]) -> dict[Log, list[Confirmation]]:
    found: dict[Log, list[Confirmation]] = defaultdict(list)
    for one in confirmations:
        found[one.log].append(one)
    return found
