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
"""The name and version of a client program.  It is shown for each of its subscriptions."""

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
"""The same, where a register begins with what a peer tells: it has to count on from there."""

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
"""What a peer may send before it has said who it is (a token fits well)."""

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

SUBSCRIPTIONS_MAX: Final = 1_000
"""Subscriptions of one connection."""

CONNECTIONS_MAX: Final = 10_000
"""Connections of one node; beyond that new ones are refused at once.  A process that may open fewer
files has fewer: half of those are for the files of its logs."""

CONNECTIONS_MIN: Final = 16
"""A process that may open next to nothing tries so many all the same."""

OWN_DESCRIPTORS: Final = 32
"""Files that a process may open and that are neither for connections that it accepts nor for logs:
for its listeners, its own connections to other nodes, directories that are synced, and what Python
opens."""

RESERVED_PLACES_SHARE: Final = 8
"""One of so many connections of a node is for those that have not said yet who they are.  Clients,
nodes and operators leave it free, so the next node or operator finds a place."""

RESERVED_PLACES_MAX: Final = 64
"""But no more than so many: what a crowd needs, of those that connect while one shakes hands."""

OUTBOX_BYTES_MAX: Final = 4 * MIB
"""What may wait for one connection's writer before subscriptions pause.  A single reply
may exceed it, so a connection holds at most this plus one message."""

MEMORY_BUDGET_BYTES: Final = 128 * MIB
"""What the connections of a node may use together for messages that wait to be sent, messages
that have not come completely, subscriptions and waiting fetches, unless its operator says
otherwise.  See `octopi.transport.memory_pool` for how it is shared."""

MEMORY_BUDGET_BYTES_MIN: Final = 96 * MIB
"""With less, loans and allowances would leave nothing to share."""

MEMORY_ALLOWANCE_BYTES: Final = KIB // 2
"""A connection may hold so much each way whatever all others hold: a few small messages.  Nothing
is counted below this."""

MEMORY_LOAN_BYTES: Final = MESSAGE_BYTES_MAX + MIB
"""One connection at a time may hold so much beyond its share: the largest message, and what was
read behind it."""

GRANT_BYTES: Final = 64 * KIB
"""Whoever waited for memory to send records gets so much of it, or what one record needs: large
enough that the work for a message is not what counts."""

WAITING_TASK_MEMORY_BYTES: Final = 6 * KIB
"""What a subscription, or a fetch that waits, costs a broker: 4.5 KiB of objects by measurement,
mostly its task, and what the allocator adds.  The first one of a connection counts as a part of
that."""

LIST_MEMORY_BYTES: Final = MIB
"""A request for a list waits until there is room for so much; most lists are shorter."""

CONNECTIONS_PER_TOKEN_MAX: Final = 1_000
"""Connections of one token to one node, unless its operator says otherwise: one that got lost
can't take all of `CONNECTIONS_MAX`."""

QUOTA_RUNS_COUNT: Final = 256
"""A broker remembers where the bytes of a subject with a quota lie in about so many stretches."""

QUOTA_RUN_BYTES_MIN: Final = 64 * KIB
"""None of which is shorter than this."""

QUOTA_LOOK_INTERVAL_S: Final = 1.0
"""How often a broker looks, for a subject whose quota is used up, whether some of it is free."""

PATTERNS_PER_VERB_MAX: Final = 50
"""Patterns of topics that a token grants a verb for; all of them are tried for each new topic."""

DECISIONS_KEPT_COUNT: Final = 1_000
"""What a connection was allowed is remembered for so many topics."""

TOKEN_REFRESH_SHARE: Final = 0.8
"""A client asks for a fresh token when so much of the old one's time is over."""

WALL_CLOCK_CHECK_S: Final = 60.0
"""The wall clock, by which tokens end, may jump: it is looked at so often at least."""

HANDSHAKE_TIMEOUT_S: Final = 5.0
"""From accepting a connection to its hello: a slow-loris gets this long."""

HTTP_IDLE_S: Final = 60.0
"""An HTTP connection may stay open so long between two requests: longer than dashboards and
scrapers pause."""

SEND_TIMEOUT_S: Final = 20.0
"""A peer that takes nothing for so long is gone or hung; its connection is closed."""

CLOSE_TIMEOUT_S: Final = 2.0
"""The WebSocket closing handshake is a courtesy."""

CONNECT_TIMEOUT_S: Final = 5.0
"""Client side: TCP, upgrade and welcome together."""

HEARTBEAT_INTERVAL_S: Final = 5.0
"""Ordinary connections: a heartbeat goes out when nothing else did for so long."""

HEARTBEAT_TIMEOUT_S: Final = 20.0
"""Ordinary connections: silence for so long ends them."""

MEMBERSHIP_HEARTBEAT_INTERVAL_S: Final = 0.25
"""Broker to register and back, on their own connection, where silence means failure."""

MEMBERSHIP_HEARTBEAT_TIMEOUT_S: Final = 1.0
"""Silence for so long makes a broker dead to the register."""

STRANGERS_LINE_INTERVAL_S: Final = 1.0
"""Of each kind of line that strangers cause a node's log has one in this time; the next one says
how many were left out."""

TURN_S: Final = 0.002
"""What a connection does with what it was sent lasts about so long; then others have their turn.
A single request may take longer."""

ROUND_S: Final = 0.004
"""Connections of clients together work about so long in one round of a node's event loop, and so
do those of other nodes; then the rest of the node has its turn.  A multiple of `TURN_S`."""

STRANGERS_ROUND_S: Final = 0.002
"""The same for those that connect, or ask over HTTP."""

FAIR_HEAD_START_S: Final = 0.005
"""Whoever comes back after a pause goes before the others for so much work, and no more: what it
left to others before is not saved up."""

USELESS_FRAMES_FREE: Final = 200
"""Frames of no use that a connection may send at once, such as heartbeats, pings and empty
fragments; beyond that it has to pause, and is not read meanwhile."""

USELESS_FRAMES_PER_S: Final = 500
"""So many a second are free for each connection beside those."""

USELESS_FRAMES_PER_TURN: Final = 20
"""A turn ends with so many of them, however short it was."""

USELESS_FRAME_S: Final = 0.001
"""Where connections wait for one another, each such frame counts as so much work of the one that
sent it: those that ask for something go first."""

USELESS_FRAMES_PER_S_ALL: Final = 10_000
"""So many a second a node reads at most of all connections that have to pause: about a tenth of
its time."""

DENIAL_FRAMES: Final = 20
"""A message that is not granted counts as so many frames of no use: a token takes time to check."""

PING_FRAMES: Final = 4
"""A ping counts as so many of them: it has to be answered."""

FRAGMENT_BYTES_MIN: Final = 64
"""A smaller fragment of a message counts as a frame of no use."""

SHUTDOWN_GRACE_S: Final = 5.0
"""What is in flight may finish within this when a node stops."""

FETCH_WAIT_S_MAX: Final = 30.0
"""How long a fetch may ask the broker to wait for new records."""

FETCH_BYTES_DEFAULT: Final = 512 * KIB

REPLICA_LAG_S_MAX: Final = 1.0
"""An in-sync follower that has not reached, for so long, what the leader had is proposed to
leave the in-sync set.  Produces wait for it until then."""

FOLLOW_WINDOW_BYTES: Final = 8 * MIB
"""Records of one log on their way to a follower, sent but not acknowledged."""

FOLLOW_WINDOW_MESSAGES: Final = 2
"""Messages with such records, but for full ones.  So small ones grow while they wait, and who
needs a turn for each comes to an end of them."""

CATCH_UP_SLOWDOWN_MAX: Final = 0.15
"""The share of their rate that producers may lose while followers catch up.  Somewhat less
than the fifth that nobody should lose, as it is measured by samples."""

CATCH_UP_GAIN: Final = 0.2
"""Of what a follower that catches up is sent, so much has to bring it nearer to the log's end,
whatever producers lose: a leader sends it at least 1.25 bytes for each that they append.  Then
it is back before they have appended four times what it missed, if it can take that much."""

REPLICA_TICK_S: Final = 0.1
"""How often a replica looks after its in-sync set, and repeats what the register has not
answered."""

NOTES_SYNC_S: Final = 1.0
"""What is noted of a replica's logs is on the device so long after it was noted, at the latest;
marks that moved without a flush are noted as often."""

ACCEPT_WAIT_S: Final = 0.25
"""How long the register waits for further replicas to accept an epoch when one could lead."""

ACCEPTANCES_WAIT_S: Final = 3.0
"""An operator who asks what replicas hold waits so long for those that run to say it."""

HAND_OVER_TIMEOUT_S: Final = 10.0
"""A change of leadership that an operator or the balance asks for is given up after this."""

HAND_OVER_ALL_S: Final = 5.0
"""A broker that was asked to stop waits so long for others to lead what it leads."""

HAND_OVERS_MAX: Final = 16
"""Of one broker, so many partitions change their leaders at a time.  A partition stands still until
the devices have what its replicas promise, so with more each would stand still for longer."""

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
"""A broker has owed a client an answer for so long: the client asks the register whether it
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
"""When the register answers that nobody leads, a client asks again so soon, and then half as
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
assert HEARTBEAT_INTERVAL_S * 3 <= HEARTBEAT_TIMEOUT_S
assert MEMBERSHIP_HEARTBEAT_INTERVAL_S * 3 <= MEMBERSHIP_HEARTBEAT_TIMEOUT_S
assert TURN_S <= ROUND_S < MEMBERSHIP_HEARTBEAT_INTERVAL_S / 10
assert LINK_GRACE_S > BACKOFF_S_FIRST * (LINK_TRIES + 2)
assert LINK_GRACE_S < MEMBERSHIP_HEARTBEAT_TIMEOUT_S
assert GATHER_S > MEMBERSHIP_HEARTBEAT_TIMEOUT_S + BACKOFF_S_MAX / 2
assert FETCH_WAIT_S_MAX > REQUEST_TIMEOUT_S
assert QUESTION_INTERVAL_S < LEADER_SILENCE_S < MEMBERSHIP_HEARTBEAT_TIMEOUT_S
assert READER_SILENCE_S + LEADER_SILENCE_S > MEMBERSHIP_HEARTBEAT_TIMEOUT_S
