"""Bugs of the register's orders to brokers, and of which replicas serve."""

from __future__ import annotations

from typing import Final

from sim.mutants.mutant import HISTORY, LIVENESS, Mutant

_ADMISSIONS: Final = "octopi.roles.register.admissions"
_MEMBER: Final = "octopi.roles.register.member"

MUTANTS: Final = (
    Mutant(
        "what-is-given-up-is-deleted",
        "octopi.roles.broker.retirement",
        """
-        return wanted and self._opening.holds_logs(partition_id)
+        return False
""",
        "a broker deletes a replica as soon as the register has placed the partition elsewhere, "
        "instead of retiring it",
        "retired-unkept",
        ("finds_its_way", "leaders_are_moved_from_marks"),
        "No client reads what a broker keeps of a replica that it gave up.",
    ),
    Mutant(
        "who-was-away-keeps-deleted-topics",
        _ADMISSIONS,
        """
-        await self._members.have_removed(member, controller.view.removals_of(broker))
""",
        "a broker that joins is not told which topics were deleted while it was away, and can't "
        "follow with their logs",
        LIVENESS,
        ("made_again",),
    ),
    Mutant(
        "altered-options-wait-for-a-restart",
        "octopi.roles.broker.alteration",
        """
-    replica.require(log.topic_id, options.min_insync, flush=options.flush_before_ack)
""",
        "a broker stores how many replicas in sync an altered topic requires, and goes by it when "
        "it is started the next time",
        "acknowledged-unheld",
        ("altered",),
    ),
    Mutant(
        "the-first-report-of-options-counts",
        "octopi.coordination.admission",
        """
-            if topic.alteration > known.alteration:
+            if False:
""",
        "a register that lost its disk takes the options of a topic from the broker that reports "
        "first, which may have been away when they were altered",
        "options-back",
        ("altered_and_forgotten",),
    ),
    Mutant(
        "topics-made-anew-overtake-deletions",
        "octopi.roles.register.topics",
        """
-            if older_is_removed is not None:
-                await older_is_removed.wait()
             if placed := creation.placed:
""",
        "the register tells brokers of a topic before it has told them that an older one of that "
        "name is deleted, so the leader acknowledges messages in the older one",
        HISTORY,
        ("made_again_too_soon",),
    ),
    Mutant(
        "undone-topics-are-not-told-again",
        _MEMBER,
        """
-        self._undone_topics.update(one.topic for one in records if one.topic_id in failed)
""",
        "the register doesn't repeat the order to make a topic that a broker could not make "
        "because its disk was full",
        LIVENESS,
        ("ordered_with_a_full_disk",),
    ),
    Mutant(
        "undone-decisions-are-not-told-again",
        _MEMBER,
        """
-        self._undone_partitions.update(one.partition for one in records if one not in done)
""",
        "the register doesn't repeat a decision that a broker could not store because its disk "
        "was full",
        LIVENESS,
        ("appointed_with_a_full_disk", "told_with_a_full_disk"),
    ),
    Mutant(
        "one-undone-order-keeps-all-from-serving",
        _ADMISSIONS,
        """
-        await member.install_partitions(table, controller.view.brokers())
-        await member.install_topics(topics)
-        if not (member.is_closed or member.is_silent):
+        confirmed = await member.install_partitions(table, controller.view.brokers())
+        confirmed &= await member.install_topics(topics)
+        if confirmed:
""",
        "a broker that could not carry out its first orders counts as not serving until it joins "
        "again",
        LIVENESS,
        ("told_with_a_full_disk",),
    ),
    Mutant(
        "leaders-on-full-disks-stay",
        "octopi.coordination.elections",
        """
-            and health.trouble(record.leader, record.partition)
+            and False
""",
        "a leader whose disk takes no records is not replaced by a replica whose disk does",
        LIVENESS,
        ("full_in_the_end",),
    ),
    Mutant(
        "troubles-are-not-told",
        "octopi.roles.broker.broker_health",
        """
         if news is not None:
-            post(news)
+            pass
""",
        "a broker doesn't report that its disk is full, so it goes on leading although another "
        "replica could",
        LIVENESS,
        ("full_in_the_end",),
    ),
    Mutant(
        "changes-wait-for-all",
        "octopi.roles.register.election_driver",
        """
-        if not is_complete and (expects_all or waited_s < ACCEPT_WAIT_S):
+        if not is_complete:
""",
        "an election waits for ever for a replica in sync that can't promise the epoch, and the "
        "former leader has given up its role",
        LIVENESS,
        ("gone_for_good", "left_behind"),
    ),
    Mutant(
        "waiting-fetches-hold-up-their-connection",
        "octopi.roles.broker.services.read",
        """
-        self._connection.set_aside(message.request)
""",
        "a connection with many fetches that wait for records is not read until the records come",
        HISTORY,
        ("polls",),
    ),
    Mutant(
        "deleted-logs-sent-to-followers",
        "octopi.roles.broker.follower_connection",
        """
-        if replica is None or replica.logs.get(followed.log.topic_id) is not followed.log:
+        if replica is None:
             return None
""",
        "a leader reads a log whose topic was deleted for a follower that acknowledges late, and "
        "so ends the stream of all logs of the partition",
        "complaint",
        ("deleted_while_it_is_sent",),
        "The follower opens another stream, as after any broken connection; what is left is an "
        "error in the leader's log.",
    ),
    Mutant(
        "topics-sent-while-a-replica-is-put-away",
        "octopi.roles.register.member",
        """
-            if self.broker not in record.replicas:
-                # It may be a replica again before it has confirmed that it is none, and then it
-                # needs the topics again.
-                self._hosts.discard(record.partition)
""",
        "a replica that is moved away and back at once is sent its topics while the broker still "
        "puts the former one away, which has no use for them, and never again",
        "liveness",
        ("moved_there_and_back",),
    ),
)
