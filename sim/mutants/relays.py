"""Bugs of relays, which hold topics in memory."""

from __future__ import annotations

from typing import Final

from sim.mutants.mutant import Mutant

_EPOCH: Final = "octopi.relay.epoch"
_MEMBER: Final = "octopi.relay.member"
_PARTICIPATION: Final = "octopi.relay.participation"
_PARTITION: Final = "octopi.roles.broker.relay.partition"
_STREAMS: Final = "octopi.relay.streams"
_WRITTEN: Final = "octopi.relay.written"

_CHANGES: Final = ("relay_sequencer_dies", "relay_sequencer_is_isolated")
_FOUNDINGS: Final = ("relay_two_restart", "relay_is_away_while_two_restart")
_LOSSES: Final = ("relay_messages_get_lost", "relay_link_is_cut", "relay_beats_are_late")
_SETS: Final = ("relay_set_changes",)

MUTANTS: Final = (
    # --- order and write -------------------------------------------------------------------
    Mutant(
        "relays-deliver-what-they-have",
        _WRITTEN,
        """
-        if mine is None or len(ends) < self._set.quorum:
+        if mine is None:
             return None
-        return min(mine, ends[self._set.quorum - 1])
+        return mine
""",
        "a relay delivers what no quorum has written",
        "relay-uncommitted",
        _CHANGES,
    ),
    Mutant(
        "relays-acknowledge-what-one-has",
        "octopi.relay.receiver",
        """
-            if 0 < self.quorum <= len(members):
+            if self.quorum and members:
""",
        "a receiver acknowledges what one relay has written",
        "relay-uncommitted",
        _CHANGES,
    ),
    Mutant(
        "relays-write-with-a-hole",
        _STREAMS,
        """
         elif message.offset >= end.end:
+            from octopi.relay.digest import next_digest
+
+            last = StreamPoint(
+                message.offset + len(message.records),
+                next_digest(message.digest_before, message.id, message.records),
+            )
+            for one in (*self._lagging, message.receiver):
+                self._send(one, RelayWritten(self.epoch, message.topic_id, last))
             self.repair(stream, before, sources, now)
""",
        "a relay that misses a transaction tells that it has the next one",
        "relay-written-wrongly",
        _LOSSES,
    ),
    Mutant(
        "relays-write-what-they-repair",
        _STREAMS,
        """
         if (repair := self.repairs.get(message.topic_id)) is not None:
             repair.queue_incoming(message)
+            from octopi.relay.digest import next_digest
+
+            last = StreamPoint(
+                message.offset + len(message.records),
+                next_digest(message.digest_before, message.id, message.records),
+            )
+            for one in (*self._lagging, message.receiver):
+                self._send(one, RelayWritten(self.epoch, message.topic_id, last))
             return
""",
        "a relay that repairs a stream tells that it has what comes meanwhile",
        "relay-written-wrongly",
        _LOSSES,
    ),
    Mutant(
        "relays-write-in-former-epochs",
        _MEMBER,
        """
-                if self.is_normal and message.epoch == self.epoch:
+                is_former = self.status is RelayStatus.CHANGING and message.epoch == self.held
+                if is_former or (self.is_normal and message.epoch == self.epoch):
                     self._of_stream(sender, message, now)
""",
        "a relay that has promised an epoch writes in an earlier one",
        "relay-written-wrongly",
        _CHANGES,
    ),
    Mutant(
        "relays-order-repetitions-again",
        "octopi.relay.sequencer",
        """
         case Duplicate():
-            return _again(stream, epoch, submit, verdict)
+            return _append(stream, epoch, receiver, submit, run, now)
""",
        "the sequencer puts a repetition in order again",
        "relay-doubled",
        _CHANGES,
    ),
    Mutant(
        "relay-digests-without-ids",
        "octopi.relay.digest",
        """
-    chained = sha256(before + message + len(records).to_bytes(8, "big"))
+    chained = sha256(before + len(records).to_bytes(8, "big"))
""",
        "the digest does not cover the ids",
        "relay-digest-wrong",
    ),
    Mutant(
        "relays-repeat-nothing",
        _STREAMS,
        """
-        lagging = self._lagging.get(member, {}) if self._me in self._set else {}
+        lagging: dict[TopicId, None] = {}
""",
        "a relay never repeats what it has told, so what was lost does not come again",
        "liveness",
        _LOSSES,
    ),
    # --- epochs ----------------------------------------------------------------------------
    Mutant(
        "relay-epochs-keep-what-was-delivered",
        _STREAMS,
        """
-        return tuple((one.topic_id, one.buffer.end, one.highwater) for one in self)
+        return tuple(
+            (
+                one.topic_id,
+                StreamPoint(one.highwater, one.buffer.digest_at(one.highwater)),
+                one.highwater,
+            )
+            for one in self
+        )
""",
        "a vote names only what was delivered, so an epoch begins without the rest",
        "relay-forgotten",
        _CHANGES,
    ),
    Mutant(
        "relay-epochs-by-one-vote",
        _EPOCH,
        """
-        if sum(one in relay_set for one in cast) < relay_set.quorum:
+        if not any(one in relay_set for one in cast):
             return None
""",
        "an epoch begins with one vote",
        "relay-forgotten",
        _CHANGES,
    ),
    Mutant(
        "relays-take-the-longest-history",
        _EPOCH,
        """
-        best = {voter: one.vote for voter, one in cast.items() if one.vote.held == held}
+        best = {voter: one.vote for voter, one in cast.items()}
""",
        "the longest history goes on, and not that of the newest epoch",
        "relay-forgotten",
        (*_CHANGES, *_FOUNDINGS),
    ),
    Mutant(
        "relay-votes-of-former-lives-count",
        _EPOCH,
        """
-        return {voter: one for voter, one in cast.items() if voter not in stale}
+        return cast
""",
        "a vote from before a crash counts beside what its relay does since",
        "relay-forgotten",
        ("relay_votes_and_dies", "relay_sequencer_restarts_empty"),
    ),
    Mutant(
        "relays-trust-whom-they-hear",
        "octopi.relay.fence",
        """
-            one for one in self.fresh(now) if one not in beats or beats[one].status in _LEADS
+            one for one in self.fresh(now)
""",
        "a sequencer that came back empty is heard, so nobody takes its place",
        "liveness",
        ("relay_sequencer_restarts_empty",),
    ),
    # --- joining ---------------------------------------------------------------------------
    Mutant(
        "relays-join-by-one-answer",
        _EPOCH,
        """
-        if sum(one in relay_set for one in valid) < relay_set.quorum or stale_in(testimonies):
+        if stale_in(testimonies):
             return None
""",
        "a relay that knows nothing joins by the answer of the sequencer alone",
        "relay-forgotten",
        ("relay_votes_and_dies", "relay_sequencer_restarts_empty", *_FOUNDINGS),
    ),
    Mutant(
        "relays-join-without-the-sequencer",
        _EPOCH,
        """
-        from_it = valid.get(sequencer)
-        if from_it is None or from_it.answer.epoch != latest or from_it.answer.streams is None:
+        from_it = next((one for one in valid.values() if one.answer.streams is not None), None)
+        if from_it is None or from_it.answer.streams is None:
             return None
""",
        "a relay that knows nothing joins by what the sequencer of an earlier epoch holds",
        "relay-forgotten",
        ("relay_votes_and_dies", "relay_sequencer_restarts_empty", *_CHANGES),
    ),
    Mutant(
        "relays-join-by-a-start",
        _MEMBER,
        """
-        if not self._is_of_timeline(start.epoch) or start.epoch <= self.held:
+        if start.epoch <= self.held:
             return
""",
        "a relay that knows nothing takes part when it hears that an epoch has begun",
        "relay-forgotten",
        ("relay_votes_and_dies", "relay_sequencer_restarts_empty"),
    ),
    Mutant(
        "relays-that-empty-themselves-keep-their-life",
        _PARTICIPATION,
        """
-        self.life = RelayLife(self.life.incarnation, self.life.emptied + 1)
+        self.life = RelayLife(self.life.incarnation, self.life.emptied)
""",
        "a relay that gives up what it holds goes on in the same life",
        "relay-forgotten",
        ("relay_is_away_while_two_restart",),
    ),
    # --- fencing and founding --------------------------------------------------------------
    Mutant(
        "fenced-relays-serve",
        _PARTITION,
        """
-        elif status not in _SERVING:
+        elif status is RelayStatus.JOINING:
             self._epoch = NO_EPOCH
""",
        "a relay that hears no quorum serves readers",
        "relay-fenced-serves",
        ("relay_sequencer_is_isolated", "relay_is_away_while_two_restart"),
        "what it serves was committed, and it tells readers when it hears the others again",
    ),
    Mutant(
        "timelines-begin-while-others-may-go-on",
        "octopi.relay.fence",
        """
-        return silence > (2 * RELAY_SILENCE_S if is_empty else RELAY_LOST_S)
+        return silence > 2 * RELAY_SILENCE_S
""",
        "a timeline begins without a relay that was silent for a second",
        "relay-lost",
        _FOUNDINGS,
    ),
    Mutant(
        "relays-that-said-that-they-are-empty-stay-so",
        "octopi.relay.fence",
        """
-        return said_so and stuck_since is not None and known.beat_at > stuck_since + RELAY_ANSWER_S
+        return said_so
""",
        "a relay that has joined, and is cut off then, counts as empty when a timeline begins",
        "relay-lost",
        _FOUNDINGS,
    ),
    Mutant(
        "timelines-keep-the-longest-history",
        _EPOCH,
        """
-        held = max(one.vote.held for one in cast.values())
+        held = max(
+            (one.vote for one in cast.values()),
+            key=lambda vote: (
+                vote.held.timeline == epoch.timeline,
+                sum(point.end for _, point, _ in vote.streams),
+            ),
+        ).held
""",
        "a timeline begins with the longest history, and not with that of the newest timeline",
        "relay-lost",
        _FOUNDINGS,
    ),
    Mutant(
        "generations-are-not-stored",
        "octopi.roles.broker.relay.store",
        """
-                await checkpoint.store(self._disk, self._path, {"generation": generation})
+                pass
                 self.generation = generation
""",
        "a relay forgets at its next start which timelines there were",
        "relay-timeline-again",
        _FOUNDINGS,
    ),
    Mutant(
        "timelines-are-added-up",
        "octopi.relay.fence",
        """
-        return Counter(
-            beat.held.timeline
-            for beat in said
-            if beat.held != NEVER and beat.held.timeline == beat.epoch.timeline
-        )
+        return Counter(Timeline(1, 0) for beat in said if beat.held != NEVER)
""",
        "members of different timelines are counted together, so nobody begins another one",
        "liveness",
        _FOUNDINGS,
    ),
    Mutant(
        "answers-to-joining-relays-count-for-ever",
        _EPOCH,
        """
-            if now - one.at <= RELAY_ANSWER_S and one.life >= lives.get(member, NO_LIFE)
+            if one.life >= lives.get(member, NO_LIFE)
""",
        "what others answered long ago counts for a relay that joins",
        "relay-forgotten",
        (*_FOUNDINGS, "relay_beats_are_late"),
    ),
    Mutant(
        "relay-readers-are-not-compared",
        "octopi.roles.broker.relay.stream_log",
        """
-        end_text, _, digest = anchor.partition(".")
+        end_text, _, digest = "0", "", anchor.partition(".")[2]
+        if digest:
+            return
""",
        "a reader that has read what is gone is not told",
        "SILENT_FORK",
        ("relay_two_restart",),
    ),
    Mutant(
        "relay-ids-have-no-start",
        "octopi.relay.message_ids",
        """
-    life = broker.to_bytes(8, "big") + incarnation.to_bytes(8, "big")
+    life = broker.to_bytes(8, "big")
""",
        "a broker gives ids again that it gave before a restart, if its clock is set back",
        "relay-doubled",
        ("relay_clocks_jump",),
    ),
    Mutant(
        "relay-ids-follow-the-clock",
        "octopi.relay.message_ids",
        """
-        if wall_ms > self._ms:
+        if wall_ms != self._ms:
             self._ms, self._next = wall_ms, 0
""",
        "ids follow a clock that is set back, so one may be given twice",
        "relay-doubled",
        ("relay_clocks_jump",),
    ),
    # --- changes of sets -------------------------------------------------------------------
    Mutant(
        "relay-sets-change-before-the-epoch-is-agreed",
        _PARTICIPATION,
        """
-        if not self.is_agreed(now) or sum(one in wanted for one in there) < wanted.quorum:
+        if sum(one in wanted for one in there) < 1:
             return
""",
        "the sequencer changes the set although no quorum is part of its epoch",
        "relay-forgotten",
        _SETS,
    ),
    Mutant(
        "relay-sets-take-members-that-have-not-joined",
        _PARTICIPATION,
        """
-        if any(one not in there for one in wanted.ranked if one not in self.held_set):
+        if False:
             return
""",
        "a member is added before it has joined, so it counts for quorums that it was no part of",
        "relay-forgotten",
        _SETS,
    ),
    Mutant(
        "relay-sets-change-by-any-number",
        "octopi.relay.relay_set",
        """
-        return self.version > other.version and len({*self.ranked} ^ {*other.ranked}) == 1
+        return self.version > other.version
""",
        "a set may change by several members at once",
        "relay-forgotten",
        _SETS,
    ),
    Mutant(
        "relay-votes-count-by-the-newest-set",
        _EPOCH,
        """
-        relay_set = known_set if founds else next(iter(best.values())).relay_set
+        relay_set = known_set
""",
        "votes are counted by the newest set, which may not be in force",
        "relay-two-starts",
        _SETS,
    ),
    Mutant(
        "relays-write-before-they-are-members",
        _STREAMS,
        """
-        if self._me not in self._set:
-            return
         point = stream.buffer.end
""",
        "a relay that is to be a member counts before its set is in force",
        "relay-written-wrongly",
        _SETS,
        "members do not count it",
    ),
    Mutant(
        "starts-are-followed-in-the-former-set",
        _MEMBER,
        """
-        plan = EpochPlan(start.epoch, start.relay_set, lives, targets)
+        plan = EpochPlan(start.epoch, self.held_set, lives, targets)
""",
        "a member that follows a start goes on in the former set",
        "relay-two-starts",
        _SETS,
    ),
)
