"""Bugs of queues: of what is durable before what, of the window, of keys, and of old deliveries."""

from __future__ import annotations

from typing import Final

from sim.mutants.mutant import HISTORY, LIVENESS, ORACLE, Mutant

MUTANTS: Final = (
    Mutant(
        "letter-before-its-number",
        "octopi.subscriptions.dead_letters",
        """
-        return None if first is None or first.offset in self._unknown else first
+        return first
""",
        "a dead letter is appended before it is committed that its message is given up",
        ORACLE,
        ("letter_writers_die",),
    ),
    Mutant(
        "letters-counted-anew",
        "octopi.subscriptions.dead_letters",
        """
-        self.sequence = sequence
+        first = pending[0].number if pending else count
+        self.sequence = LetterSequence(sequence.topic_id, sequence.epoch + 1, first)
         self._is_sequence_known = is_committed
""",
        "each leader begins another sequence of dead letters, so none of them is recognised when "
        "it is repeated",
        ORACLE,
        ("letter_writers_die",),
    ),
    Mutant(
        "settled-before-its-letter",
        "octopi.subscriptions.queue",
        """
-            self.letters.add(self._spent.popleft())
+            spent = self._spent.popleft()
+            self.letters.add(spent)
+            self.waiting_count -= 1
+            self._settle(spent, now)
""",
        "a message that is given up is settled before its dead letter is there",
        ORACLE,
        ("letter_writers_die",),
    ),
    Mutant(
        "dealt-again-before-it-is-counted",
        "octopi.subscriptions.queue",
        """
-            return one.is_known and one.until <= now and one.is_next
+            return one.until <= now and one.is_next
""",
        "a message is dealt again before it is committed how often it was dealt",
        ORACLE,
        ("workers_die",),
    ),
    Mutant(
        "unseen-deliveries-count",
        "octopi.subscriptions.queue",
        """
-                each.attempt -= 1
+                pass
""",
        "a message that a member gives back, and that its program never saw, comes nearer to being "
        "a dead letter",
        ORACLE,
        ("workers_die",),
    ),
    Mutant(
        "seen-deliveries-do-not-count",
        "octopi.subscriptions.queue",
        """
-                is_seen = seen is None or (one.offset, one.attempt) in seen
+                is_seen = seen is None
""",
        "what a member has when it leaves doesn't count as an attempt, though its program has it",
        ORACLE,
        ("workers_die",),
    ),
    Mutant(
        "no-window",
        "octopi.subscriptions.queue",
        """
-        room = self._window - len(self._order)
+        room = 1_000
""",
        "as many messages behind the oldest unsettled one are dealt as there are",
        ORACLE,
        ("workers_die",),
    ),
    Mutant(
        "a-key-at-many-members",
        "octopi.subscriptions.queue",
        """
         line = one.line
-        if line is None or not line.opened:
-            return freest
+        if line is None or not line.opened or freest is not None:
+            return freest
""",
        "messages of a key are dealt to whoever takes most, while another member has earlier ones",
        ORACLE,
        ("workers_die",),
    ),
    Mutant(
        "given-back-alone",
        "octopi.subscriptions.queued_messages",
        """
-        closed = []
-        while True:
-            last = self.opened.pop()
-            self.rest.appendleft(last)
-            closed.append(last)
-            if last is message:
-                return closed
+        self.opened.remove(message)
+        self.rest.appendleft(message)
+        return [message]
""",
        "a message is given back without the later ones of its key, whose deliveries go on "
        "counting",
        ORACLE,
        ("workers_die",),
    ),
    Mutant(
        "answers-to-old-deliveries",
        "octopi.subscriptions.queue",
        """
-        return one if (one.session, one.attempt) == (session, attempt) else None
+        return one
""",
        "the acknowledgement of an older delivery counts, while another member has the message",
        ORACLE,
        ("workers_are_late",),
    ),
    Mutant(
        "settled-in-any-order",
        "octopi.subscriptions.queued_messages",
        """
-        line = self.line
-        if line is None:
-            return True
-        return (line.opened or line.rest)[0] is self
+        return True


 class KeyLine:
     \"\"\"The unsettled messages of one key, in the order of the log: first those that are open, all at
     one member, then the others.\"\"\"

     __slots__ = ("key", "opened", "rest")

     def __init__(self, key: bytes) -> None:
         self.key = key
         self.opened: deque[QueuedMessage] = deque()
         self.rest: deque[QueuedMessage] = deque()

     def remove_first(self) -> None:
         \"\"\"The first message is settled.\"\"\"
         (self.opened or self.rest).popleft()

     def close_from(self, message: QueuedMessage) -> list[QueuedMessage]:
         \"\"\"*message*, which is open, and all open ones behind it have no member any more: these, the
         last one first.\"\"\"
-        closed = []
-        while True:
-            last = self.opened.pop()
-            self.rest.appendleft(last)
-            closed.append(last)
-            if last is message:
-                return closed
+        self.opened.remove(message)
+        self.rest.appendleft(message)
+        return [message]
""",  # noqa: E501  # as they stand there
        "a message is given back alone, and later ones of its key may be settled before it",
        ORACLE,
        ("workers_die",),
    ),
    Mutant(
        "acknowledgement-confirmed-in-memory",
        "octopi.subscriptions.log_queue",
        """
-            if self.is_stored:
-                effects += self._pending.when_committed(self.key, told)
-            else:
-                self._confirmations.append(told)
+            effects.append(told)
""",
        "an acknowledgement is confirmed that no other replica has, nor the leader's own log",
        HISTORY,
        ("dealing_leaders_die", "workers_and_leaders_fail"),
    ),
    Mutant(
        "lost-deliveries-cost-credit",
        "octopi.subscriptions.queue",
        """
-            self.members.take_back(member, dealt.end - dealt.offset)
+            pass
             if member.has_room:
""",
        "a message that retention took before it was sent costs its member credit for good",
        LIVENESS,
        ("retention_takes_what_is_dealt",),
    ),
    Mutant(
        "letters-fenced-for-ever",
        "octopi.roles.broker.subscriptions.dealing",
        """
-        Status.PRODUCER_FENCED,
         Status.RECEIPT_FORGOTTEN,  # fewer letters are pending than a log remembers receipts
""",
        "a queue that lost more than its dead-letter topic writes no dead letter any more",
        LIVENESS,
        ("letters_are_lost",),
    ),
    Mutant(
        "resets-done-again",
        "octopi.subscriptions.log_queue",
        """
-        if claim == self.entry.claim:
-            return self._when_committed(now, TellDone(session))
         before = self.entry
""",
        "a reset that is asked for again takes back what members have settled since the first time",
        "attempt-miscounted",
        ("resets_are_asked_for_again",),
    ),
)
