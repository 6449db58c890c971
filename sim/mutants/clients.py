"""Bugs of how clients find leaders, and of version 1 records that they send again.

No bug here removes the bound of redirects (`octopi.clients.leader_route.LeaderRoute.redirected`),
because no run could notice it.  A redirect names the leader of an epoch, all brokers that know an
epoch name the same leader, and that leader doesn't redirect.  So the redirects of correct brokers
lead to later and later epochs, and end with the newest one.  Only faulty brokers send a client in a
circle; `tests/clients/test_redirects.py` has such brokers.
"""

from __future__ import annotations

from typing import Final

from sim.mutants.mutant import HISTORY, LIVENESS, Mutant

_ROUTES: Final = "octopi.clients.leader_route"

MUTANTS: Final = (
    Mutant(
        "no-redirects",
        "octopi.roles.broker.redirects",
        """
-    return NotLeaderError(reason, address=address, epoch=decided.epoch if address else None)
+    return NotLeaderError(reason)
""",
        "a broker that doesn't lead a partition doesn't name the leader, so a producer that "
        "missed a change waits for the register",
        LIVENESS,
        ("finds_its_way",),
    ),
    Mutant(
        "version-1-records-are-always-new",
        "octopi.replication.producer_sequences",
        """
-        known = [(self._requests.get(one.request_id), one.position) for one in requests]
+        known = [(None, one.position) for one in requests]
""",
        "a version 1 record that is sent again is stored again",
        HISTORY,
        ("asks_twice",),
    ),
    Mutant(
        "fences-not-checked",
        "octopi.replication.log_leader",
        """
-        if fence is not None and run.producer_epoch < fence:
+        if fence is not None and run.producer_epoch < 0:
""",
        "a leader takes late records of a named producer's former life",
        "former-life-stored",
    ),
    Mutant(
        "lives-share-an-epoch",
        "octopi.roles.broker.services.producers",
        """
-            if (epoch := (last or 0) + 1) > _UINT32_MAX:
+            if (epoch := last or 1) > _UINT32_MAX:
""",
        "a life of a named producer gets the epoch of the one before",
        "former-life-stored",
    ),
    Mutant(
        "epochs-begin-uncommitted",
        "octopi.roles.broker.services.producers",
        """
             begun.append(m.ProducerDescription(message.request, epoch, 0, log.state.end))
+            answered.set()
             return fence_entry(TopicId(log.topic_id), producer, ProducerEpoch(epoch))

         def take(answer: CommitReceipt | Refusal) -> None:
             answers.append(answer)
             answered.set()

         self._internal.append_fence(message.partition, fence, take)
         await answered.wait()
-        if isinstance(answers[0], Refusal):
+        if answers and isinstance(answers[0], Refusal):
""",
        "the answer that an epoch has begun is sent before the fence is committed",
        "former-life-stored",
        ("leaders_die",),
    ),
    Mutant(
        "only-the-register-is-asked",
        _ROUTES,
        """
             self.looked_up()
-            if not self._brokers:
-                self._brokers.extend(self._lookup.brokers(self._topic, self._partition))
             if not self._brokers:
""",
        "a producer whose leader is gone waits for the register, although every broker knows the "
        "next leader",
        LIVENESS,
        ("finds_its_way",),
    ),
    Mutant(
        "brokers-forgotten-when-nobody-leads",
        "octopi.clients.leader_lookup",
        """
-            if found := [one for one in (*place.readers, place.leader_address) if one]:
-                self.addresses[place.partition] = found
+            found = [one for one in (*place.readers, place.leader_address) if one]
+            self.addresses[place.partition] = found
""",
        "a client that learns that a partition has no leader forgets the brokers that it knew, "
        "and waits for the register",
        LIVENESS,
        ("given_up_while_nobody_leads",),
    ),
    Mutant(
        "used-buffers-are-free",
        "octopi.transport.receive_buffers",
        """
-            if _is_free(buffer):
+            if buffer:
""",
        "a client receives into a buffer whose records have not been decoded yet",
        LIVENESS,
    ),
)
