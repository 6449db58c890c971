"""The named steps of the protocols, as `Environment.trace` reports them.

Where a step makes something durable or lets somebody see it, its code ends in a letter for
each edge, in the order of time: nothing of it has happened at the first edge, all of it at
the last.  An observer that raises at an edge stops the node there: what follows from the
step is neither on the disk nor on its way.  A message counts as sent when it is handed to
its connection, which is what "tells" and "told" mean here.

`FACTS` says what is passed with each step; a test holds the code to it.  Who does the step
is known from the environment that it was observed in, so the facts speak of others:

================================= =====================================================
fact                              meaning
================================= =====================================================
topic, topic_id, partition        the log; without topic all logs of the partition
epoch, version                    of the record of the partition that is meant; epoch 0:
                                  the replica plays no role
offset, end                       where records begin and end (bytes, exclusive)
log_end, flushed_end              end of this node's log, in the page cache and on the
                                  device
log_start, highwater              of this node's log
producer, producer_epoch,         the batch: id (bytes), epoch and sequence of its first
sequence, count                   record, number of records.  Version 1 records have no
                                  producer: None
records_epoch                     which epoch wrote the records
in_sync, proposed                 broker ids in order; the set in force, and one that the
                                  register was asked for (None: none), whose members have
                                  to hold what is committed, too
follower, leader, broker          the other side
record, records, topics, entries  what was decided, as objects
                                  (`octopi.wire.messages`, `octopi.membership.entries`)
disk_trouble, troubles            why a broker's disk takes nothing (empty: it does), and what is
                                  new about its replicas (`octopi.wire.messages`)
wish                              what a change of leadership should bring about; None:
                                  the leader is gone
keep, begin                       the logs agree below, and records come from
ends, first, more                 of the logs of an acceptance, and which part of it this is
                                  (`octopi.wire.messages.AcceptEpoch`)
folder                            where the files of a retired replica are now, on its disk
losses                            what is known to be lost by a decision, for each record
                                  that accepts a loss
epochs                            which epoch began where, in order (epoch, offset)
status, reason, why               of a refusal: `octopi.errors.Status` and words
promised, sync_flag, intact,      see `octopi.replication.effects.ReplicaState`
whole, log_epoch, ends
================================= =====================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

# --- producing: the eight steps; a replica without followers takes the leader's five -----

P1_RECEIVED: Final = "P1 leader received the batch"
P2_APPENDING: Final = "P2a leader appends the batch"
P2_APPENDED: Final = "P2b leader appended the batch"
P2_FORWARDING: Final = "P2c leader forwards records to a follower"
P2_FORWARDED: Final = "P2d leader forwarded records to a follower"
P3_REPLICATING: Final = "P3a follower appends the records"
P3_REPLICATED: Final = "P3b follower appended the records"
P4_ACKNOWLEDGING: Final = "P4a follower acknowledges its log's end"
P4_ACKNOWLEDGED: Final = "P4b follower acknowledged its log's end"
P5_HEARD: Final = "P5a leader heard an acknowledgement"
P5_IN_SYNC: Final = "P5b leader has the acknowledgements of all that are in sync"
P6_COMMITTING: Final = "P6a leader advances the highwater mark"
P6_COMMITTED: Final = "P6b leader advanced the highwater mark"
P6_TELLING: Final = "P6c leader tells a follower the highwater mark"
P6_TOLD: Final = "P6d leader told a follower the highwater mark"
P7_ACKNOWLEDGING: Final = "P7a leader acknowledges the producer"
P7_ACKNOWLEDGED: Final = "P7b leader acknowledged the producer"
P8_FOLLOWING: Final = "P8a follower advances its highwater mark"
P8_FOLLOWED: Final = "P8b follower advanced its highwater mark"
P9_REFUSING: Final = "P9a leader refuses the producer"
P9_REFUSED: Final = "P9b leader refused the producer"

PRODUCING: Final = (
    P1_RECEIVED,
    P2_APPENDING,
    P2_APPENDED,
    P2_FORWARDING,
    P2_FORWARDED,
    P3_REPLICATING,
    P3_REPLICATED,
    P4_ACKNOWLEDGING,
    P4_ACKNOWLEDGED,
    P5_HEARD,
    P5_IN_SYNC,
    P6_COMMITTING,
    P6_COMMITTED,
    P6_TELLING,
    P6_TOLD,
    P7_ACKNOWLEDGING,
    P7_ACKNOWLEDGED,
    P8_FOLLOWING,
    P8_FOLLOWED,
)
"""A batch goes through them in this order; only 6c and 6d may come behind 7."""

REFUSING: Final = (P9_REFUSING, P9_REFUSED)
"""The other end that a batch can come to, from any of the steps before 7."""

# --- what a replica makes durable -------------------------------------------------------

D1_FLUSHING: Final = "D1a log is flushed"
D1_FLUSHED: Final = "D1b log was flushed"
D2_PROMISING: Final = "D2a replica stores its promise and its record"
D2_PROMISED: Final = "D2b replica stored its promise and its record"
D3_NOTING: Final = "D3a log's epochs and producers are stored"
D3_NOTED: Final = "D3b log's epochs and producers were stored"
D4_RETIRED: Final = "D4 old segments were removed"
D5_RECOVERING: Final = "D5a log is opened, and what is torn is cut"
D5_RECOVERED: Final = "D5b log was opened"
D6_SETTING_ASIDE: Final = "D6a replica takes what is damaged out of its log"
D6_SET_ASIDE: Final = "D6b replica took what is damaged out of its log"

DURABILITY: Final = (
    D1_FLUSHING,
    D1_FLUSHED,
    D2_PROMISING,
    D2_PROMISED,
    D3_NOTING,
    D3_NOTED,
    D4_RETIRED,
    D5_RECOVERING,
    D5_RECOVERED,
    D6_SETTING_ASIDE,
    D6_SET_ASIDE,
)

# --- leadership: who leads, who is in sync ------------------------------------------------

E1_WANTED: Final = "E1 register wants another leader"
E2_ANNOUNCED: Final = "E2 register made the next epoch durable"
E3_ANNOUNCING: Final = "E3a register tells a replica the next epoch"
E3_TOLD: Final = "E3b register told a replica the next epoch"
E4_HEARD: Final = "E4 replica hears of the next epoch"
E5_LEFT: Final = "E5 replica left its role"
E6_ACCEPTING: Final = "E6a replica accepts the epoch, having promised it"
E6_ACCEPTED: Final = "E6b replica accepted the epoch"
E7_COUNTED: Final = "E7 register heard an acceptance"
E8_DECIDING: Final = "E8a register decides who leads"
E8_DECIDED: Final = "E8b register made durable who leads"
E9_TELLING: Final = "E9a register tells a broker its decisions"
E9_CONFIRMED: Final = "E9b broker confirmed the register's decisions"
E10_INSTALLING: Final = "E10a broker hears the register's decisions"
E10_INSTALLED: Final = "E10b broker made the register's decisions durable"
E11_LEADING: Final = "E11 broker begins to lead"
E12_FOLLOWING: Final = "E12 broker begins to follow"
E13_TRUNCATING: Final = "E13a follower cuts its log"
E13_TRUNCATED: Final = "E13b follower cut its log"
E14_RESTARTING: Final = "E14a follower drops its log and begins where the leader's starts"
E14_RESTARTED: Final = "E14b follower dropped its log and begins where the leader's starts"
E15_FIRST_COMMIT: Final = "E15 leader committed for the first time in its epoch"
E16_PROPOSING: Final = "E16a leader proposes another in-sync set"
E16_PROPOSED: Final = "E16b leader proposed another in-sync set"
E17_ALTERING: Final = "E17a register judges a proposed in-sync set"
E17_ALTERED: Final = "E17b register made its judgement durable"
E18_LEARNED: Final = "E18 leader goes by another in-sync set"
E19_RESIGNING: Final = "E19a leader resigns"
E19_RESIGNED: Final = "E19b leader resigned"
E20_GIVEN_UP: Final = "E20 register gave a wish about the leader up"
E21_STOPPING: Final = "E21a broker tells the register that it is about to stop"
E21_TOLD: Final = "E21b broker told the register that it is about to stop"
E22_EMPTYING: Final = "E22a register hands over what a stopping broker leads"
E22_EMPTIED: Final = "E22b register handed over what a stopping broker led"
E23_PREPARING: Final = "E23a leader prepares that another broker leads"
E23_PREPARED: Final = "E23b leader is prepared that another broker leads"
E24_LEAVING: Final = "E24a broker says goodbye to the register"
E24_LEFT: Final = "E24b broker said goodbye to the register"

LEADERSHIP: Final = (
    E1_WANTED,
    E2_ANNOUNCED,
    E3_ANNOUNCING,
    E3_TOLD,
    E4_HEARD,
    E5_LEFT,
    E6_ACCEPTING,
    E6_ACCEPTED,
    E7_COUNTED,
    E8_DECIDING,
    E8_DECIDED,
    E9_TELLING,
    E9_CONFIRMED,
    E10_INSTALLING,
    E10_INSTALLED,
    E11_LEADING,
    E12_FOLLOWING,
    E13_TRUNCATING,
    E13_TRUNCATED,
    E14_RESTARTING,
    E14_RESTARTED,
    E15_FIRST_COMMIT,
    E16_PROPOSING,
    E16_PROPOSED,
    E17_ALTERING,
    E17_ALTERED,
    E18_LEARNED,
    E19_RESIGNING,
    E19_RESIGNED,
    E20_GIVEN_UP,
    E21_STOPPING,
    E21_TOLD,
    E22_EMPTYING,
    E22_EMPTIED,
    E23_PREPARING,
    E23_PREPARED,
    E24_LEAVING,
    E24_LEFT,
)
"""A change of leadership goes through 1 to 12, where a broker confirms (9b) what it acts on
(11, 12); the others belong to what follows from it."""

# --- joining: a broker its cluster, a follower its leader -------------------------------

J1_IDENTIFYING: Final = "J1a broker stores who it is"
J1_IDENTIFIED: Final = "J1b broker stored who it is"
J2_CONNECTED: Final = "J2 broker reached the register"
J3_REPORTING: Final = "J3 broker tells the register what it holds"
J4_JOINING: Final = "J4a broker asks to join"
J4_JOINED: Final = "J4b broker heard that it joined"
J5_ADMITTING: Final = "J5a register lets a broker in"
J5_ADMITTED: Final = "J5b register made durable that a broker is in"
J6_SERVING: Final = "J6 register sends clients to the broker from now on"
J7_STREAM_OPENED: Final = "J7 follower opened a stream to its leader"
J8_ASKING: Final = "J8a follower asks to follow a log"
J8_ASKED: Final = "J8b follower asked to follow a log"
J9_COMPARING: Final = "J9a leader tells where a follower's log parts from its own"
J9_COMPARED: Final = "J9b leader told where a follower's log parts from its own"
J10_PARTED: Final = "J10 follower heard where its log parts from the leader's"
J11_CAUGHT_UP: Final = "J11 leader finds that a follower caught up"
J12_IN_SYNC: Final = "J12 follower is in the in-sync set"
J13_RETIRING: Final = "J13a broker gives a replica up"
J13_RETIRED: Final = "J13b broker gave a replica up"
J14_TROUBLED: Final = "J14 register hears which replicas of a broker take no records"
J15_MOVING: Final = "J15a broker moves the files of a replica that it gives up"
J15_MOVED: Final = "J15b broker moved the files of a replica that it gives up"

JOINING: Final = (
    J1_IDENTIFYING,
    J1_IDENTIFIED,
    J2_CONNECTED,
    J3_REPORTING,
    J4_JOINING,
    J4_JOINED,
    J5_ADMITTING,
    J5_ADMITTED,
    J6_SERVING,
    J7_STREAM_OPENED,
    J8_ASKING,
    J8_ASKED,
    J9_COMPARING,
    J9_COMPARED,
    J10_PARTED,
    J11_CAUGHT_UP,
    J12_IN_SYNC,
    J13_RETIRING,
    J13_RETIRED,
    J14_TROUBLED,
    J15_MOVING,
    J15_MOVED,
)
"""In this order, but that the register admits (5) before the broker hears of it (4b), and a
replica's files are moved (15) while it is given up (13).
Between 5 and 6 the broker is told decisions (E9, E10) and topics (T2, T3)."""

# --- the register's memory, and who is there ----------------------------------------------

R1_READ: Final = "R1 register read its journal"
R2_APPENDING: Final = "R2a register appends to its journal"
R2_APPENDED: Final = "R2b register appended to its journal"
R3_FLUSHING: Final = "R3a register flushes its journal"
R3_FLUSHED: Final = "R3b register flushed its journal"
R4_SNAPSHOT: Final = "R4a register begins a fresh journal with its whole state"
R4_SWITCHED: Final = "R4b register's fresh journal is in force"
R4_REPLACED: Final = "R4c register removed the old journal"
R5_GATHERED: Final = "R5 register has listened long enough to decide"
R6_LOST: Final = "R6 register lost a broker"
R7_BROKEN: Final = "R7 register's connection with a broker broke"
R8_RESTORED: Final = "R8 register has a new connection with a broker that was there all the time"

REGISTER: Final = (
    R1_READ,
    R2_APPENDING,
    R2_APPENDED,
    R3_FLUSHING,
    R3_FLUSHED,
    R4_SNAPSHOT,
    R4_SWITCHED,
    R4_REPLACED,
    R5_GATHERED,
    R6_LOST,
    R7_BROKEN,
    R8_RESTORED,
)

# --- topics ---------------------------------------------------------------------------------

T1_CREATING: Final = "T1a register makes a topic"
T1_CREATED: Final = "T1b register made durable that there is a topic"
T2_TELLING: Final = "T2a register tells a broker its topics"
T2_CONFIRMED: Final = "T2b broker confirmed its topics"
T3_MAKING: Final = "T3a broker makes a log"
T3_MADE: Final = "T3b broker made a log"
T4_INSTALLED: Final = "T4 topic is on its brokers"
T5_DELETING: Final = "T5a register deletes a topic"
T5_DELETED: Final = "T5b register made durable that a topic is gone"
T6_TELLING: Final = "T6a register tells a broker to remove a topic"
T6_CONFIRMED: Final = "T6b broker confirmed that it removed a topic"
T7_REMOVING: Final = "T7a broker removes a log"
T7_REMOVED: Final = "T7b broker removed a log"

TOPICS: Final = (
    T1_CREATING,
    T1_CREATED,
    T2_TELLING,
    T2_CONFIRMED,
    T3_MAKING,
    T3_MADE,
    T4_INSTALLED,
    T5_DELETING,
    T5_DELETED,
    T6_TELLING,
    T6_CONFIRMED,
    T7_REMOVING,
    T7_REMOVED,
)

# --- clients ------------------------------------------------------------------------------

C1_SENDING: Final = "C1a producer sends a batch"
C1_SENT: Final = "C1b producer sent a batch"
C2_REPEATING: Final = "C2a producer sends a batch again"
C2_REPEATED: Final = "C2b producer sent a batch again"
C3_RECEIPT: Final = "C3 producer got a receipt"
C4_REFUSED: Final = "C4 producer was refused"
C5_REDIRECTED: Final = "C5 producer looks for the leader elsewhere"
C6_FOUND: Final = "C6 producer reached the leader"
C7_GAVE_UP: Final = "C7 producer gave a batch up"
C8_SUBSCRIBING: Final = "C8a consumer subscribes"
C8_SUBSCRIBED: Final = "C8b consumer subscribed"
C9_RESUMING: Final = "C9 consumer lost its broker and goes on elsewhere"
C10_DELIVERING: Final = "C10a consumer gets records"
C10_DELIVERED: Final = "C10b consumer got records"
C11_TAKEN: Final = "C11 program took records"
C12_SKIPPED: Final = "C12 consumer leaves out what retention removed"
C13_ENDED: Final = "C13 consumer can't go on"
C14_FORKED: Final = "C14 consumer finds that what it read is gone"

CLIENT: Final = (
    C1_SENDING,
    C1_SENT,
    C2_REPEATING,
    C2_REPEATED,
    C3_RECEIPT,
    C4_REFUSED,
    C5_REDIRECTED,
    C6_FOUND,
    C7_GAVE_UP,
    C8_SUBSCRIBING,
    C8_SUBSCRIBED,
    C9_RESUMING,
    C10_DELIVERING,
    C10_DELIVERED,
    C11_TAKEN,
    C12_SKIPPED,
    C13_ENDED,
    C14_FORKED,
)

ALL: Final = (
    *PRODUCING,
    *REFUSING,
    *DURABILITY,
    *LEADERSHIP,
    *JOINING,
    *REGISTER,
    *TOPICS,
    *CLIENT,
)

# --- what is passed with each --------------------------------------------------------------

_OF_LOG: Final = ("topic", "topic_id", "partition", "epoch")
_OF_BATCH: Final = ("producer", "producer_epoch", "sequence", "count")
_OF_SET: Final = ("in_sync", "version", "proposed")
_OF_MARK: Final = (*_OF_LOG, "highwater", "log_end")
_OF_COMMIT: Final = (*_OF_MARK, "flushed_end", *_OF_SET)
_OF_PLACE: Final = ("offset", "end")
_OF_FILES: Final = ("topic", "topic_id", "partition", "log_end", "flushed_end")
_OF_RECORD: Final = (
    "partition",
    "epoch",
    "version",
    "leader",
    "leader_incarnation",
    "replicas",
    "in_sync",
    "lost",
    "recovered_epoch",
)
_OF_LIFE: Final = ("cluster", "broker", "incarnation")
_OF_SENT: Final = ("topic", "partition", *_OF_BATCH, "attempt")

FACTS: Final[Mapping[str, tuple[str, ...]]] = {
    step: facts
    for edges, facts in (
        ((P1_RECEIVED,), (*_OF_LOG, *_OF_BATCH)),
        ((P2_APPENDING, P2_APPENDED), (*_OF_LOG, *_OF_BATCH, *_OF_PLACE)),
        (
            (P2_FORWARDING, P2_FORWARDED),
            (*_OF_LOG, *_OF_PLACE, "records_epoch", "highwater", "follower"),
        ),
        ((P3_REPLICATING, P3_REPLICATED), (*_OF_LOG, *_OF_PLACE, "records_epoch")),
        ((P4_ACKNOWLEDGING, P4_ACKNOWLEDGED), (*_OF_LOG, "attempt", "end", "leader")),
        ((P5_HEARD,), (*_OF_LOG, "follower", "end")),
        ((P5_IN_SYNC, P6_COMMITTING, P6_COMMITTED), _OF_COMMIT),
        ((P6_TELLING, P6_TOLD), (*_OF_LOG, "follower", "highwater")),
        (
            (P7_ACKNOWLEDGING, P7_ACKNOWLEDGED),
            (
                *(*_OF_LOG, *_OF_BATCH, *_OF_PLACE),
                *("records_epoch", "duplicate", "highwater", *_OF_SET),
            ),
        ),
        ((P8_FOLLOWING, P8_FOLLOWED), _OF_MARK),
        ((P9_REFUSING, P9_REFUSED), (*_OF_LOG, *_OF_BATCH, "status", "reason")),
        ((D1_FLUSHING, D1_FLUSHED), _OF_FILES),
        (
            (D2_PROMISING, D2_PROMISED),
            (
                "partition",
                "promised",
                "sync_flag",
                "intact",
                "whole",
                "log_epoch",
                "ends",
                "record",
            ),
        ),
        ((D3_NOTING, D3_NOTED), (*_OF_FILES, "number", "highwater", "recovery_point", "epochs")),
        ((D4_RETIRED,), (*_OF_FILES, "log_start")),
        ((D5_RECOVERING,), ("topic", "topic_id", "partition")),
        ((D5_RECOVERED,), (*_OF_FILES, "log_start", "highwater", "epochs")),
        ((D6_SETTING_ASIDE, D6_SET_ASIDE), (*_OF_LOG, "log_end")),
        ((E1_WANTED,), (*_OF_RECORD, "wish")),
        ((E2_ANNOUNCED, E4_HEARD), ("partition", "epoch")),
        ((E3_ANNOUNCING, E3_TOLD), ("partition", "epoch", "broker")),
        ((E5_LEFT,), ("partition", "epoch", "role")),
        (
            (E6_ACCEPTING, E6_ACCEPTED, E7_COUNTED),
            (
                *("partition", "epoch", "broker", "incarnation", "last_epoch", "log_epoch"),
                *("ends", "first", "more"),
            ),
        ),
        ((E8_DECIDING, E8_DECIDED), ("entries", "losses")),
        ((E9_TELLING, E9_CONFIRMED), ("broker", "records")),
        ((E10_INSTALLING, E10_INSTALLED), ("records",)),
        ((E11_LEADING, E18_LEARNED), ("partition", "epoch", *_OF_SET)),
        ((E12_FOLLOWING,), ("partition", "epoch", "leader")),
        ((E13_TRUNCATING, E13_TRUNCATED), (*_OF_MARK, "end")),
        ((E14_RESTARTING, E14_RESTARTED), (*_OF_LOG, "log_end", "begin")),
        ((E15_FIRST_COMMIT,), _OF_COMMIT),
        (
            (E16_PROPOSING, E16_PROPOSED),
            (
                *("partition", "epoch", "leader", "leader_incarnation", "version", "in_sync"),
                "joiner_incarnation",
            ),
        ),
        ((E17_ALTERING, E17_ALTERED), ("asked", "accepted", "record")),
        (
            (E19_RESIGNING, E19_RESIGNED),
            ("partition", "epoch", "leader", "leader_incarnation", "reason"),
        ),
        ((E20_GIVEN_UP,), ("partition", "wish")),
        (
            (E21_STOPPING, E21_TOLD, E22_EMPTYING, E22_EMPTIED, E24_LEAVING, E24_LEFT),
            ("broker", "incarnation"),
        ),
        ((E23_PREPARING, E23_PREPARED), ("partition",)),
        ((J1_IDENTIFYING, J1_IDENTIFIED, J4_JOINING, J4_JOINED), _OF_LIFE),
        ((J2_CONNECTED,), ("register",)),
        ((J3_REPORTING,), ("partitions", "topics", "standings")),
        ((J5_ADMITTING, J5_ADMITTED), ("broker", "incarnation", "entries")),
        ((J6_SERVING, R6_LOST, R7_BROKEN, R8_RESTORED), ("broker", "incarnation")),
        ((J7_STREAM_OPENED,), ("partition", "leader")),
        ((J8_ASKING, J8_ASKED), (*_OF_LOG, "attempt", "epochs", "log_end", "leader")),
        ((J9_COMPARING, J9_COMPARED), (*_OF_LOG, "attempt", "keep", "begin", "follower")),
        ((J10_PARTED,), (*_OF_LOG, "attempt", "keep", "begin", "leader")),
        ((J11_CAUGHT_UP,), ("partition", "epoch", "version", "follower")),
        ((J12_IN_SYNC,), ("partition", "epoch", *_OF_SET, "follower")),
        ((J13_RETIRING, J13_RETIRED), ("partition",)),
        ((J14_TROUBLED,), ("broker", "disk_trouble", "troubles")),
        ((J15_MOVING,), ("partition",)),
        ((J15_MOVED,), ("partition", "folder")),
        ((R1_READ, R2_APPENDING, R2_APPENDED, R4_SNAPSHOT), ("entries",)),
        ((R3_FLUSHING, R3_FLUSHED), ("log_end",)),
        ((R4_SWITCHED, R4_REPLACED), ()),
        ((R5_GATHERED,), ("cluster",)),
        ((T1_CREATING, T1_CREATED, T4_INSTALLED), ("topic", "topic_id", "partitions")),
        ((T2_TELLING, T2_CONFIRMED), ("broker", "topics")),
        ((T3_MAKING, T3_MADE), ("topic", "topic_id", "partition")),
        ((T5_DELETING, T5_DELETED), ("topic", "topic_id")),
        ((T6_TELLING, T6_CONFIRMED), ("broker", "topic", "topic_id")),
        ((T7_REMOVING, T7_REMOVED), _OF_LOG),
        ((C1_SENDING, C1_SENT, C2_REPEATING, C2_REPEATED), _OF_SENT),
        ((C3_RECEIPT,), (*_OF_SENT, "offset", "records_epoch", "duplicate")),
        ((C4_REFUSED,), (*_OF_SENT, "status", "reason")),
        ((C5_REDIRECTED,), ("topic", "partition", "address", "why")),
        ((C6_FOUND,), ("topic", "partition", "address")),
        ((C7_GAVE_UP,), ("topic", "partition", "sequence", "count", "why")),
        ((C8_SUBSCRIBING,), ("topic", "partition", "offset", "peer")),
        ((C8_SUBSCRIBED,), (*_OF_LOG, "highwater")),
        ((C9_RESUMING,), ("topic", "partition", "offset", "why")),
        (
            (C10_DELIVERING, C10_DELIVERED),
            ("topic", "partition", *_OF_PLACE, "highwater", "credit"),
        ),
        ((C11_TAKEN, C12_SKIPPED, C14_FORKED), ("topic", "partition", *_OF_PLACE)),
        ((C13_ENDED,), ("topic", "partition", "why")),
    )
    for step in edges
}
"""The names of the facts that come with each step."""
