"""Notes what the members of a run's durable subscription are handed, process and confirm.

The notes go to the oracle (`octopi.simulation.invariants.subscriptions`).  This module checks what
clients alone can know: a message that a member confirmed doesn't come again, no message is left
out, and a claim has one member.  It leaves out of account what an operator resets, what retention
removes, and what failures lose.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import attrs

from octopi.errors import HistoryForkedError
from octopi.identifiers import PartitionId
from octopi.record import Message
from octopi.simulation.history.events import LogName
from octopi.simulation.invariants.subscriptions import CONFIRMED, HANDED, PROCESSED
from sim.run.client_log import ClientLog

NAME: Final = "billing"
"""The name of the subscription."""

Place: TypeAlias = tuple[str, PartitionId]
"""The id of a subscription, and the partition of one of its logs."""


@attrs.define
class HeldLog:
    """A log that a member has."""

    sid: str
    member: str
    log: LogName
    claim: int
    handed_end: int = -1
    """The end of the last message that the member was handed."""
    processed_end: int = -1
    """The end of the last message that the member processed."""

    @property
    def place(self) -> Place:
        """The subscription and the log."""
        return self.sid, self.log.partition


@attrs.define
class _Progress:
    """How far the members of a subscription are in one log."""

    front: int = 0
    """All messages before this offset were processed, or may be left out."""
    confirmed: int = 0
    confirmed_claim: int = 0
    newest_claim: int = 0
    """The greatest claim with which a member was handed a message.  Where claims can be lost and
    given again, it is the claim of the last message."""
    reached: int = 0
    """The end of the last message that was processed with `newest_claim`."""
    owners: dict[int, str] = attrs.field(factory=dict)
    """The names of members, by claim."""
    reset_claim: int = 0
    """What was confirmed with this claim or an older one doesn't count any more."""


class GroupNotes:
    """The notes about all members in one run."""

    def __init__(self, client_log: ClientLog) -> None:
        self.topic = client_log.topics[0]
        self.newest_sid = ""
        """The id of the subscription of which a member was handed a message last."""
        self._client_log = client_log
        self._progress: dict[Place, _Progress] = {}
        self._resetting: set[PartitionId] = set()
        """Partitions in which a reset has begun, and isn't known to have ended."""
        self._skipped: dict[PartitionId, int] = {}
        """The offset before which a reset may have left messages out, by partition."""
        plan = client_log.plan
        self._keeps_all = plan.retention_bytes is None and plan.retention_ms is None

    # --- members -----------------------------------------------------------------------

    def handed(self, host: str, held: HeldLog, message: Message) -> None:
        """Note that the member on *host* is handed *message*, and check it."""
        self._note(HANDED, host, held, message)
        self.newest_sid = held.sid
        progress = self._of(held.place)
        if held.claim > progress.newest_claim or self._client_log.may_repeat:
            progress.newest_claim = held.claim
        name = f"{held.log} with claim {held.claim}"
        owner = progress.owners.setdefault(held.claim, held.member)
        if owner != held.member and not self._client_log.may_repeat:
            self._complain(host, f"{name}, which {owner} has, too")
        partition = held.log.partition
        known_end = max(progress.front, held.handed_end, self._skipped.get(partition, 0))
        is_judged = partition not in self._resetting and not self._client_log.may_repeat
        if is_judged and self._keeps_all and message.offset > known_end:
            what = f"{name}: it is handed the message at {message.offset}, and the messages from "
            self._complain(host, f"{what}{known_end} on were never processed")
        is_newer = held.claim >= progress.confirmed_claim
        if is_judged and is_newer and message.offset < progress.confirmed:
            what = f"{name}: it is handed the message at {message.offset} again, and the messages "
            self._complain(host, f"{what}before {progress.confirmed} were confirmed")
        held.handed_end = message.next_offset

    def processed(self, host: str, held: HeldLog, message: Message) -> None:
        """Note that the member on *host* has processed *message*."""
        self._note(PROCESSED, host, held, message)
        held.processed_end = message.next_offset
        progress = self._of(held.place)
        known_end = max(progress.front, self._skipped.get(held.log.partition, 0))
        if message.offset <= known_end or not self._keeps_all:
            progress.front = max(progress.front, message.next_offset)
        if held.claim >= progress.newest_claim:
            progress.reached = message.next_offset

    def confirmed(self, host: str, held: HeldLog) -> None:
        """Note that the member on *host* has confirmed what it has processed of a log."""
        if held.processed_end < 0:
            return
        self._client_log.cluster.world.note(
            CONFIRMED,
            host,
            sid=held.sid,
            partition=held.log.partition,
            claim=held.claim,
            offset=held.processed_end,
        )
        progress = self._of(held.place)
        is_old = held.claim <= progress.reset_claim or held.log.partition in self._resetting
        if not is_old and held.claim >= progress.confirmed_claim:
            progress.confirmed = max(progress.confirmed, held.processed_end)
            progress.confirmed_claim = held.claim

    def told_of_loss(self, fork: HistoryForkedError) -> None:
        """Note that a member was told that messages were lost that had been processed: it goes on
        before them.  Whether that is so is judged by the oracle."""
        assert fork.partition is not None
        self._forget_confirmed(PartitionId(fork.partition))

    def _note(self, what: str, host: str, held: HeldLog, message: Message) -> None:
        self._client_log.cluster.world.note(
            what,
            host,
            sid=held.sid,
            topic=held.log.topic,
            partition=held.log.partition,
            claim=held.claim,
            member=held.member,
            offset=message.offset,
            next_offset=message.next_offset,
        )

    def _complain(self, host: str, text: str) -> None:
        now = self._client_log.now
        self._client_log.complaints.append(f"{host}, at {now:.6f} s, has {text}")

    def _of(self, place: Place) -> _Progress:
        return self._progress.setdefault(place, _Progress())

    # --- operators -----------------------------------------------------------------------

    def resetting(self, partition: PartitionId) -> None:
        """Note that an operator begins to set the mark of a log.  Until `was_reset` nothing is
        judged, because a reset that fails may take effect later."""
        self._resetting.add(partition)
        self._forget_confirmed(partition)

    def was_reset(self, partition: PartitionId, offset: int) -> None:
        """Note that the mark was set to *offset*."""
        self._resetting.discard(partition)
        self._forget_confirmed(partition)
        self._skipped[partition] = max(offset, self._skipped.get(partition, 0))

    def _forget_confirmed(self, partition: PartitionId) -> None:
        for place, progress in self._progress.items():
            if place[1] == partition:
                progress.confirmed = 0
                progress.reset_claim = progress.newest_claim

    # --- the end -------------------------------------------------------------------------

    def behind(self, ends: dict[LogName, int]) -> str:
        """The logs in which the members have yet to process messages before *ends*, as text; empty:
        none."""
        found = []
        for log, end in ends.items():
            progress = self._progress.get((self.newest_sid, log.partition), _Progress())
            if log.topic == self.topic and progress.reached < end:
                found.append(f"members are at {progress.reached} of {end} in {log}")
        return ", ".join(found)
