"""Bugs of brokers that pass on what only the register answers, and of their clients.

No bug here is one of permissions: simulated nodes ask for no tokens.
`test_each_verb_lets_its_holder_do_its_own_at_every_role` tries each permission at a broker, too.
"""

from __future__ import annotations

from typing import Final

from sim.mutants.mutant import LIVENESS, Mutant

_PEER: Final = "octopi.roles.broker.peer_connection"

MUTANTS: Final = (
    Mutant(
        "requests-passed-on-twice",
        _PEER,
        """
                 connection = await self._opened()
+                await self._carry(connection, message, client, [], trio.Event())
                 await self._carry(connection, message, client, answers, sent)
""",
        "a broker passes each request on twice, and gives the client the second answer",
        "complaint",
        ("asked_through_brokers",),
    ),
    Mutant(
        "lost-answers-called-not-ready",
        _PEER,
        """
         f"this broker passed {name} on to the register, and has no answer: {answer}",
-        Status.ANSWER_LOST,
+        Status.NOT_READY,
""",
        "a broker that lost the answer says that the register was not asked, so a client takes "
        "what it did itself for somebody else's doing",
        "complaint",
        ("asked_through_brokers",),
    ),
    Mutant(
        "lost-answers-taken-for-refusals",
        "octopi.clients.routing",
        """
-            if error.status == Status.ANSWER_LOST:
+            if False:
""",
        "a client takes a lost answer for a refusal, and its repetition for the first attempt",
        "complaint",
        ("asked_through_brokers",),
    ),
    Mutant(
        "failures-get-another-status",
        "octopi.roles.asked",
        """
         self._on_answered()
+        if isinstance(message, m.Failure):
+            message = m.Failure(message.request, Status.INTERNAL, message.reason)
""",
        "a failure comes back through a broker with another status than the register gave it",
        "complaint",
        ("asked_through_brokers",),
    ),
    Mutant(
        "one-entrance-for-ever",
        "octopi.clients.entrances",
        """
-            self._given.rotate(-1)
-            self._given_failures += 1
+            return
""",
        "a client asks the node that it was told first for ever, though that one is gone",
        LIVENESS,
        ("entrance_goes", "asked_through_brokers"),
    ),
    Mutant(
        "lost-connection-never-opened-again",
        _PEER,
        """
-        return None if connection is None or connection.end_reason is not None else connection
+        return connection
""",
        "a broker that has lost its connection to the register for clients opens no other one",
        LIVENESS,
        ("entrance_goes", "asked_through_brokers"),
    ),
)
"""All mutants."""
