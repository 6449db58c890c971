"""Bugs of durable subscriptions: of their members' claims, of marks, and of what is told when."""

from __future__ import annotations

from typing import Final

from sim.mutants.mutant import HISTORY, LIVENESS, ORACLE, Mutant

MUTANTS: Final = (
    Mutant(
        "claim-not-kept",
        "octopi.subscriptions.log_mark",
        """
         told = TellAttached(session, entry.mark, entry.anchor, claim, log.start, entry.lost)
+        self._appended = attrs.evolve(self._appended, claim=claim)
         return effects + self._when_committed(now, told)
""",
        "a log's leader knows in memory alone which member has the log",
        ORACLE,
        ("leaders_die_with_marks",),
    ),
    Mutant(
        "assignment-told-before-commit",
        "octopi.subscriptions.coordinator",
        """
-        return [self._pending.append(assignment_key(self.sid, log), entry, *then)]
+        return [*then, self._pending.append(assignment_key(self.sid, log), entry)]
""",
        "a member is told that it has a log before that is committed",
        ORACLE,
        ("leaders_die_with_marks",),
    ),
    Mutant(
        "marks-of-any-claim",
        "octopi.subscriptions.log_mark",
        """
-        if claim < self.entry.claim:
-            return [TellRefused(session, Status.MEMBER_FENCED, _FENCED)]
+        claim = max(claim, self.entry.claim)
         effects = self._end_holder(Status.MEMBER_FENCED, _FENCED)
""",
        "a member that was replaced attaches again, and its marks count",
        ORACLE,
        ("replaced_members_come_back",),
    ),
    Mutant(
        "log-assigned-before-its-release",
        "octopi.subscriptions.coordinator",
        """
-                effects += self._ask_to_release(log, now)
+                effects += self._assign(log, member)
""",
        "a log is given to another member at once, while its member still reads it",
        ORACLE,
        ("replaced_members_come_back", "members_die"),
    ),
    Mutant(
        "mark-confirmed-in-memory",
        "octopi.subscriptions.log_mark",
        """
-            return self._when_committed(now, TellMarked(session, confirm))
+            return [TellMarked(session, confirm)]
""",
        "a mark is confirmed that no other replica has, nor the leader's own log",
        HISTORY,
        ("leaders_die_with_marks", "members_and_leaders_fail"),
    ),
    Mutant(
        "attach-answered-before-commit",
        "octopi.subscriptions.log_mark",
        """
         told = TellAttached(session, entry.mark, entry.anchor, claim, log.start, entry.lost)
-        return effects + self._when_committed(now, told)
+        return [*effects, told, *self._append(now)]
""",
        "a member hears its mark before the leader's log has it",
        ORACLE,
        ("leaders_die_with_marks",),
    ),
    Mutant(
        "reset-keeps-the-claim",
        "octopi.subscriptions.coordinator",
        """
-        claim = Claim(max(state.claim, newest) + 1)
+        claim = max(state.claim, newest, Claim(1))
         begun = AssignmentEntry(AssignmentPhase.RESETTING, NO_MEMBER, claim, offset)
""",
        "a member that had the log undoes what a reset did to its mark",
        ORACLE,
        ("members_die",),
    ),
    Mutant(
        "claims-start-anew",
        "octopi.subscriptions.coordinator",
        """
-        claim = self.logs[log].claim
+        claim = Claim(0)
         return self._set(log, AssignmentEntry(AssignmentPhase.FREE, NO_MEMBER, claim), *then)
""",
        "a log that nobody has is given with a claim that another member had before",
        ORACLE,
        ("members_die",),
    ),
    Mutant(
        "marked-on-receipt",
        "octopi.clients.subscribing.subscribed_log",
        """
         message = next(self._messages, None)
         if message is not None:
             self._in_hand = message.next_offset
+            self._mark(message.next_offset, self._clock.now())
         return message
""",
        "a member marks a message when the program gets it, before it is processed",
        HISTORY,
        ("members_die",),
    ),
    Mutant(
        "marks-not-stored-at-hand-over",
        "octopi.subscriptions.log_marks",
        """
         unstored, self._unstored = self._unstored, {}
-        return [effect for mark in unstored.values() for effect in mark.store(now)]
+        del unstored
+        return []
""",
        "a leader that hands over in good order leaves behind what its members marked last",
        ORACLE,
        ("leaders_are_moved_from_marks",),
    ),
    Mutant(
        "damage-ends-a-member",
        "octopi.clients.subscribing.mark_session",
        """
             return AttachRemedy.ATTACH_AGAIN
+        case RefusedError(status=Status.LOG_CORRUPT):
+            return AttachRemedy.STOP
         case _:
""",
        "a member of a log whose leader finds damage reads it no more, though it is repaired later",
        LIVENESS,
        ("sole_replica_of_members_damaged",),
    ),
    Mutant(
        "a-lost-mark-ends-a-member",
        "octopi.clients.subscribing.mark_session",
        """
         case RefusedError(status=Status.UNKNOWN_SUBSCRIPTION):
-            return AttachRemedy.ATTACH_AGAIN
+            return AttachRemedy.STOP
""",
        "a subscription can't be used any more after a partition with a mark began again empty",
        LIVENESS,
        ("every_disk_of_members_lost",),
    ),
    Mutant(
        "creations-stay-unfinished",
        "octopi.clients.subscribing.membership",
        """
-                        await self._finish_creation(error)
                         await self._link.before_again(error)
""",
        "a subscription whose creation all replicas know only in part can't be used any more",
        LIVENESS,
        ("creations_are_lost",),
    ),
)
