"""Every bound and default, with its unit and its reason.

Units come last in a name: ``_bytes``, ``_s`` (seconds), ``_ms``, ``_count``.  What an
operator may change is a default here and an option of the component that uses it;
the rest is part of the formats and fixed.  Relations between bounds are asserted at
the end of the file, at import.
"""

from __future__ import annotations

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB

# --- names ---------------------------------------------------------------------------

TOPIC_NAME_BYTES_MAX: Final = 200
"""A folder's name may have 255 bytes on every file system we run on; the rest is ours."""

ADDRESS_BYTES_MAX: Final = 300
"""A host name has at most 253 characters; scheme, port and brackets come on top."""

ANCHOR_BYTES_MAX: Final = 240
"""Six pairs of numbers of 63 bits; see `octopi.position`."""

TEXT_BYTES_MAX: Final = 1000
"""The text of an error: read by people, so short."""

AGENT_BYTES_MAX: Final = 200
"""The name and version of a client program.  It is shown for each of its readings."""

ID_CHARACTERS: Final = 16
"""Of a cluster and of a topic: 64 bits in hexadecimal."""

NONCE_BYTES_MAX: Final = 64
"""Of one life of a broker or register; 16 hexadecimal digits in practice."""

SEAL_BYTES_MAX: Final = 32
"""128 bits in hexadecimal: see `octopi.coordination.seals`."""

# --- numbers that peers tell ---------------------------------------------------------
# Nodes count on from what they are told, store it, and tell it to others.  A number that no
# cluster comes near is refused where the message is decoded: it would be at the end of its 63
# bits after one more step, or make a node reserve memory for what isn't there.

BROKER_ID_MAX: Final = 1_000_000
"""The register gives ids from 1 on, and gives none a second time."""

BROKERS_MAX: Final = 1_000
"""Brokers that a register knows, removed ones not counted.  A partition's record lists its
replicas in lists of this length, and orders list all brokers."""

COUNTED_MAX: Final = (1 << 40) - 1
"""Epochs of a partition, versions of an in-sync set, starts of a broker and of a register: they
are counted up one by one.  One a millisecond would take 34 years."""

TOLD_MAX: Final = COUNTED_MAX // 2
"""The same, where a node begins with what a peer or a member tells: it has to count on from
there."""

OFFSET_MAX: Final = 1 << 60
"""The end of a log that a peer tells: an exbibyte.  Bytes are added to it afterwards."""

# --- records -------------------------------------------------------------------------

RECORD_BYTES_MAX: Final = 8 * MIB
"""One record, header included.  A walk over a log never has to hold more than this."""

BATCH_BYTES_MAX: Final = 16 * MIB
"""The records of one produce request or one delivery."""

HEADER_COUNT_MAX: Final = 1000
"""Headers of one message; they are for a few words of context, not for data."""

HEADER_NAME_BYTES_MAX: Final = 1000

# --- messages and connections --------------------------------------------------------

MESSAGE_BYTES_MAX: Final = BATCH_BYTES_MAX + 64 * KIB
"""One WebSocket message: a full batch and the fields around it."""

CBOR_DEPTH_MAX: Final = 8
"""Our deepest message nests five containers."""

RECORDS_PER_PRODUCE_MAX: Final = 10_000
"""Records of one produce: a request is carried out in one turn, and a record takes one to three
microseconds however small it is."""

RECORDS_PER_REPLICATE_MAX: Final = 16_384
"""Records of one message of a leader to a follower: `FETCH_BYTES_DEFAULT` of the smallest ones are
12,788."""

LIST_COUNT_MAX: Final = 10_000
"""Entries of any list in a message; longer answers come in pages."""

HELLO_BYTES_MAX: Final = 4 * KIB
"""Bytes of a hello, the first message of a peer; a token fits in."""

JOIN_SECRET_BYTES: Final = 32
"""A join secret of a cluster: as many as its proofs have."""

JOIN_NONCE_BYTES: Final = 32
"""What each side adds to a proof, so that it is good for one connection."""

JOIN_SECRETS_MAX: Final = 4
"""Join secrets that a node takes at once.  Two are enough to exchange one."""

REQUESTS_IN_FLIGHT_MAX: Final = 64
"""Requests a connection may have unanswered; beyond that its reader pauses.  Fetches that wait
for records do not count: they have a bound of their own."""

WAITING_FETCHES_MAX: Final = 256
"""Fetches of one connection that wait for records; one more is refused.  Each is a task of the
broker, of a few KiB."""

READINGS_MAX: Final = 1_000
"""Readings of one connection."""

CONNECTIONS_MAX: Final = 10_000
"""Connections of one node; beyond that new ones are refused at once.  A process that may open fewer
files has fewer: half of those are for the files of its logs."""

CONNECTIONS_MIN: Final = 16
"""The least value of `CONNECTIONS_MAX`, even if the process may open fewer files."""

OWN_DESCRIPTORS: Final = 32
"""Files that a process may open and that are neither for connections that it accepts nor for logs:
for its listeners, its own connections to other nodes, directories that are synced, and what Python
opens."""

RESERVED_PLACES_SHARE: Final = 8
"""One of this many connection slots of a node is reserved for peers that have not authenticated
yet.  So a node or an operator can connect even while clients use all other slots."""

RESERVED_PLACES_MAX: Final = 64
"""Reserved slots of a node, at most: enough for the peers that connect during one handshake."""

OUTBOX_BYTES_MAX: Final = 4 * MIB
"""What may wait for one connection's writer before readings pause.  A single reply
may exceed it, so a connection holds at most this plus one message."""

MEMORY_BUDGET_BYTES: Final = 128 * MIB
"""What the connections of a node may use together for messages that wait to be sent, messages
that have not come completely, readings and waiting fetches, unless its operator says
otherwise.  See `octopi.transport.memory_pool` for how it is shared."""

MEMORY_BUDGET_BYTES_MIN: Final = 96 * MIB
"""With less, loans and allowances would leave nothing to share."""

MEMORY_ALLOWANCE_BYTES: Final = KIB // 2
"""Bytes that a connection may always hold in each direction: a few small messages.  Smaller amounts
are not counted."""

MEMORY_LOAN_BYTES: Final = MESSAGE_BYTES_MAX + MIB
"""Bytes that one connection at a time may hold beyond its share: the largest message, and the bytes
that were read behind it."""

GRANT_BYTES: Final = 64 * KIB
"""Bytes granted to a task that waited for memory to send records, or the size of one larger record.
Large enough that the cost per message does not matter."""

WAITING_TASK_MEMORY_BYTES: Final = 6 * KIB
"""Memory of a broker for a reading or a waiting fetch: 4.5 KiB of objects by measurement,
mostly its task, and the overhead of the allocator.  The first one of a connection counts as a part
of that."""

LIST_MEMORY_BYTES: Final = MIB
"""Memory that a request for a list waits for; most lists are shorter."""

CONNECTIONS_PER_TOKEN_MAX: Final = 1_000
"""Connections of one token to one node, unless its operator says otherwise: one that got lost
can't take all of `CONNECTIONS_MAX`."""

QUOTA_RUNS_COUNT: Final = 256
"""Ranges of offsets, approximately, in which a broker remembers the stored bytes of a subject with
a quota."""

QUOTA_RUN_BYTES_MIN: Final = 64 * KIB
"""The least length of such a range."""

QUOTA_LOOK_INTERVAL_S: Final = 1.0
"""How often a broker checks whether a subject with a used-up quota has room again."""

PATTERNS_PER_VERB_MAX: Final = 50
"""Patterns of topics that a token grants a verb for; all of them are tried for each new topic."""

DECISIONS_KEPT_COUNT: Final = 1_000
"""Authorization decisions that are cached per connection."""

TOKEN_REFRESH_SHARE: Final = 0.8
"""A client requests a fresh token after this share of the old token's lifetime."""

WALL_CLOCK_CHECK_S: Final = 60.0
"""How often at least the wall clock, which may jump, is read to see whether tokens have expired."""

HANDSHAKE_TIMEOUT_S: Final = 5.0
"""From accepting a connection to its hello: a slow-loris gets this long."""

HTTP_IDLE_S: Final = 60.0
"""An HTTP connection is closed after this long without a request: longer than the pauses of
dashboards and scrapers."""

SEND_TIMEOUT_S: Final = 20.0
"""A connection is closed if its peer reads nothing for this long."""

CLOSE_TIMEOUT_S: Final = 2.0
"""Time limit of the WebSocket closing handshake; then the connection is aborted."""

CONNECT_TIMEOUT_S: Final = 5.0
"""Client side: TCP, upgrade and welcome together."""

HEARTBEAT_INTERVAL_S: Final = 5.0
"""Ordinary connections: a heartbeat is sent after this long without another message."""

HEARTBEAT_TIMEOUT_S: Final = 20.0
"""Ordinary connections: closed after this long without a message from the peer."""

MEMBERSHIP_HEARTBEAT_INTERVAL_S: Final = 0.25
"""Broker to register and back, on their own connection, where silence means failure."""

MEMBERSHIP_HEARTBEAT_TIMEOUT_S: Final = 1.0
"""The register considers a broker dead after this long without a message."""

STRANGERS_LINE_INTERVAL_S: Final = 1.0
"""Of each kind of log line that unauthenticated peers cause, a node logs one in this time; the next
one counts those that were left out."""

TURN_S: Final = 0.002
"""Time for which a connection processes received messages before others have their turn, about.  A
single request may take longer."""

ROUND_S: Final = 0.004
"""Time for which all connections of clients together, and likewise those of other nodes, work in
one round of a node's event loop, about; then the rest of the node has its turn.  A multiple of
`TURN_S`."""

STRANGERS_ROUND_S: Final = 0.002
"""The same for connections in their handshake, and for HTTP requests."""

FAIR_HEAD_START_S: Final = 0.005
"""Work for which a connection that comes back after a pause goes before the others.  Longer pauses
earn no more."""

USELESS_FRAMES_FREE: Final = 200
"""Useless frames that a connection may send at once, such as heartbeats, pings and empty
fragments; beyond that it has to pause, and is not read meanwhile."""

USELESS_FRAMES_PER_S: Final = 500
"""Further useless frames per second that each connection may send without a pause."""

USELESS_FRAMES_PER_TURN: Final = 20
"""A turn ends after this many useless frames, however short it was."""

USELESS_FRAME_S: Final = 0.001
"""Work that a useless frame counts as for its sender while connections wait for one another; so
connections with requests go first."""

USELESS_FRAMES_PER_S_ALL: Final = 10_000
"""Useless frames per second that a node reads of all pausing connections together, at most: about a
tenth of its time."""

DENIAL_FRAMES: Final = 20
"""Useless frames that a forbidden message counts as: checking it takes time."""

PING_FRAMES: Final = 4
"""Useless frames that a ping counts as: it has to be answered."""

FRAGMENT_BYTES_MIN: Final = 64
"""A smaller fragment of a message counts as a useless frame."""

SHUTDOWN_GRACE_S: Final = 5.0
"""Time for requests in flight to finish when a node stops."""

FETCH_WAIT_S_MAX: Final = 30.0
"""The longest time that a fetch may wait at the broker for new records."""

FETCH_BYTES_DEFAULT: Final = 512 * KIB

REPLICA_LAG_S_MAX: Final = 1.0
"""The leader proposes to remove an in-sync follower from the in-sync set if for this long it has
not reached the log end that the leader had.  Produce requests wait for it until then."""

FOLLOW_WINDOW_BYTES: Final = 8 * MIB
"""Bytes of one log's records that are sent to a follower but not acknowledged, at most."""

FOLLOW_WINDOW_MESSAGES: Final = 2
"""Messages with such records, full ones not counted, at most.  So small messages grow while they
wait, and a follower that needs a turn for each can keep up."""

CATCH_UP_SLOWDOWN_MAX: Final = 0.15
"""The share of their rate that producers may lose while followers catch up.  Somewhat less than the
promised fifth, because it is measured by samples."""

CATCH_UP_GAIN: Final = 0.2
"""The share of the bytes sent to a follower that has to reduce its lag, whatever producers lose:
the leader sends at least 1.25 bytes for each byte that producers append.  So a follower that can
receive that much is in sync before producers have appended four times what it missed."""

REPLICA_TICK_S: Final = 0.1
"""How often a replica checks its in-sync set, and repeats proposals that the register has not
answered."""

NOTES_SYNC_S: Final = 1.0
"""What is noted of a replica's logs is on the device so long after it was noted, at the latest;
marks that moved without a flush are noted as often."""

ACCEPT_WAIT_S: Final = 0.25
"""How long the register waits for further replicas to accept an epoch when one could lead."""

ACCEPTANCES_WAIT_S: Final = 3.0
"""How long `partitions recover` waits for running replicas to report what they hold."""

HAND_OVER_TIMEOUT_S: Final = 10.0
"""Time-out of a change of leadership that an operator or rebalancing requested."""

HAND_OVER_ALL_S: Final = 5.0
"""How long a stopping broker waits for others to lead its partitions."""

HAND_OVERS_MAX: Final = 16
"""Partitions of one broker whose leaders change at the same time, at most.  A partition accepts no
records until its replicas have flushed, so with more of them each would wait longer."""

FINISH_S: Final = 1.0
"""A register that was asked to stop finishes changes of leaders that are under way within this."""

PREPARE_S: Final = 1.0
"""What has to be done before a leadership changes hands is given up after this."""

MOVE_TIMEOUT_S: Final = 3600.0
"""How long a joining replica may take to catch up before its move is given up."""

REBALANCE_INTERVAL_S: Final = 5.0
"""Pause between two steps of rebalancing; longer than a broker's restart usually takes."""

DISK_ROOM_BYTES_MIN: Final = 1024 * 1024
"""A disk that does not take a file of so many bytes is full."""

DISK_LOOK_INTERVAL_S: Final = 0.5
"""How often a broker looks whether its full disk has space again."""

DISK_LINE_INTERVAL_S: Final = 10.0
"""A broker's log says at most so often that its disk is full or fails."""

STATUS_INTERVAL_S: Final = 5.0
"""How often a broker tells the register how much room its disk has, where nothing else is new."""

ORDER_RETRY_S: Final = 0.5
"""What a broker could not carry out the register orders again after this, and then after twice
as long each time, up to `ORDER_RETRY_S_MAX`."""

ORDER_RETRY_S_MAX: Final = 4.0

UNDONE_REASON_BYTES_MAX: Final = 300
"""A broker's reason for not carrying out a part of an order is cut to this: an answer may have as
many as an order has parts."""

LINK_GRACE_S: Final = 0.5
"""A broker whose connection to the register broke, and whose address answers, has so long to
make a new one before the register takes it for gone."""

LINK_TRIES: Final = 3
"""A broker that lost its register tries so often without waiting for a random time."""

REMINDER_S: Final = 1.0
"""A replica that has not accepted an announced epoch hears of it again after this, and then after
twice as long each time, up to `REMINDER_S_MAX`."""

REMINDER_S_MAX: Final = 8.0

RELIEF_PAUSE_S: Final = 1.0
"""A leader that takes no records is replaced at once; the next one of that partition, if it takes
none either, after this, and then after twice as long each time, up to `RELIEF_PAUSE_S_MAX`."""

RELIEF_PAUSE_S_MAX: Final = 30.0

RECONNECT_GRACE_S: Final = 3.0
"""A restarted register gives brokers so long to come back before it replaces leaders."""

# --- storage -------------------------------------------------------------------------

SEGMENT_BYTES_MAX: Final = 256 * MIB
"""A segment is closed beyond this; retention and verification work by segment."""

INTERNAL_SEGMENT_BYTES_MAX: Final = 1 * MIB
"""The same for internal logs, from which whole segments are removed behind a snapshot."""

INTERNAL_KEY_BYTES_MAX: Final = 1 * KIB
INTERNAL_VALUE_BYTES_MAX: Final = 1 * MIB
"""Key and value of one entry of an internal log."""

SNAPSHOT_BYTES_MIN: Final = 1 * MIB
SNAPSHOT_FACTOR: Final = 4
"""A snapshot of an internal log is due when the log is longer, from the last snapshot's begin on,
than `SNAPSHOT_BYTES_MIN` and than `SNAPSHOT_FACTOR` times its live entries."""

SNAPSHOT_PIECE_BYTES: Final = 64 * KIB
"""A leader that makes a snapshot appends about this much at a time, or one entry that is larger."""

SEGMENT_AGE_S_MAX: Final = 7 * 24 * 3600.0
"""A segment is closed when its first record is so old, so that retention by age ends."""

INDEX_INTERVAL_BYTES: Final = 64 * KIB
"""Distance of index entries: what a look-up by offset has to walk at most, more or less."""

DELETION_RETRY_S: Final = 5.0
"""How long a broker waits before it tries again to delete files that it could not delete."""

RETIRED_KEEP_S: Final = 24 * 3600.0
"""How long a broker keeps a replica that it gave up."""

RETIRED_COUNT_INTERVAL_S: Final = 600.0
"""How often a broker notes for how long it has kept a retired replica; or more often, if that is
to be kept for a short time."""

RETIRED_FILES_PER_TURN: Final = 100
"""Files of retired replicas that a broker removes at a time, every `DELETION_RETRY_S`."""

WALKS_PER_NODE_MAX: Final = 4
"""Look-ups by time or count that a broker does at a time, one of each connection; others wait."""

SLICE_BYTES: Final = 128 * KIB
"""What a look-up, or the rebuilding of an index, reads before other tasks have their turn: with
the smallest records two to four milliseconds of work.  A single record may be longer."""

FLUSH_MESSAGES: Final = 50_000
FLUSH_BYTES: Final = 64 * MIB
FLUSH_INTERVAL_S: Final = 1.0
"""Flush after so many messages, bytes or seconds, whichever comes first: what a power
failure can take from a single replica."""

CHECKPOINT_BYTES: Final = 64 * MIB
"""Bounds what the recovery of a log has to scan, to about a second's work."""

RETENTION_CHECK_INTERVAL_S: Final = 60.0

PRODUCERS_PER_LOG_MAX: Final = 10_000
"""Producers remembered per log for the detection of duplicates; the one that has been
silent longest is forgotten first (and is told so if it comes back)."""

RECENT_BATCHES_COUNT: Final = REQUESTS_IN_FLIGHT_MAX
"""Receipts remembered per producer and log: as many as it can have unanswered."""

REQUEST_IDS_PER_LOG_MAX: Final = 4_096
"""Request ids of version 1 records remembered per log, the newest ones: as many as 64 connections
can have unanswered with one record each."""

# --- register ------------------------------------------------------------------------

REPLICA_COUNT_DEFAULT: Final = 3
"""Replicas of a new partition; fewer while there are fewer brokers."""

PARTITION_COUNT_DEFAULT: Final = 8
"""Partitions of a new cluster."""

PARTITIONS_PER_TOPIC_MAX: Final = 1_000

REPLACED_TOPICS_MAX: Final = 100
"""Deleted topics of its name that a topic remembers."""

UNSERVED_TOPICS_MAX: Final = 1_000
"""Topics that a broker holds and the register doesn't serve: of each broker, and in one answer."""

TOPIC_COUNT_MAX: Final = 1_000_000
"""Topics of one cluster; the register holds about 1 KiB of memory for each."""

GATHER_S: Final = 2.0
"""A register that starts listens at most so long before it decides anything: brokers tell it
what existed.  It waits until all have come that its journal knows; with an empty disk it knows
none, and waits as long as it may."""

LIVES_IN_DOUBT_MAX: Final = 64
"""Starts in a row of a broker that never heard whether the register let it in.  Beyond that the
oldest are forgotten; at worst the broker is then taken for one that lost its data."""

EVENTS_KEPT_COUNT: Final = 1_000
"""Decisions and observations that the register remembers for people to look at."""

JOURNAL_SNAPSHOT_ENTRIES: Final = 100_000
"""The register's journal is folded into a snapshot after so many entries."""

# --- durable subscriptions -----------------------------------------------------------

SUBSCRIPTIONS_PER_PARTITION_MAX: Final = 10_000
"""Durable subscriptions whose coordinator is the leader of one partition, and marks that one
partition keeps: about 1 KiB of memory each."""

SUBSCRIPTION_SESSIONS_MAX: Final = 2_000
"""Logs and groups of durable subscriptions that one connection is attached to or has joined."""

MEMBERS_PER_SUBSCRIPTION_MAX: Final = 1_000

SESSION_TIMEOUT_MS_MIN: Final = 1_000
"""Of a member of a subscription; a third of it is between its signs of life."""

SESSION_TIMEOUT_MS_MAX: Final = 300_000

MARK_BYTES_PER_S: Final = 64 * KIB
"""What the marks of a subscription in one log may add to the partition's log in a second, where
nobody asks for confirmations."""

MARKS_COUNT: Final = 1_000
"""A mark is stored after so many messages were marked, if it was not stored before."""

DEAL_COUNT_MAX: Final = 1_000
"""Messages of a queue that are dealt together."""

SETTLE_COUNT_MAX: Final = 1_000
"""Deliveries that a member answers together."""

DELAY_MS_MAX: Final = 12 * 3600 * 1000
"""A message that is given back waits for at most so long."""

ATTEMPTS_MAX: Final = 100
"""Deliveries of a message of a queue that gives messages up."""

LETTERS_PENDING_MAX: Final = 32
"""Messages of a queue and log that are about to become dead letters; the next ones wait.  Fewer
than the receipts that the log of the dead-letter topic remembers."""

LETTER_REASON_BYTES_MAX: Final = 200
"""Of the reason why a message became a dead letter; the rest is cut off."""

QUEUE_WINDOW_MAX: Final = 10_000
"""Messages behind its mark that a queue remembers: about 300 bytes of memory each."""

QUEUE_PARTITIONS_MAX: Final = 64
"""Partitions of the topic of a queue: each of its members attaches to all of them."""

SKIPPED_RANGES_MAX: Final = 16
"""Lost ranges of a log that a subscription remembers; beyond that the oldest are forgotten."""

RESET_WAIT_S: Final = 60.0
"""A reset that nobody finishes is given up after this, and the log is assigned again."""

# --- pages ---------------------------------------------------------------------------

LOOK_INTERVAL_S: Final = 0.5
"""A node asks its cluster for what pages show at most so often."""

LOOK_SHARE_MAX: Final = 0.2
"""And spends at most this share of the time on it."""

PAGE_BYTES_MAX: Final = 512 * KIB
"""A page of JSON ends when it has so much; a single entry may be longer."""

PAGE_SLICE_COUNT: Final = 50
"""Entries that are made for a page before other tasks have their turn: one or two milliseconds."""

PAGES_AT_A_TIME_MAX: Final = 64
"""Pages about the cluster that a node makes and sends at a time; beyond that it answers 503."""

LOOK_TIMEOUT_S: Final = 2.0
"""A broker that doesn't answer a look within this is shown as silent."""

# --- clients -------------------------------------------------------------------------

LINGER_S: Final = 0.005
"""A batch waits so long for company.  Nothing waits while a connection is idle and the
caller waits for the receipt."""

CLIENT_BATCH_BYTES: Final = 128 * KIB
"""Where throughput stops growing with the batch, by measurement."""

BATCHES_IN_FLIGHT: Final = 8
"""Batches of one log on their way at a time."""

PRODUCER_BUFFER_BYTES: Final = 32 * MIB
"""Messages a producer holds before `submit` waits."""

DELIVERY_TIMEOUT_S: Final = 60.0
"""How long a message may try; after that its sender learns that it failed, or that the
outcome is unknown."""

REQUEST_TIMEOUT_S: Final = 15.0
"""One request, one answer; after that the connection is given up."""

LEADER_SILENCE_S: Final = 0.4
"""A client has waited for a broker's answer for so long: the client asks the register whether it
still is the right one.  A healthy broker answers much sooner.  Together with the time in which
a hung one is replaced (a second to notice, a moment to choose) it stays below 1.5 s."""

READER_SILENCE_S: Final = 0.7
"""A broker that has delivered delivers nothing more for so long: a consumer has it give a sign
of life.  With the time that this may take, longer than the register needs to notice that it
hangs: the first question to the register finds it."""

SILENCE_GROWTH: Final = 1.4
"""A client asks again when the silence has grown by this factor: few questions, and whoever
waits adds less than half to the time in which nobody knew better.  What hung is replaced
1.05 s later at most, and the fourth question follows at 0.4 * 1.4 ** 3 = 1.1 s."""

QUESTION_INTERVAL_S: Final = 0.1
"""When the register answers that no broker leads, a client asks again so soon, and then half as
often each time; half as old an answer is good enough for all that it waits for."""

CONSUMER_WINDOW_BYTES: Final = 4 * MIB
"""Records on their way to a consumer or waiting in it, per partition."""

RECONNECT_TIMEOUT_S: Final = 60.0
"""How long a consumer looks for a broker before it reports that there is none."""

DRAIN_TIMEOUT_S: Final = 60.0
"""How long a client asks for a broker to be drained: a hand-over of each of its partitions."""

REDIRECTS_IN_A_ROW_MAX: Final = 2
"""Redirects that a client follows before it asks the register again: one for what it missed, one
for what happens meanwhile."""

BACKOFF_S_FIRST: Final = 0.05
BACKOFF_S_MAX: Final = 1.0
"""Retries wait a random time below a bound that doubles from first to max."""

# --- relations -----------------------------------------------------------------------

assert RECORD_BYTES_MAX <= BATCH_BYTES_MAX < MESSAGE_BYTES_MAX
assert HELLO_BYTES_MAX < MESSAGE_BYTES_MAX
assert MEMORY_BUDGET_BYTES >= MEMORY_BUDGET_BYTES_MIN
assert MEMORY_BUDGET_BYTES_MIN * 3 // 8 > (
    MEMORY_LOAN_BYTES + 2 * CONNECTIONS_MAX * MEMORY_ALLOWANCE_BYTES + RECORD_BYTES_MAX
)
assert CLIENT_BATCH_BYTES <= BATCH_BYTES_MAX <= PRODUCER_BUFFER_BYTES
assert BATCHES_IN_FLIGHT <= RECENT_BATCHES_COUNT
assert LETTERS_PENDING_MAX < RECENT_BATCHES_COUNT
assert HEARTBEAT_INTERVAL_S * 3 <= HEARTBEAT_TIMEOUT_S
assert MEMBERSHIP_HEARTBEAT_INTERVAL_S * 3 <= MEMBERSHIP_HEARTBEAT_TIMEOUT_S
assert TURN_S <= ROUND_S < MEMBERSHIP_HEARTBEAT_INTERVAL_S / 10
assert LINK_GRACE_S > BACKOFF_S_FIRST * (LINK_TRIES + 2)
assert LINK_GRACE_S < MEMBERSHIP_HEARTBEAT_TIMEOUT_S
assert GATHER_S > MEMBERSHIP_HEARTBEAT_TIMEOUT_S + BACKOFF_S_MAX / 2
assert FETCH_WAIT_S_MAX > REQUEST_TIMEOUT_S
assert QUESTION_INTERVAL_S < LEADER_SILENCE_S < MEMBERSHIP_HEARTBEAT_TIMEOUT_S
assert READER_SILENCE_S + LEADER_SILENCE_S > MEMBERSHIP_HEARTBEAT_TIMEOUT_S
