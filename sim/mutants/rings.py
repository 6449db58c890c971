"""Bugs of brokers that decide together, without a register."""

from __future__ import annotations

from typing import Final

from sim.mutants.mutant import Mutant

_JOURNAL: Final = "octopi.roles.acceptor_journal"
_PROPOSER: Final = "octopi.agreement.proposer"
_PROPOSALS: Final = "octopi.agreement.proposals"
_CHANGES: Final = "octopi.coordination.partition_changes"
_GRANTS: Final = "octopi.ring.lease_grants"
_PARTITION: Final = "octopi.ring.partition"
_PULSES: Final = "octopi.roles.broker.ring.pulses"
_LEASE: Final = "octopi.agreement.lease"
_HEARD: Final = "octopi.agreement.heard"

MUTANTS: Final = (
    Mutant(
        "topics-removed-twice-at-once",
        "octopi.roles.broker.replica_manager",
        """
-        async with self._removal:  # each partition of a topic may order it by itself
-            return await self._remove_topics(topics)
+        return await self._remove_topics(topics)
""",
        "two partitions of a deleted topic remove its logs at the same time, and the broker ends "
        "with a KeyError",
        "exception",
        ("ring_topics_go_while_leaders_change",),
        "a client only notices a broker that is restarted",
    ),
    Mutant(
        "acceptors-flush-nothing",
        _JOURNAL,
        """
-        await self._journal.flush()
""",
        "an acceptor answers before what it promised or accepted is on its device",
        "ballot-unheld",
        ("ring_acceptors_lose_power",),
    ),
    Mutant(
        "acceptors-store-no-promise",
        _JOURNAL,
        """
-        entries = [one.entry for one in effects if isinstance(one, Persist)]
+        kept = [one.entry for one in effects if isinstance(one, Persist)]
+        entries = [one for one in kept if hasattr(one, "value")]
""",
        "an acceptor forgets at its next start what it promised",
        "ballot-unheld",
        ("ring_acceptors_lose_power",),
    ),
    Mutant(
        "told-without-a-quorum",
        _PROPOSER,
        """
-        if not value.is_quorum(attempt.accepted):
+        if len(attempt.accepted) < 1:
             return []
""",
        "a proposer takes a value for chosen when one acceptor has accepted it",
        "unchosen-told",
        ("ring_leader_dies", "ring_leader_is_cut_off"),
    ),
    Mutant(
        "read-without-a-quorum",
        _PROPOSALS,
        """
-    return value.is_quorum(promised)
+    return len(promised) > 0
""",
        "a proposer goes by what one acceptor promised, which may be behind",
        "record-forked",
        ("ring_leader_dies", "ring_leader_is_cut_off", "ring_splits"),
    ),
    Mutant(
        "next-ballots-unpromised",
        _PROPOSER,
        """
-        if ballot is not None:
-            return self._propose(ballot, self.known, now)
+        if True:
+            return self._propose(ballot or self._next_ballot(), self.known, now)
""",
        "a proposer uses a ballot that no quorum has promised, and builds on what it knows",
        "record-forked",
        ("ring_splits", "ring_sets_shrink"),
    ),
    Mutant(
        "oldest-value-read",
        _PROPOSALS,
        """
-    return max(known, key=lambda one: one[0])[1] if known else None
+    return min(known, key=lambda one: one[0])[1] if known else None
""",
        "a proposer builds on the oldest value that it reads, not on the newest",
        "record-forked",
        ("ring_leader_dies", "ring_splits"),
    ),
    Mutant(
        "refusals-unconfirmed",
        _PROPOSER,
        """
         what = proposal(read, self.known, asked.change if asked else confirm)
+        if what.asked and what.no_change is not None and asked is not None:
+            self._line.popleft()
+            outcome = ChangeNotMade(what.no_change.why, read)
+            return [ConcludeChange(asked.number, outcome), *self._go_on(now)]
         successor = self._next_ballot()
""",
        "a leader believes that its in-sync set was refused before a later value is chosen, so the "
        "set may be in force after all",
        "incomplete-leader",
        ("ring_sets_shrink", "ring_leader_is_cut_off"),
    ),
    Mutant(
        "refused-by-a-newer-epoch",
        _CHANGES,
        """
     if record.epoch != request.epoch:
-        return InSyncVerdict.UNKNOWN
+        return InSyncVerdict.REFUSED
""",
        "a leader believes that its in-sync set was refused because another epoch was decided",
        "incomplete-leader",
        ("ring_sets_shrink", "ring_leader_is_cut_off"),
    ),
    Mutant(
        "replicas-with-less-stay-in-sync",
        _CHANGES,
        """
-        if not intact and incarnation.broker in record.in_sync:
+        if False:
             record = without(record, incarnation.broker)
""",
        "a broker that lost records stays in sync when it is registered again",
        "incomplete-leader",
        ("ring_loses_records_while_the_leader_sleeps", "ring_comes_back_with_less"),
    ),
    Mutant(
        "elections-count-former-processes",
        _CHANGES,
        """
-        if known is not None and known.incarnation == accepted.incarnation:
+        if known is not None:
             election.accepts[broker] = accepted
""",
        "an election counts what a process accepted that has ended since",
        "in-sync-unasked",
        ("ring_comes_back_with_less", "ring_leader_dies"),
    ),
    Mutant(
        "any-epoch-accepted",
        _GRANTS,
        """
-    if holder is None or is_suspected(holder.broker, holder.incarnation):
+    if True:
         return True
""",
        "an acceptor accepts another epoch while the leader has the right to lead from it",
        "right-overlaps",
        ("ring_leader_is_cut_off", "ring_leader_sleeps"),
    ),
    Mutant(
        "rights-granted-after-another-epoch",
        _GRANTS,
        """
-    counted = _newest(accepted, chosen)
+    counted = [one for one in (chosen,) if one is not None]
""",
        "an acceptor that has accepted another epoch goes on granting the former leader its right",
        "right-overlaps",
        ("ring_leader_is_cut_off", "ring_leader_sleeps", "ring_splits"),
    ),
    Mutant(
        "rights-count-from-the-answer",
        _PULSES,
        """
                 self._heard.hear(answer.acceptor.broker, answer.incarnation, now)
-                self._leases.granted(pulse, answer, sent_at)
+                self._leases.granted(pulse, answer, now)
""",
        "a leader counts its right from when the answer came, not from when it asked",
        "right-overlaps",
        ("ring_answers_come_late",),
    ),
    Mutant(
        "rights-for-too-long",
        _LEASE,
        """
-                return self._sent_at[newest_first[count - 1]] + FENCE_S
+                return self._sent_at[newest_first[count - 1]] + 3 * FENCE_S
""",
        "a leader takes its right to last longer than others wait before they replace it",
        "right-overlaps",
        ("ring_leader_is_replaced_while_it_is_cut_off",),
    ),
    Mutant(
        "restarted-acceptors-suspect-everybody",
        _HEARD,
        """
         if known is None or known.incarnation < incarnation:
-            return now - self._started_at >= SUSPECT_S
+            return True
""",
        "an acceptor that was restarted takes every leader for dead that it has not heard yet",
        "right-overlaps",
        ("ring_follower_restarts_when_the_leader_is_cut_off",),
    ),
    Mutant(
        "leaders-that-resign-keep-their-right",
        _PARTITION,
        """
-        if self.leads and decode_partition(value.content).announced > record.epoch:
+        if False:
             self.given_up = record.epoch
""",
        "a leader that has asked for another one serves clients on",
        "right-overlaps",
        ("ring_leader_dies", "ring_all_restart"),
    ),
    Mutant(
        "turns-are-not-taken",
        "octopi.ring.election_turns",
        """
-        members = newest_set(record)
-        if not members & seen.live or (not record.in_sync and not members <= seen.live):
+        members = newest_set(record)
+        if True:
             return False
""",
        "nobody replaces a leader that is dead",
        "liveness",
        ("ring_leader_dies", "ring_all_restart"),
    ),
)
