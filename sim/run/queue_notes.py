"""What the members of a run's queue got, acknowledged and were told.

It goes to the oracle (`octopi.simulation.invariants.queues`), and is judged here by what clients
alone can know: a message whose acknowledgement was confirmed doesn't come again, none is passed
over, and a dead letter is there once, as its message was.  What an operator resets, retention
removes and failures lose is left out of account.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

import attrs

from octopi.errors import HistoryForkedError, OctopiError
from octopi.identifiers import PartitionId
from octopi.position import Position
from octopi.record import Message
from octopi.simulation.history.events import FinalLog, LogName, StoredMessage, show
from octopi.simulation.invariants.queues import ACKNOWLEDGED, CONFIRMED, HANDED
from sim.run.client_log import ClientLog

_ORIGIN: Final = "octopi-origin"
_ATTEMPTS: Final = "octopi-attempts"
_REASON: Final = "octopi-reason"
_TOO_OFTEN: Final = b"it was dealt "
"""The reason of dead letters that no member rejected begins so."""
_SID_BYTES: Final = 8
"""The producer id of a dead letter begins with the id of its subscription."""

_Place: TypeAlias = tuple[str, PartitionId]
"""The id of a subscription, and the partition of one of its logs."""


@attrs.frozen
class TakenMessage:
    """A message that a member was handed."""

    sid: str
    host: str
    life: int
    """Of the member's program."""
    began_at: float
    """When that life began."""
    log: LogName
    offset: int
    attempt: int
    key: bytes | None
    at: float
    """When."""

    @property
    def place(self) -> _Place:
        """Where it is."""
        return self.sid, self.log.partition


@attrs.frozen
class _Confirmed:
    """A message whose acknowledgement was confirmed."""

    at: float
    by: TakenMessage


class QueueNotes:
    """Of all members in one run."""

    def __init__(self, client_log: ClientLog) -> None:
        self.topic = client_log.topics[0]
        self._client_log = client_log
        self._newest_sid = ""
        """The creation of the subscription that members heard of last."""
        self._acknowledged: dict[_Place, set[int]] = defaultdict(set)
        self._confirmed: dict[_Place, dict[int, _Confirmed]] = defaultdict(dict)
        self._letters: dict[_Place, Counter[int]] = defaultdict(Counter)
        self._resetting: set[PartitionId] = set()
        """Partitions in which a reset has begun, and is not known to be over."""
        self._restarts: Counter[PartitionId] = Counter()
        """How often messages that were settled may have come again: resets that began, and losses
        that members were told of."""
        self._restarted_at: dict[PartitionId, float] = {}
        """When one of these was over, or told, last: what members were handed before doesn't count
        as settled, also if its confirmation comes later."""
        self._skipped: dict[PartitionId, int] = {}
        """What lies before was left out by a reset."""
        plan = client_log.plan
        self._is_ordered = plan.workload.member_mode == "key_shared"
        self._attempts = plan.workload.queue_attempts
        self._keeps_all = plan.retention_bytes is None and plan.retention_ms is None
        self._loses = plan.may_lose

    # --- members -----------------------------------------------------------------------

    def handed(self, one: TakenMessage) -> None:
        """A member is handed a message."""
        self._note(HANDED, one)
        self._newest_sid = one.sid
        before = self._confirmed[one.place].get(one.offset)
        if before is None or self._client_log.may_repeat or one.log.partition in self._resetting:
            return
        # It may have waited at the member since before another one had it, and confirmed it.
        is_new = before.at < one.began_at or (before.by.host, before.by.life) == (
            one.host,
            one.life,
        )
        is_dealt_later = not self._is_ordered and one.attempt > before.by.attempt
        if is_new or is_dealt_later:
            what = f"{one.log}: it is handed the message at {one.offset}, attempt {one.attempt}, "
            what += f"and {before.by.host} was told at {before.at:.6f} s that it is settled"
            self._complain(one.host, what)

    def acknowledged(self, one: TakenMessage) -> None:
        """A member acknowledges a message."""
        self._note(ACKNOWLEDGED, one)
        self._acknowledged[one.place].add(one.offset)

    def confirmed(self, some: Iterable[TakenMessage]) -> None:
        """A member knows that its acknowledgements of these are committed."""
        for one in some:
            self._note(CONFIRMED, one)
            partition = one.log.partition
            is_newer = one.at > self._restarted_at.get(partition, -1.0)
            if partition not in self._resetting and is_newer:
                now = self._client_log.now
                self._confirmed[one.place].setdefault(one.offset, _Confirmed(now, one))

    def told_of_loss(self, fork: HistoryForkedError) -> None:
        """A member is told that messages were lost that had been settled: the queue goes on before
        them.  Whether that is so is judged by the oracle."""
        assert fork.partition is not None
        self._restarts[PartitionId(fork.partition)] += 1
        self._forget_confirmed(PartitionId(fork.partition))

    def _note(self, what: str, one: TakenMessage) -> None:
        self._client_log.cluster.world.note(
            what,
            one.host,
            sid=one.sid,
            topic=one.log.topic,
            partition=one.log.partition,
            offset=one.offset,
            attempt=one.attempt,
        )

    def _complain(self, host: str, text: str) -> None:
        now = self._client_log.now
        self._client_log.complaints.append(f"{host}, at {now:.6f} s, has {text}")

    # --- operators -----------------------------------------------------------------------

    def resetting(self, partition: PartitionId) -> None:
        """An operator begins to set the mark of a log."""
        self._resetting.add(partition)
        self._restarts[partition] += 1
        self._forget_confirmed(partition)

    def was_reset(self, partition: PartitionId, offset: int) -> None:
        """The mark was set to *offset*.  A reset that fails may take effect later, so nothing is
        judged behind one."""
        self._resetting.discard(partition)
        self._forget_confirmed(partition)
        self._skipped[partition] = max(offset, self._skipped.get(partition, 0))

    def _forget_confirmed(self, partition: PartitionId) -> None:
        self._restarted_at[partition] = self._client_log.now
        for place in self._confirmed:
            if place[1] == partition:
                self._confirmed[place].clear()

    # --- the end -------------------------------------------------------------------------

    def behind(self, marks: Mapping[PartitionId, int], ends: Mapping[LogName, int]) -> str:
        """Of which logs the members have yet to work off what lies before *ends*, by the *marks*
        that their leaders tell; empty: none."""
        return ", ".join(
            f"the queue is at {marks.get(log.partition, 0)} of {end} in {log}"
            for log, end in ends.items()
            if log.topic == self.topic and marks.get(log.partition, 0) < end
        )

    def judge(self, letters: Iterable[Message]) -> None:
        """Everything is worked off; *letters* are all dead letters."""
        if self._loses:
            return
        finals = [one for one in self._client_log.history.events if isinstance(one, FinalLog)]
        logs = {one.log: {int(each.offset): each for each in one.messages} for one in finals}
        for letter in letters:
            self._judge_letter(letter, logs)
        for log, stored in logs.items():
            if log.topic == self.topic and log.partition not in self._resetting:
                self._judge_end(log, stored)

    def _judge_letter(
        self, letter: Message, logs: Mapping[LogName, Mapping[int, StoredMessage]]
    ) -> None:
        sid = letter.request_id[:_SID_BYTES].hex()
        who = f"the dead letter at {letter.offset} of partition {letter.partition}"
        try:
            origin = Position.parse(letter.headers[_ORIGIN].decode())
        except (KeyError, ValueError, OctopiError) as error:
            self._complain("the reader", f"{who}, which doesn't say where it comes from: {error}")
            return
        offset = origin.offsets.get(letter.partition, -1)
        place = sid, letter.partition
        self._letters[place][offset] += 1
        again_count = self._restarts[letter.partition] + self._client_log.unnoticed_count
        if self._letters[place][offset] > 1 + again_count:
            self._complain("the reader", f"{who}, and another one of the message at {offset}")
        if offset in self._confirmed[place] and not again_count:
            self._complain("the reader", f"{who}, whose message was acknowledged for good")
        original = logs.get(LogName(self.topic, letter.partition), {}).get(offset)
        if original is not None:
            kept = {name: letter.headers.get(name) for name in original.headers}
            same = (letter.value, letter.key) == (original.value, original.key)
            if not same or kept != original.headers:
                text = f"{who}, which is not the message at {offset}, {show(original.value)}"
                self._complain("the reader", text)
        elif self._keeps_all:
            self._complain("the reader", f"{who}, of a message at {offset} that there never was")
        reason = letter.headers.get(_REASON, b"")
        count = int(letter.headers.get(_ATTEMPTS, b"0"))
        if reason.startswith(_TOO_OFTEN) and count < (self._attempts or 0):
            self._complain("the reader", f"{who}, which was given up after {count} deliveries")

    def _judge_end(self, log: LogName, stored: Iterable[int]) -> None:
        """Check that no message of *log* was passed over."""
        place = self._newest_sid, log.partition
        known = self._acknowledged[place] | self._letters[place].keys()
        skipped = self._skipped.get(log.partition, 0)
        passed = [offset for offset in stored if offset >= skipped and offset not in known]
        if passed and self._keeps_all:
            text = f"{log}: no member acknowledged the messages at {passed[:5]}, and none of them "
            self._complain("the reader", f"{text}is a dead letter")
