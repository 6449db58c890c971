"""Bugs of what keeps and serves logs."""

from __future__ import annotations

from typing import Final

from sim.mutants.mutant import HISTORY, LIVENESS, Mutant

_LOG: Final = "octopi.storage.segmented_log"
_RECOVERY: Final = "octopi.storage.recovery"
_BROKER_LOG: Final = "octopi.roles.broker.broker_log"
_REPLICA: Final = "octopi.roles.broker.partition_replica"

MUTANTS: Final = (
    Mutant(
        "flush-that-does-not-sync",
        _LOG,
        "                    await segment.sync()\n",
        "                    pass\n",
        "a flush says that records are on the device, and they aren't",
        "acknowledged-unheld",
    ),
    Mutant(
        "names-not-synced",
        _LOG,
        "                    await self._disk.sync_directory(self._directory)\n                    await self._disk.sync_directory(_parent(self._directory))\n",
        "                    pass\n",
        "a flush makes records durable, and not the name of their file",
        "incomplete-leader",
    ),
    Mutant(
        "failed-fsync-tried-again",
        _LOG,
        '            raise self._fail("fsync", error) from error\n        self._flushed_changes = changes\n',
        "            pass\n        self._flushed_changes = changes\n",
        "a failed fsync counts as done (fsyncgate)",
        "promised-unheld",
    ),
    Mutant(
        "flushed-end-read-after-the-sync",
        _LOG,
        "        if truncations == self._truncations:\n            self._flushed_end = max(self._flushed_end, end)\n",
        "        self._flushed_end = self.end\n",
        "what was appended while a flush ran counts as flushed",
        "promised-unheld",
    ),
    Mutant(
        "half-an-append-kept",
        _LOG,
        "                segment.undo()\n",
        "                pass\n",
        "what a full disk took of a batch stays in the log",
        "committed-differs",
    ),
    Mutant(
        "torn-tail-kept",
        _RECOVERY,
        "            if self.why:\n                del segments[number + 1 :]\n                return self._try_cut(segment, file_bytes, following)\n",
        "            if self.why:\n                segment.size_bytes = file_bytes\n                return None\n",
        "what a failure of power left behind the last whole record stays in the log",
        "invalid-committed",
    ),
    Mutant(
        "sequences-forgotten-by-restarts",
        _BROKER_LOG,
        "            for run in scan.runs:\n                sequences.record(run, Offset(base + run.start))\n\n        return SegmentedLog.open(",
        "            pass\n\n        return SegmentedLog.open(",
        "a restarted broker doesn't know what producers sent since its checkpoint",
        "committed-twice",
    ),
    Mutant(
        "sequences-kept-by-truncation",
        _BROKER_LOG,
        "        self.state.sequences = sequences\n        if self._recovery_point > end:",
        "        if self._recovery_point > end:",
        "a log that was cut takes producers' batches for stored that it has no more",
        "committed-twice",
    ),
    Mutant(
        "reads-to-the-end-of-the-log",
        _BROKER_LOG,
        "        return self._files.read(offset, bytes_max, self._published)\n",
        "        return self._files.read(offset, bytes_max, self._files.end)\n",
        "consumers read what isn't committed",
        "uncommitted-seen",
    ),
    Mutant(
        "highwater-told-ahead-of-effects",
        _BROKER_LOG,
        '        """Consumers read below this offset."""\n        return self._published\n',
        '        """Consumers read below this offset."""\n        return self.state.highwater\n',
        "followers hear of commits that wait for something to be stored",
        "uncommitted-seen",
    ),
    Mutant(
        "effects-go-on-behind-a-failure",
        _REPLICA,
        "            self._drop_effects(error)\n",
        "",
        "what stood behind an effect that failed happens all the same",
        "promise-forgotten",
    ),
    Mutant(
        "promises-not-stored",
        _REPLICA,
        "            case StoreState(state):\n                await self._store(state)\n",
        "            case StoreState(state):\n                await trio.lowlevel.checkpoint()\n",
        "what a replica promised and what record it knows is on no disk",
        "promise-forgotten",
    ),
    Mutant(
        "resume-one-record-late",
        "octopi.clients.consumer_session",
        "        self.credit = self._credit_now()\n        return self.wanted\n",
        "        self.credit = self._credit_now()\n        self.wanted = max(self.wanted, min(self.highwater, Offset(self.wanted + 66)))\n        return self.wanted\n",
        "a consumer that goes on elsewhere leaves something out",
        HISTORY,
    ),
    Mutant(
        "resume-from-what-was-taken",
        "octopi.clients.consumer_session",
        "        if end <= self.wanted:\n            return None\n",
        "        if end < self.wanted:\n            return None\n",
        "records that came twice are handed over twice",
        HISTORY,
    ),
    Mutant(
        "unknown-outcomes-called-failures",
        "octopi.clients.producer_session",
        "        unknown = batch.maybe_stored or batch.sent_at is not None\n",
        "        unknown = False\n",
        "a producer says that a message is not stored when it can't know",
        HISTORY,
    ),
    Mutant(
        "retries-get-new-sequences",
        "octopi.clients.producer_session",
        "            if batch.sent_at is not None:\n                batch.sent_at = None\n                batch.maybe_stored = True\n",
        "            if batch.sent_at is not None:\n                batch.sent_at = None\n                batch.first_sequence = Sequence(self._next_sequence)\n                self._next_sequence += len(batch)\n",
        "a batch that is sent again is another batch",
        "committed-twice",
    ),
    Mutant(
        "retries-overtake",
        "octopi.clients.producer_session",
        "        for batch in self._unanswered:\n            if batch.sent_at is None:\n                self._send(batch, now)\n",
        "        for batch in reversed(self._unanswered):\n            if batch.sent_at is None:\n                self._send(batch, now)\n",
        "batches are sent again in the wrong order",
        LIVENESS,
    ),
    Mutant(
        "expired-batches-called-failures",
        "octopi.clients.producer_session",
        "            elif head.maybe_stored or head.sent_at is not None:\n                self._settle(head, OutcomeUnknownError(late))\n",
        "            elif False:\n                self._settle(head, OutcomeUnknownError(late))\n",
        "a message whose time is over counts as not stored though it may be",
        HISTORY,
    ),
)
