"""All bounds and defaults, with their units and reasons.

Units come last in a name: ``_bytes``, ``_s`` (seconds), ``_ms``, ``_count``.  For a value that an
operator may change, this file has the default, and the component that uses it has an option.  All
other values are fixed.  Relations between bounds are asserted at the end of the file, at import.
"""

from __future__ import annotations

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB

# --- names ---------------------------------------------------------------------------

TOPIC_NAME_BYTES_MAX: Final = 200
"""Linux file systems allow 255 bytes in the name of a folder; the rest is for suffixes."""

ADDRESS_BYTES_MAX: Final = 300
"""A host name has at most 253 characters; scheme, port and brackets are added."""

ANCHOR_BYTES_MAX: Final = 240
"""Six pairs of numbers of 63 bits; see `octopi.position`."""

TEXT_BYTES_MAX: Final = 1000
"""The text of an error.  It is short, since people read it."""

AGENT_BYTES_MAX: Final = 200
"""The name and version of a client program.  It is shown for each of its readings."""

CONNECTION_NAME_BYTES_MAX: Final = 200
"""What a program calls its connections.  It is shown for each of its readings."""

HOST_LABEL_BYTES_MAX: Final = 253
"""The label of a broker's machine: as long as a host name can be."""

CONTENT_TYPE_BYTES_MAX: Final = 200
"""A content type of a stream; the longest registered ones have less than half of that."""

ID_CHARACTERS: Final = 16
"""The id of a cluster or a topic: 64 bits in hexadecimal."""

NONCE_BYTES_MAX: Final = 64
"""The nonce of an incarnation of a broker, or of a generation of a register; 16 hexadecimal digits
in practice."""

SEAL_BYTES_MAX: Final = 32
"""128 bits in hexadecimal: see `octopi.coordination.seals`."""

# --- numbers from peers ----------------------------------------------------------------
# Nodes count up numbers that peers send, store them, and send them to others.  Numbers far beyond
# those of any real cluster are refused where the message is decoded: otherwise one more step could
# exceed 63 bits, or a node would reserve memory for things that don't exist.

BROKER_ID_MAX: Final = 1_000_000
"""The register gives ids from 1 on, and gives none a second time."""

BROKERS_MAX: Final = 1_000
"""Brokers that a register knows, not counting removed ones.  The lists of replicas in a partition
record have at most this length, and orders list all brokers."""

COUNTED_MAX: Final = (1 << 40) - 1
"""Epochs of a partition, versions of an in-sync set, incarnations of a broker and generations of a
register, which are counted up one by one.  With one step each millisecond it would take 34 years to
reach this."""

TOLD_MAX: Final = COUNTED_MAX // 2
"""The greatest such number from a peer, or claim from a member, with which a node begins, since it
has to count up from there."""

WALL_MS_MAX: Final = 253_402_300_799_999
"""The last moment of the year 9999, in milliseconds since 1970: the last that Python can show."""

OFFSET_MAX: Final = 1 << 60
"""The end of a log that a peer may report: an exbibyte.  Bytes are added to it afterwards."""

# --- records -------------------------------------------------------------------------

RECORD_BYTES_MAX: Final = 8 * MIB
"""One record, including its header.  Code that walks over a log never holds more than this."""

BATCH_BYTES_MAX: Final = 16 * MIB
"""The records of one produce request or one delivery."""

HEADER_COUNT_MAX: Final = 1000
"""Headers of one message.  They are meant for a few words of context, not for data."""

HEADER_NAME_BYTES_MAX: Final = 1000

# --- messages and connections --------------------------------------------------------

MESSAGE_BYTES_MAX: Final = BATCH_BYTES_MAX + 64 * KIB
"""One WebSocket message: a full batch and the fields around it."""

CBOR_DEPTH_MAX: Final = 8
"""Containers within each other; the deepest message has five."""

RECORDS_PER_PRODUCE_MAX: Final = 10_000
"""Records of one produce request.  A request is carried out in one turn, and even the smallest
record takes one to three microseconds."""

RECORDS_PER_REPLICATE_MAX: Final = 16_384
"""Records of one message of a leader to a follower.  `FETCH_BYTES_DEFAULT` has at most 12,788
records, if they are the smallest."""

LIST_COUNT_MAX: Final = 10_000
"""Entries of any list in a message; longer answers come in pages."""

HELLO_BYTES_MAX: Final = 4 * KIB
"""Bytes of a hello, the first message of a peer; it has room for a token."""

JOIN_SECRET_BYTES: Final = 32
"""Bytes of a join secret, and of the proofs made with it."""

JOIN_NONCE_BYTES: Final = 32
"""Bytes that each side adds to a proof, so that the proof is valid for one connection only."""

JOIN_SECRETS_MAX: Final = 4
"""Join secrets that a node accepts at the same time.  Two are enough to replace one."""

REQUESTS_IN_FLIGHT_MAX: Final = 64
"""Unanswered requests of a connection; with more, its reader pauses.  Fetches that wait for records
are not counted: they have a bound of their own."""

WAITING_FETCHES_MAX: Final = 256
"""Fetches of one connection that wait for records; one more is refused.  Each is a task of the
broker, of a few KiB."""

READINGS_MAX: Final = 1_000
"""Readings of one connection."""

CONNECTIONS_MAX: Final = 10_000
"""Connections of one node; further ones are refused at once.  A process that may open fewer files
has fewer connections: half of the files are for its logs."""

CONNECTIONS_MIN: Final = 16
"""The least value of `CONNECTIONS_MAX`, even if the process may open fewer files."""

OWN_DESCRIPTORS: Final = 32
"""Descriptors of a process that are neither for accepted connections nor for logs: those of its
listeners, its connections to other nodes, directories that are synced, and files of Python."""

RESERVED_PLACES_SHARE: Final = 8
"""One of this many connection slots of a node is reserved for peers that have not authenticated
yet.  So a node or an operator can connect even while clients use all other slots."""

RESERVED_PLACES_MAX: Final = 64
"""Reserved slots of a node, at most: enough for the peers that connect during one handshake."""

OUTBOX_BYTES_MAX: Final = 4 * MIB
"""Bytes that may wait for one connection's writer before readings pause.  A single answer may
exceed it, so a connection holds at most this plus one message."""

MEMORY_BUDGET_BYTES: Final = 128 * MIB
"""Bytes that the connections of a node may use together for messages that wait to be sent, messages
that have not arrived completely, readings and waiting fetches; an operator may change it.  See
`octopi.transport.memory_pool` for how it is shared."""

MEMORY_BUDGET_BYTES_MIN: Final = 96 * MIB
"""The least memory budget.  With less, loans and allowances would leave nothing to share."""

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
"""Memory of a broker for a reading or a waiting fetch: 4.5 KiB of objects by measurement, mostly
its task, and the overhead of the allocator.  The first one of a connection is part of the
connection's own memory."""

LIST_MEMORY_BYTES: Final = MIB
"""Memory that a request for a list waits for; most lists are shorter."""

CONNECTIONS_PER_TOKEN_MAX: Final = 1_000
"""Connections of one token to one node, so that a stolen token can't take all of `CONNECTIONS_MAX`;
an operator may change it."""

QUOTA_RUNS_COUNT: Final = 256
"""Ranges of offsets, approximately, in which a broker remembers the stored bytes of a subject with
a quota."""

QUOTA_RUN_BYTES_MIN: Final = 64 * KIB
"""The least length of such a range."""

QUOTA_LOOK_INTERVAL_S: Final = 1.0
"""How often a broker checks whether a subject with a used-up quota has room again."""

PATTERNS_PER_VERB_MAX: Final = 50
"""Patterns of topics for which a token grants a verb; all of them are tried for each new topic."""

DECISIONS_KEPT_COUNT: Final = 1_000
"""Authorization decisions that are cached per connection."""

TOKEN_REFRESH_SHARE: Final = 0.8
"""A client requests a fresh token after this share of the old token's lifetime."""

WALL_CLOCK_CHECK_S: Final = 60.0
"""The longest time between two checks of the wall clock, which may jump, for expired tokens."""

HANDSHAKE_TIMEOUT_S: Final = 5.0
"""Time from accepting a connection to its hello.  A peer that sends slowly on purpose can hold a
slot no longer than this."""

HTTP_IDLE_S: Final = 60.0
"""An HTTP connection is closed after this long without a request: longer than the pauses of
dashboards and scrapers."""

HTTP_BODY_S: Final = 60.0
"""The body of an HTTP request arrives within this time, or the request is refused.  The longest
body needs a rate of 70 kB/s for that."""

HTTP_BODY_BYTES_MAX: Final = 4 * MIB
"""What one HTTP request writes to a stream; it is one batch, stored as a whole or not at all."""

HTTP_JSON_BYTES_MAX: Final = 1 * MIB
"""The same for JSON, which is parsed in one go: about 10 ms."""

HTTP_FORK_BYTES_MAX: Final = 8 * MIB
"""What a fork of a stream may inherit: it is copied as one batch, as a whole or not at all."""

HTTP_PAGE_BYTES: Final = 512 * KIB
"""What one HTTP answer has of a stream, unless its first record is larger."""

SSE_PAGE_BYTES: Final = 16 * KIB
"""What one server-sent event has of a stream, unless its first record is larger; a reader that
takes nothing holds twice that."""

LONG_POLL_S: Final = 15.0
"""How long a request waits for new content of a stream; proxies often wait for 30 s or 60 s."""

SSE_LIFE_S: Final = 60.0
"""How long server-sent events go on before the reader has to ask anew, as the protocol advises.
A token counts for so long after it has expired."""

STREAM_COMMIT_S: Final = 20.0
"""How long a write to a stream may wait for its commit."""

ROOM_S: Final = 5.0
"""How long an answer waits for memory.  Then its reader is told to ask again."""

FORWARD_S: Final = 5.0
"""How long a node tries to find the node that serves a request for a stream."""

HOPS_MAX: Final = 2
"""How often a request for a stream is forwarded: to the register, and from there to the leader."""

SEND_TIMEOUT_S: Final = 20.0
"""A connection is closed if its peer reads nothing for this long."""

CLOSE_TIMEOUT_S: Final = 2.0
"""Time limit of the WebSocket closing handshake; then the connection is aborted."""

CONNECT_TIMEOUT_S: Final = 5.0
"""Time limit of a client for TCP, WebSocket upgrade and welcome together."""

HEARTBEAT_INTERVAL_S: Final = 5.0
"""On connections of clients, a heartbeat is sent after this long without another message."""

HEARTBEAT_TIMEOUT_S: Final = 20.0
"""A connection of a client is closed after this long without a message from the peer."""

MEMBERSHIP_HEARTBEAT_INTERVAL_S: Final = 0.25
"""The same between broker and register, and between follower and leader."""

MEMBERSHIP_HEARTBEAT_TIMEOUT_S: Final = 1.0
"""The register considers a broker dead after this long without a message."""

STRANGERS_LINE_INTERVAL_S: Final = 1.0
"""For each event that unauthenticated peers can cause, a node logs one line in this time; the next
line says how many were left out."""

TURN_S: Final = 0.002
"""About how long a connection processes received messages before others have their turn.  A single
request may take longer."""

ROUND_S: Final = 0.004
"""About how long all connections of clients together, and likewise those of other nodes, work in
one round of a node's event loop; then the rest of the node has its turn.  A multiple of
`TURN_S`."""

STRANGERS_ROUND_S: Final = 0.002
"""The same for connections in their handshake, and for HTTP requests."""

FAIR_HEAD_START_S: Final = 0.005
"""How much work of a connection that becomes active after a pause goes before that of the others.
Longer pauses don't earn more."""

USELESS_FRAMES_FREE: Final = 200
"""Useless frames, such as heartbeats, pings and empty fragments, that a connection may send at
once.  After more of them the node stops reading the connection for a while."""

USELESS_FRAMES_PER_S: Final = 500
"""Further useless frames per second that each connection may send without a pause."""

USELESS_FRAMES_PER_TURN: Final = 20
"""A turn ends after this many useless frames, even if it was short."""

USELESS_FRAME_S: Final = 0.001
"""The time that a useless frame counts as when the node decides which connection is next, so that
connections with requests go first."""

USELESS_FRAMES_PER_S_ALL: Final = 10_000
"""The greatest number of useless frames per second that a node reads of all pausing connections
together: about a tenth of its time."""

DENIAL_FRAMES: Final = 20
"""A forbidden message counts as this many useless frames, since checking it takes time."""

PING_FRAMES: Final = 4
"""A ping counts as this many useless frames, since it has to be answered."""

FRAGMENT_BYTES_MIN: Final = 64
"""A smaller fragment of a message counts as a useless frame."""

SHUTDOWN_GRACE_S: Final = 5.0
"""Time for requests in flight to finish when a node stops."""

WORKER_SILENCE_S: Final = 30.0
"""A worker whose tasks have no turn for so long is killed and started again.  Its partitions have
other leaders by then; systemd's units give a node as long."""

FETCH_WAIT_S_MAX: Final = 30.0
"""The longest time that a fetch may wait at the broker for new records."""

FETCH_BYTES_DEFAULT: Final = 512 * KIB

LITE_PARTITIONS: Final = 3
"""The partitions of a topic that Octopi Lite creates."""

LITE_ATTEMPT_S: Final = 3.0
"""How long Octopi Lite waits for a message to be acknowledged, if the caller gives no time; longer
than the death of a leader takes."""

LITE_MEMBERS_MAX: Final = 64
"""The members of a group of Octopi Lite; each has connections of its own."""

LITE_POLL_MESSAGES_MAX: Final = 10_000
"""The messages of one partition that a poll of Octopi Lite returns."""

NEWEST_RECORDS_LOG_BYTES: Final = MIB
"""The newest batches of a log that are kept in memory: the longest that a producer's client sends,
and another one while that is on its way to followers and readers."""

NEWEST_RECORDS_BATCHES_COUNT: Final = 64
"""How many batches of a log these may be, so that joining them costs no more than reading them from
the page cache."""

NEWEST_RECORDS_BYTES: Final = 16 * MIB
"""The newest batches of all logs of a node together.  Followers and readers take a batch within
milliseconds, so 16 logs can be written at the highest rate, and any number at lower ones."""

REPLICA_LAG_S_MAX: Final = 1.0
"""The leader proposes to remove a follower from the in-sync set if the follower has not reached,
for this long, the log end that the leader had.  Produce requests wait for it until then."""

FOLLOW_WINDOW_BYTES: Final = 8 * MIB
"""The greatest size of the records of one log that a follower was sent and has not acknowledged."""

FOLLOW_WINDOW_MESSAGES: Final = 2
"""The greatest number of messages with such records, not counting full messages.  So small messages
grow while they wait, and a follower that needs a turn for each can keep up."""

HIGHWATER_PAUSE_S: Final = 0.002
"""How long the highwater mark of a log waits for records that take it along to a follower; a reader
at a follower waits for it.  Longer than a message that is acknowledged by itself takes, so that a
producer of such messages has none sent for the mark alone."""

CATCH_UP_SLOWDOWN_MAX: Final = 0.15
"""The share of their rate that producers may lose while followers catch up.  It is somewhat less
than the promised fifth, because it is measured by samples."""

CATCH_UP_GAIN: Final = 0.2
"""The share of the bytes sent to a follower that has to reduce its lag, even if producers lose more
than they may: the leader sends at least 1.25 bytes for each byte that producers append.  So a
follower that can receive that much is in sync before producers have appended four times as much as
it missed."""

REPLICA_TICK_S: Final = 0.1
"""How often a replica checks its in-sync set, and repeats proposals that the register has not
answered."""

NOTES_SYNC_S: Final = 1.0
"""The longest time until an entry in a replica's file of ends is on the device.  Highwater marks
that moved without a flush are entered as often."""

ACCEPT_WAIT_S: Final = 0.25
"""How long the register waits for further replicas to accept an epoch once one could lead."""

ACCEPTANCES_WAIT_S: Final = 3.0
"""How long `partitions recover` waits for running replicas to report what they hold."""

HAND_OVER_TIMEOUT_S: Final = 10.0
"""Time-out of a change of leadership that an operator or rebalancing requested."""

HAND_OVER_ALL_S: Final = 5.0
"""How long a stopping broker waits for others to lead its partitions."""

HAND_OVERS_MAX: Final = 16
"""The greatest number of partitions of one broker whose leaders change at the same time.  A
partition accepts no records until its replicas have flushed, so with more of them each would wait
longer."""

FINISH_S: Final = 1.0
"""How long a register that was asked to stop waits for changes of leaders that are under way."""

PREPARE_S: Final = 1.0
"""Time limit of a leader's preparations for a hand-over; then the hand-over begins without them."""

MOVE_TIMEOUT_S: Final = 3600.0
"""How long a joining replica may take to catch up before its move is given up."""

MOVE_RETRY_S: Final = 5.0
"""How long the register tries to end a move, if a replica in sync is away at that moment; longer
than a broker's restart usually takes."""

REBALANCE_INTERVAL_S: Final = 5.0
"""Pause between two steps of rebalancing; longer than a broker's restart usually takes."""

LOAD_INTERVAL_S: Final = 5.0
"""How often a broker reports the load of the partitions that it leads, and how often the register
looks whether to move one of them."""

LOAD_AVERAGE_S: Final = 60.0
"""The time constant of the average of a partition's load."""

LOAD_UNKNOWN_S: Final = 16.0
"""A broker that has reported no load for this long has none that is known: it is of an earlier
version, or away."""

SHED_RATIO: Final = 1.20
"""A leadership is moved while the most loaded broker has more than this times the average load.  A
partition that alone is more than this is hot."""

SHED_RATIO_OVER: Final = 1.10
"""A hot partition is hot no more when its load is at most this times the average."""

SHED_LOOKS: Final = 3
"""How many looks in a row have to find `SHED_RATIO` exceeded, so that nothing moves for a peak."""

SHED_REST_S: Final = 60.0
"""How long a partition rests that was moved, so that its averages are those of its new leader."""

SHED_GAIN: Final = 0.01
"""The least gain of a move, as a share of the average load of a broker."""

SHED_LIGHT_LOAD: Final = 0.02
"""A partition with less load is light, however little the others have: twice that of an idle one,
20 KiB/s."""

SHED_LOAD_MIN: Final = 1.0
"""Leaderships are moved by load from this load of the busiest broker on: 1 MiB/s, about 1 % of what
a core takes.  Until then the number of leaderships counts."""

DISK_ROOM_BYTES_MIN: Final = 1024 * 1024
"""A disk is full if a file of this size can't be written."""

SYNCS_ALONE_MAX: Final = 8
"""Syncs of single files that run at the same time, each in a thread; further ones are made
together."""

SYNCS_TOGETHER_MIN: Final = 4
"""The least number of files for which the whole file system is synced.  Such a sync writes what
other programs have there, too."""

FLUSHES_AT_A_TIME: Final = 256
"""Logs of a broker that are being flushed at the same time, each in a task of a few KiB; most of
them wait for the same sync."""

DISK_LOOK_INTERVAL_S: Final = 0.5
"""How often a broker checks whether its full disk has space again."""

DISK_LINE_INTERVAL_S: Final = 10.0
"""The least time between two log lines of a broker that say that its disk is full or fails."""

STATUS_INTERVAL_S: Final = 5.0
"""How often a broker reports the free space of its disk to the register, if nothing else
changes."""

ORDER_RETRY_S: Final = 0.5
"""The register repeats the parts of an order that a broker could not carry out after this, then
after twice as long each time, up to `ORDER_RETRY_S_MAX`."""

ORDER_RETRY_S_MAX: Final = 4.0

UNDONE_REASON_BYTES_MAX: Final = 300
"""The length to which a broker cuts its reason for not carrying out a part of an order.  An answer
may have a reason for each part."""

LINK_GRACE_S: Final = 0.5
"""How long a broker whose connection to the register broke, and whose address answers, has to
make a new connection before the register considers it gone."""

LINK_TRIES: Final = 3
"""How often a broker that lost its register tries to connect before it waits for random times."""

REMINDER_S: Final = 1.0
"""The register announces an epoch again to a replica that has not accepted it after this, then
after twice as long each time, up to `REMINDER_S_MAX`."""

REMINDER_S_MAX: Final = 8.0

RELIEF_PAUSE_S: Final = 1.0
"""A leader that accepts no records is replaced at once.  If its successor accepts none either, that
one is replaced after this, then the next ones after twice as long each time, up to
`RELIEF_PAUSE_S_MAX`."""

RELIEF_PAUSE_S_MAX: Final = 30.0

RECONNECT_GRACE_S: Final = 3.0
"""How long a restarted register waits for brokers to come back before it replaces leaders."""

# --- storage -------------------------------------------------------------------------

SEGMENT_BYTES_MAX: Final = 256 * MIB
"""A segment takes nothing that would make it longer; retention and verification work by segment."""

INTERNAL_SEGMENT_BYTES_MAX: Final = 1 * MIB
"""The same for internal logs; the segments before a snapshot are removed as a whole."""

INTERNAL_KEY_BYTES_MAX: Final = 1 * KIB
INTERNAL_VALUE_BYTES_MAX: Final = 1 * MIB
"""The key and the value of one entry of an internal log."""

SNAPSHOT_BYTES_MIN: Final = 1 * MIB
SNAPSHOT_FACTOR: Final = 4
"""A snapshot of an internal log is due when the log, from the beginning of the last snapshot on, is
longer than `SNAPSHOT_BYTES_MIN` and than `SNAPSHOT_FACTOR` times its live entries."""

SNAPSHOT_PIECE_BYTES: Final = 64 * KIB
"""A leader that makes a snapshot appends about this much at a time, or one entry that is larger."""

SEGMENT_AGE_S_MAX: Final = 7 * 24 * 3600.0
"""A segment is closed when its first record has this age, so that retention by age can remove
it."""

INDEX_INTERVAL_BYTES: Final = 64 * KIB
"""The distance of index entries, which is about the most that a look-up by offset has to walk."""

DELETION_RETRY_S: Final = 5.0
"""How long a broker waits before it tries again to delete files that it could not delete."""

RETIRED_KEEP_S: Final = 24 * 3600.0
"""How long a broker keeps a retired replica."""

RETIRED_COUNT_INTERVAL_S: Final = 600.0
"""How often a broker stores for how long it has kept a retired replica; more often if that is to be
kept for a short time only."""

RETIRED_FILES_PER_TURN: Final = 100
"""Files of retired replicas that a broker removes at a time, every `DELETION_RETRY_S`."""

WALKS_PER_NODE_MAX: Final = 4
"""Look-ups by time or count that a broker makes at a time, one for each connection; others wait."""

SLICE_BYTES: Final = 128 * KIB
"""How much a look-up, or the rebuilding of an index, reads before other tasks have their turn: with
the smallest records two to four milliseconds of work.  A single record may be longer."""

FLUSH_MESSAGES: Final = 50_000
FLUSH_BYTES: Final = 64 * MIB
FLUSH_INTERVAL_S: Final = 1.0
"""A log is flushed after this many messages, bytes or seconds, when the first of these is reached.
A single replica can lose that much in a power failure."""

CHECKPOINT_BYTES: Final = 64 * MIB
"""The distance of a log's checkpoints.  It bounds how much recovery has to scan: about a second's
work."""

RETENTION_CHECK_INTERVAL_S: Final = 60.0

PRODUCERS_PER_LOG_MAX: Final = 10_000
"""Producers that a log remembers to detect duplicates.  The producer that has been silent longest
is forgotten first; it is refused with ``unknown_producer`` if it comes back."""

INPUT_BYTES_MAX: Final = 128
"""The header of an output of a pipe that says which message it comes from; one of the largest
numbers has 93 bytes."""

PIPE_BUFFER_BYTES: Final = 8 * MIB
"""What a pipe holds of outputs that are not stored, for one log of its input, before the program
waits; the outputs of one message may be as much more."""

RECENT_BATCHES_COUNT: Final = REQUESTS_IN_FLIGHT_MAX
"""Receipts that a log remembers for each producer: as many as the producer can have unanswered."""

REQUEST_IDS_PER_LOG_MAX: Final = 4_096
"""Request ids of version 1 records that a log remembers, the newest ones: as many as 64 connections
can have unanswered with one record each."""

# --- register ------------------------------------------------------------------------

REPLICA_COUNT_DEFAULT: Final = 3
"""Replicas of a new partition; fewer if there are fewer brokers."""

PARTITION_COUNT_DEFAULT: Final = 8
"""Partitions of a new cluster."""

PARTITIONS_PER_TOPIC_MAX: Final = 1_000

GENERATIONS_MAX: Final = 64
"""Generations of a topic, with those that never came into force.  A topic that doubles each time
has as many partitions as it may after ten."""

GENERATED_PARTITIONS_MAX: Final = 768
"""Partitions in all generations of a topic together, with those that are in several of them.  A
topic's record has to fit into an entry of the journal, and has up to 15 bytes for each."""

GROW_TIMEOUT_S: Final = 20.0
"""How long a register tries to bring a generation into force; then it is cancelled, so that the
keys whose logs are sealed already can be written again."""

SEALS_PER_PARTITION_MAX: Final = 5_000
"""Logs of a partition that are sealed for another generation of their topic, or ever were.  Seals
are never forgotten, and half of `PRODUCERS_PER_LOG_MAX` is left for fences."""

SEAL_S: Final = 5.0
"""How long a leader waits until the seal of a log and all that the log holds are committed; then it
refuses the order, which is repeated."""

SEAL_RETRY_S: Final = 0.25
"""Interval in which a register orders a log to be sealed again whose leader did not confirm."""

MARK_LOOK_S: Final = 0.25
"""Interval in which a member of a subscription asks whether the logs are processed that come before
one of its own, if the topic got other partitions."""

REPLACED_TOPICS_MAX: Final = 100
"""Deleted topics of the same name that a topic remembers."""

REMOVED_TOPICS_MAX: Final = 10_000
"""Deleted topics that a broker remembers, so that what a partition keeps about them goes when the
broker begins to lead it; of more, the oldest are forgotten."""

UNSERVED_TOPICS_MAX: Final = 1_000
"""Topics that a broker holds and the register doesn't serve: those that are remembered of each
broker, and those in one answer."""

TOPIC_COUNT_MAX: Final = 1_000_000
"""Topics of one cluster; the register holds about 1 KiB of memory for each."""

LOGS_MADE_AT_ONCE_MAX: Final = 32
"""Logs of one order that a broker makes at the same time: one operation of the device then serves
several logs, and a disk that fails holds up no more tasks than this."""

GATHER_S: Final = 2.0
"""The longest time for which a starting register listens to brokers before it decides anything:
brokers report what existed.  It waits until all brokers in its journal have joined; with an empty
disk it knows none, and waits for the whole time."""

LIVES_IN_DOUBT_MAX: Final = 64
"""Successive incarnations that a broker remembers if none of them heard whether the register
admitted it.  Older ones are forgotten; at worst the register then treats the broker as one that
lost its data."""

EVENTS_KEPT_COUNT: Final = 1_000
"""Decisions and observations that the register keeps for people to look at."""

PULSE_STATUS_S: Final = 1.0
"""How often a broker of a ring tells with its pulses whether its disk and replicas are well."""

EVENTS_COLLECT_S: Final = 1.0
"""How long a broker of a cluster without a register waits for the events that others noted."""

EVENTS_FRESH_S: Final = 0.5
"""How long it tells what it has collected without asking again."""

HISTORY_INTERVAL_S: Final = 10.0
"""How often a broker notes what it took and gave, in the topic of rates: a chart of half an hour
then has 180 points."""

HISTORY_LOOK_S: Final = 1.0
"""How often a node looks whether it has something to write to the cluster's history."""

HISTORY_RETRY_S_MAX: Final = 30.0
"""The longest wait before a node tries again to write to the cluster's history."""

HISTORY_SAMPLES_MAX: Final = 360
"""Notes of rates that a broker keeps while they can't be written: those of an hour."""

HISTORY_BATCH_MAX: Final = 100
"""Messages of the cluster's history that a node writes at once."""

HISTORY_TOPICS_MAX: Final = 10
"""Topics that one note of a broker's rates names, the busiest ones: a note has at most 4 KiB then,
and that of a broker with ordinary names about 1 KiB."""

HISTORY_RETENTION_S: Final = 7 * 24 * 3600
"""How long the cluster's history is kept."""

HISTORY_RETENTION_BYTES: Final = 64 * MIB
"""How much of each topic of the cluster's history is kept."""

HISTORY_SEGMENT_BYTES: Final = 4 * MIB
"""What retention removes of it at a time."""

BENCH_BYTES_MAX: Final = 4 * GIB
"""Values that one run of `octopi-node bench` may store: it should not fill a cluster's disks."""

BENCH_SAMPLES_MAX: Final = 1_000
"""Messages that `octopi-node bench` times at once; with more of them waiting, it waits, too."""

JOURNAL_SNAPSHOT_ENTRIES: Final = 100_000
"""The register replaces its journal by a snapshot after this many entries."""

# --- relay topics --------------------------------------------------------------------

RELAYS_MAX: Final = 9
"""Members of one relay set.  Each message is sent to all of them; five survive two failures."""

RELAYS_MIN: Final = 3
"""The members of a new relay set at least: fewer can't lose one, and promise nothing that one
broker would not."""

RELAY_AWAY_S: Final = 300.0
"""A member of a relay set that was away for so long is replaced, if there is another broker."""

RELAY_FORM_S: Final = 5.0
"""How long the creation of a topic in memory waits for a new relay set, which needs a second or two
to begin."""

RELAY_SETS_LOOK_S: Final = 1.0
"""The interval at which a register sees whether relay sets have to change."""

RELAY_SETS_BALANCE_S: Final = 15.0
"""How long brokers and relay sets have been as they are before a member moves to a broker in fewer
sets.  It has to fetch all that the others hold."""

RELAY_BUFFER_BYTES: Final = 16 * MIB
RELAY_BUFFER_BYTES_MIN: Final = 64 * KIB
RELAY_BUFFER_BYTES_MAX: Final = 1024 * MIB
"""The bounds of what a topic may ask for."""

RELAY_BUFFER_TRANSACTIONS: Final = 100_000
RELAY_BUFFER_AGE_S: Final = 600.0
"""What a relay keeps of one stream: the newest records within all three bounds."""

RELAY_MEMORY_BYTES: Final = 1024 * MIB
"""What all streams of a broker hold together, if nothing else is set (`--relay-memory`)."""

RELAY_MEMORY_BYTES_MIN: Final = 32 * MIB
"""The least that may be set: one buffer of the usual size, and as much again."""

RELAY_MEMORY_LOOK_S: Final = 0.5
"""How often a broker looks for room while its memory for streams is full of what waits for a
quorum."""

RELAY_TICK_S: Final = 0.02
"""How often a relay looks whether something is due."""

RELAY_BEAT_S: Final = 0.1
"""How often relays of a set tell each other whom they hear.  What was lost is repeated then."""

RELAY_SILENCE_S: Final = 0.5
"""A relay that was not heard for so long is not there: four beats may be late."""

RELAY_BACK_S: Final = 0.2
"""How long a fenced relay has to hear a quorum before it goes on."""

RELAY_LOST_S: Final = 10.0
"""How long a relay has to be silent before the others may found a timeline without it.  It fenced
itself long before."""

RELAY_STUCK_S: Final = 1.0
"""How long no timeline has to be held by a quorum before one is founded; an empty relay votes after
half of it."""

RELAY_FOUND_RETRY_S: Final = 1.5
"""How long a relay that proposed a timeline waits before it proposes another one."""

RELAY_ANSWER_S: Final = 0.5
"""How long a vote, an answer to a joining relay, or the sign of a started epoch counts."""

RELAY_CHANGE_S: Final = 0.3
"""How long a relay waits for the start of an epoch for which it has voted."""

RELAY_CONNECT_S: Final = 0.1
"""How long a relay waits before it connects again to another one."""

RELAY_GREET_S: Final = 2.0
"""How long a relay waits for the greeting of another one to which it has connected."""

RELAY_FETCH_S: Final = 0.3
"""How long a relay that repairs a stream waits for an answer, before it asks another one."""

RELAY_REPAIR_TRIES: Final = 5
"""Sources that a relay tries to repair a stream from, before it gives up what it holds."""

RELAY_REPAIRS_AT_ONCE: Final = 64
"""Streams that a relay repairs at once, before it is part of an epoch."""

RELAY_SCRUB_S: Final = 60.0
"""How often a relay computes the digests of what it holds again."""

RELAY_POINTS_MAX: Final = 64
"""Digests that one message of a comparison has."""

RELAY_PART_BYTES: Final = 64 * KIB
"""Records of one answer to a relay that repairs a stream, unless the first transaction has more.
The answers to all that it repairs at once fit into one outbox, so none of them is dropped."""

RELAY_PART_TRANSACTIONS: Final = 5_000
"""Transactions of such an answer."""

RELAY_READ_TRANSACTIONS: Final = 4_096
"""Transactions of one delivery to a reader."""

RELAY_PARTITIONS_MAX: Final = 64
"""Relay partitions of a static list of relays.  Each has a beat of its own to each other relay."""

RELAY_STREAMS_MAX: Final = 12_500
"""Streams of one relay partition: 100,000 in eight of them.  Votes and starts carry all of them."""

RELAY_STREAMS_TOLD_MAX: Final = 2_000
"""Streams of one message of a vote, of a start, or of an answer to a joining relay."""

RELAY_REMOVED_MAX: Final = 1_000
"""Of how many removed streams a relay remembers that they are removed."""

RELAY_NAMES_TOLD_MAX: Final = 1_000
"""Names of topics that one message between relays has."""

RELAY_AHEAD_MAX: Final = 1_024
"""Digests that a relay remembers of another one that is further on in a stream."""

RELAY_REPEATS_MAX: Final = 1_000
"""Streams of which a relay repeats to another one in a beat how far it is."""

RELAY_BALANCE_S: Final = 5.0
"""How long the wished sequencer of a relay partition has been part of the epoch before the present
one hands over to it."""

RELAY_BALANCE_S_MAX: Final = 320.0
"""The same after several times: each time that a relay has handed over, it waits twice as long."""

RELAY_CLOCK_BEATS: Final = 20
"""Of how many beats of another relay one looks at the clock: the fastest of them is believed."""

RELAY_CLOCK_APART_S: Final = 1.0
"""How far apart the clocks of two relays may be before it is worth a warning: ids are in the order
of time only as well as clocks agree."""

RELAY_STORE_RETRY_S: Final = 1.0
"""How long a relay that could not store a generation waits before it tries again."""

RELAY_PRODUCE_S: Final = 2.0
"""How long a produce waits for a quorum: longer than a change of the sequencer."""

RELAY_PENDING_MAX: Final = 10_000
"""Produces that wait for a quorum at one receiver."""

# --- agreement -----------------------------------------------------------------------

ACCEPTORS_MAX: Final = 32
"""Acceptors of one agreed value: each change is sent to all of them.  Two fewer than twice the
replicas of a partition are spare, so this allows 16 replicas."""

AGREED_BYTES_MAX: Final = 64 * KIB
"""The content of an agreed value: it is rewritten as a whole, in one write, at each change."""

ACCEPTOR_SNAPSHOT_ENTRIES: Final = 20_000
"""A broker replaces the journal of its acceptors by a snapshot after this many entries: some 30 MB
of usual values."""

BALLOT_ROUND_MAX: Final = 1 << 52
"""The highest round of a ballot.  Rounds count up by one, so nobody gets there; it keeps a broken
peer from sending one behind which no number follows."""

INSTANCE_MAX: Final = 1 << 32
"""The highest number of an agreed value."""

VALUES_TOLD_MAX: Final = 1_000
"""Agreed values of which two brokers compare their ages in one message."""

FOUNDERS_MAX: Final = 9
"""Brokers that form a cluster without a register together: all of them have to answer once."""

AGREEMENT_ATTEMPT_S: Final = 0.5
"""How long a proposer waits for a majority before it tries again in a higher ballot: several round
trips, each with a wait for the device."""

AGREEMENT_TIMEOUT_S: Final = 2.0
"""How long a proposer tries to make a change before its outcome is in doubt."""

REGISTERS_MAX: Final = 9
"""Registers of one cluster.  Each entry is sent to all of them; five survive two failures."""

REGISTER_BEAT_S: Final = 0.1
"""How often the active register says that it is there.  It also bounds how much later the others
learn that an entry is committed."""

REGISTER_SILENCE_S: Final = 0.75
REGISTER_SILENCE_S_MAX: Final = 1.25
"""A register that hears no active one asks for votes after a random time between these two: several
beats, so that a busy machine deposes nobody."""

REGISTER_LOST_S: Final = 0.15
"""The same after the connection of the active register broke, below this: usually its process has
ended.  If it has not, the others still hear it and refuse."""

REGISTER_QUORUM_S: Final = 0.75
"""An active register that has not heard a majority for this time gives up.  So long it may tell
what has been replaced by another one."""

REGISTER_GOODBYE_S: Final = 0.1
"""How long a register that stops waits, at most, until the others are sent that it does."""

REPLICATED_ENTRY_BYTES_MAX: Final = BATCH_BYTES_MAX // 1000
"""One entry of a register's journal: a topic with all its partitions fits."""

REPLICATED_PAGE_BYTES: Final = 256 * KIB
REPLICATED_PAGE_ENTRIES: Final = 4_000
"""Entries of the registers' journal in one message.  Each takes 100 bytes at least of the first."""

REPLICATED_WINDOW_ENTRIES: Final = 4_000
"""Entries that were sent to a register and that it has not stored yet."""

REFUSED_BALLOT_WAIT_S: Final = 0.02
REFUSED_BALLOT_WAIT_S_MAX: Final = 1.0
"""After each refused ballot in a row, a proposer waits a random time below a bound, which grows by
the first value up to the second one."""

# --- the ring of brokers -------------------------------------------------------------

RING_BITS: Final = 52
"""Bits of a point on the ring, and of the id of a broker there: the largest count that is exact in
the numbers of a browser."""

POINT_DRAWS: Final = 8
"""Random points of which a broker that joins the ring chooses the one in the longest arc: with more
of them the shares of the keys get hardly more even."""

RING_SUCCESSORS: Final = 4
"""Brokers behind itself that a broker of the ring knows in their order.  It and they are a group of
five acceptors.  All four of them fail within one repair of the ring (2 s) with a probability of
1e-13, if brokers live for an hour."""

TOPIC_ENTRIES_AT_ONCE_MAX: Final = 100
"""Entries about topics that are appended at once to the log of a partition that a register handed
over: other appends go on between them."""

HAND_OVER_ATTEMPTS_MAX: Final = 16
"""Tries to hand a cluster over that a register remembers: brokers that know an older one ask each
other whether it took place."""

HAND_OVER_ASK_S: Final = 2.0
"""How long a broker waits until another one says whether it has taken over."""

HAND_OVER_PATIENCE_S: Final = 30.0
"""How long a broker waits for the others to say whether they have taken over, before it does
without as many as can't decide anything among themselves."""

ENDING_PATIENCE_S: Final = 15.0
"""How long a broker of a ring waits in one stage of handing the cluster over to registers before it
has that attempt given up: a broker that is needed was lost just then."""

RECORD_ACCEPTORS_FIRST: Final = 5
"""Acceptors of the record of a cluster that a register handed over, if there are so many brokers:
two of them may be away."""

BOOK_COUNT: Final = 512
"""Brokers of a ring that each of its brokers remembers: up to so many brokers, everyone knows
everyone, and a look-up takes one hop.  About 100 KiB."""

BOOK_SILENT_SHARE: Final = 4
"""A full address book keeps one entry in so many for brokers that don't answer, so that a network
that was split through a large ring heals."""

BOOK_DROPPED_SHARE: Final = 16
"""A full address book drops one entry in so many at a time: choosing them takes a look at all."""

STABILISE_S: Final = 1.0
"""How often a broker of the ring asks its successor who stands between them."""

PROBE_S: Final = 10.0
"""How often a broker of the ring asks one broker of its address book, taken at random, whether it
is there: so halves of the ring find each other after a split."""

RING_ANSWER_S: Final = 0.75
"""How long a broker of the ring waits for an answer before it takes the other one for dead: three
pulses."""

RING_NEWS_COUNT: Final = 8
"""Entries of their address books that two brokers tell each other at a time."""

RING_NODES_TOLD_MAX: Final = 16
"""Brokers in a list of neighbours, or of nearer ones, that a broker of the ring takes from another
one."""

RING_IDLE_S: Final = 60.0
"""How long a broker of the ring keeps a connection to another one over which it says nothing."""

SHARE_LEADS_S: Final = 5.0
"""How long leaders and brokers of a ring have been the same before leads are shared evenly."""

RECORD_ACCEPTORS: Final = 3
"""Acceptors of the cluster record that there are at least, if there are as many brokers: one of
them may fail."""

REPLACE_ACCEPTOR_S: Final = 30.0
"""How long an acceptor of the cluster record may be silent before another broker takes its place: a
restart moves nothing."""

PULSE_S: Final = 0.25
"""How often brokers of a ring that decide about the same partitions tell each other that they are
there."""

FENCE_S: Final = 0.75
"""How long after a pulse, which a majority answered, a leader may act without another one: two
pulses may be lost."""

SUSPECT_S: Final = 1.0
"""How long a broker of a ring is not heard before others replace it as a leader.  A leader has
ended before, if no clock is 14 percent faster than another one."""

ELECTION_TURN_S: Final = 0.05
"""How long a broker of a ring waits for each one whose turn to hold an election comes before."""

ELECTION_WAIT_S: Final = 0.5
"""How long a broker of a ring waits for another one's election, and for its own, before it begins
anew: up to twice as long, at random."""

REPLACE_REPLICA_S: Final = 600.0
"""How long a broker of a ring may be silent before its replicas are made elsewhere: longer than a
repair takes, because all its data is copied."""

SETTLE_S: Final = 30.0
"""How long a broker of a ring has known the same others before partitions that it leads move."""

MOVES_AT_ONCE_MAX: Final = 4
"""Partitions whose replica groups one broker of a ring changes at the same time: catching up costs
producers at most 15 percent each."""

RING_WAITING_MAX: Final = 64
"""Messages that a broker of the ring keeps for another one while it connects to it."""

KNOWN_VALUES_S: Final = 10.0
"""How often a broker of the ring compares the agreed values that it knows with another one."""

NEARER_NODES: Final = 3
"""Nodes before a key that a broker of the ring names when it does not know who holds that key, so
that two of them may be dead."""

LOOKUP_STEPS_MAX: Final = 24
"""Brokers that are asked to find the holder of a key: nearly twice log2 of 10,000 brokers."""

LOOKUP_TIMEOUT_S: Final = 5.0
"""How long the holder of a key is looked for: six brokers that don't answer."""

JOIN_MEETINGS: Final = 8
"""Addresses that a broker tries, one after another, before it says that nobody lets it in, and
begins anew."""

TOPIC_ORDER_S: Final = 5.0
"""How long the leader of a topic's home waits until all partitions of the topic know what was
decided; then whoever asked is told that it is not finished, and it goes on."""

HOMES_MAX: Final = 1_024
"""Partitions of a cluster without a register in which records of topics lie: all of them are asked
when topics are listed."""

GROWTH_ROWS_MAX: Final = 64
"""Growths of a cluster without a register."""

GROWTH_MEMBERS_MAX: Final = 64
"""Brokers that a growth names, as the first ones for its partitions.  A larger ring names so many
of its brokers; the groups of partitions move from them to the others."""

GONE_BROKERS_MAX: Final = 4_096
"""Brokers that were removed from a cluster without a register for good: 9 bytes each in its
record."""

# --- durable subscriptions -----------------------------------------------------------

SUBSCRIPTIONS_PER_PARTITION_MAX: Final = 10_000
"""Durable subscriptions whose coordinator is the leader of one partition, and marks that one
partition keeps: about 1 KiB of memory each."""

SUBSCRIPTION_SESSIONS_MAX: Final = 2_000
"""Logs of durable subscriptions to which one connection is attached, and groups that it has
joined."""

MEMBERS_PER_SUBSCRIPTION_MAX: Final = 1_000

SESSION_TIMEOUT_MS_MIN: Final = 1_000
"""The session timeout of a member of a subscription.  A member sends a heartbeat three times in
it."""

SESSION_TIMEOUT_MS_MAX: Final = 300_000

MARK_BYTES_PER_S: Final = 64 * KIB
"""How much the marks of a subscription in one log may add to the partition's internal log in a
second, if no member asks for confirmations."""

MARKS_COUNT: Final = 1_000
"""A mark is stored after this many messages were marked, if it was not stored before."""

DEAL_COUNT_MAX: Final = 1_000
"""Messages of a queue that are dealt together."""

SETTLE_COUNT_MAX: Final = 1_000
"""Deliveries that a member answers together."""

DELAY_MS_MAX: Final = 12 * 3600 * 1000
"""The longest delay after which a message that was given back is dealt again."""

ATTEMPTS_MAX: Final = 100
"""The greatest number of deliveries after which a queue may give a message up."""

LETTERS_PENDING_MAX: Final = 32
"""Messages of a queue and log that are about to become dead letters; the next ones wait.  Fewer
than the receipts that the log of the dead-letter topic remembers."""

LETTER_REASON_BYTES_MAX: Final = 200
"""Bytes of the reason why a message became a dead letter; the rest is cut off."""

QUEUE_WINDOW_MAX: Final = 10_000
"""Messages behind its mark that a queue remembers: about 300 bytes of memory each."""

QUEUE_PARTITIONS_MAX: Final = 64
"""Partitions of the topic of a queue: each of its members attaches to all of them."""

SKIPPED_RANGES_MAX: Final = 16
"""Lost ranges of a log that a subscription remembers; of more, the oldest are forgotten."""

CLAIM_STEP_MAX: Final = 100_000
"""How far the claim of a member may be ahead of the newest that the log's leader knows.  Claims are
counted up one by one, so one that is further ahead was not given by the coordinator, but for a log
that was assigned each second for a day while no member came to its leader."""

RESET_WAIT_S: Final = 60.0
"""An unfinished reset is given up after this, and the log is assigned again."""

# --- pages ---------------------------------------------------------------------------

LOOK_INTERVAL_S: Final = 0.5
"""The least time between two requests of a node for the state of its cluster, which pages show."""

LOOK_SHARE_MAX: Final = 0.2
"""The greatest share of its time that a node spends on these requests."""

PAGE_BYTES_MAX: Final = 512 * KIB
"""A page of JSON ends when it has this size; a single entry may be longer."""

PAGE_SLICE_COUNT: Final = 50
"""Entries that are made for a page before other tasks have their turn: one or two milliseconds."""

PAGES_AT_A_TIME_MAX: Final = 64
"""Pages about the cluster that a node makes and sends at a time; it answers further requests with
status 503."""

LOOK_TIMEOUT_S: Final = 2.0
"""A broker that doesn't answer such a request within this is shown as silent."""

# --- clients -------------------------------------------------------------------------

LINGER_S: Final = 0.005
"""How long a batch waits for more messages.  It doesn't wait while the connection is idle and the
caller waits for the receipt."""

CLIENT_BATCH_BYTES: Final = 128 * KIB
"""The size of a full batch.  By measurement, larger batches don't increase the throughput."""

FEW_BATCHES_COUNT: Final = 20
"""While a producer has no more batches that take messages, each lingers for the usual time; with
more, for longer in proportion."""

MANY_BATCHES_LINGER_S: Final = 0.25
"""How long a batch lingers at most because there are many (unless the linger time is longer): with
1,000 logs in turn, until each got several messages."""

GROWN_BATCH_BYTES: Final = 496 * KIB
"""The size of a full batch while the producer is saturated: its records fit into one delivery, and
into one message to a follower."""

BATCHES_IN_FLIGHT: Final = 8
"""Unanswered batches of one log."""

PRODUCER_BUFFER_BYTES: Final = 32 * MIB
"""The size of the messages that a producer holds before `submit` waits."""

DELIVERY_TIMEOUT_S: Final = 60.0
"""How long delivery of a message is tried; then its sender learns that it failed, or that the
outcome is unknown."""

REQUEST_TIMEOUT_S: Final = 15.0
"""How long a client waits for the answer to a request; then it closes the connection."""

LEADER_SILENCE_S: Final = 0.4
"""When a broker has not answered for this long, the client asks the register whether it still is
the right one.  A healthy broker answers much sooner.  Together with the time in which a hanging
broker is replaced (a second to notice, a moment to choose) this stays below 1.5 s."""

READER_SILENCE_S: Final = 0.7
"""When a broker has delivered no more records for this long, the consumer probes it.  Together with
the time limit of the probe, this is longer than the register needs to notice that the broker hangs.
So the first question to the register gets the new leader."""

SILENCE_GROWTH: Final = 1.4
"""A client asks the register again when the silence has grown by this factor.  So it asks few
questions, and learns of a change with a delay of less than half the length of the silence.  A
hanging broker is replaced after 1.05 s at most, and the fourth question follows at 0.4 * 1.4 ** 3 =
1.1 s."""

QUESTION_INTERVAL_S: Final = 0.1
"""When the register answers that no broker leads, a client asks again after this time, then after
twice as long each time.  For all requests that wait, an answer counts as new for half of this."""

CONSUMER_WINDOW_BYTES: Final = 4 * MIB
"""The size of the records of a partition that are on their way to a consumer or wait in it."""

KEPT_BUFFER_BYTES: Final = FETCH_BYTES_DEFAULT + 4 * KIB
"""The size of a buffer that a client keeps to receive into: a full delivery with its other fields
fits."""

KEPT_BUFFERS_COUNT: Final = CONSUMER_WINDOW_BYTES // FETCH_BYTES_DEFAULT + 4
"""Buffers that a client keeps, for all its connections: a consumer's window of full deliveries, and
those that are being received and that the program works on.  While all are in use, a message gets
a buffer that is not kept."""

IN_PLACE_BYTES_MIN: Final = 64 * KIB
"""A client receives smaller messages as before: they are copied, and cost no page faults."""

TOPICS_PER_CONSUMER_MAX: Final = 1_000
"""Topics that one consumer reads.  Each log of each has a task and a window of records."""

TOPIC_WAIT_INTERVAL_S: Final = 0.5
"""How often a consumer that waits for a topic asks the register for it, on average."""

TOPIC_LIST_INTERVAL_S: Final = 5.0
"""How long after an answer a consumer of a pattern asks the register for the topics again."""

POSITION_REPORT_INTERVAL_S: Final = 1.0
"""How often a consumer tells its broker at most how far its program is."""

RECONNECT_TIMEOUT_S: Final = 60.0
"""How long a consumer looks for a broker before it raises an error."""

DRAIN_TIMEOUT_S: Final = 60.0
"""How long a client tries to drain a broker, which hands over each of its partitions."""

# --- what brokers pass on to the register --------------------------------------------

ASK_BYTES_MAX: Final = 64 * KIB
"""The size of a client's request that a broker passes on.  The longest, a topic on a thousand named
partitions, takes a sixth of it."""

ASKS_IN_FLIGHT_MAX: Final = 40
"""Requests that a broker has passed on and that are not answered yet.  Further ones wait for their
turn; the orders of `ASKED_ORDERS_MAX` are counted by themselves."""

ASKS_PER_CLIENT_MAX: Final = 8
"""How many of them may be of one connection: further ones of the same client wait, so that other
clients' requests are passed on meanwhile."""

ASKED_ORDERS_MAX: Final = 16
"""Orders of operators that last, such as moves of replicas, which a broker has passed on and that
are not carried out yet; one more is refused.  The register bounds those of one broker, too."""

ASK_TIMEOUT_S: Final = REQUEST_TIMEOUT_S
"""How long a broker waits until a request that it passes on is answered, unless it is one that
lasts longer."""

ASK_CONNECT_S: Final = 1.0
"""How long a request waits for the broker's connection to the register.  Then the client is told,
and may ask another node; the connection is opened all the same."""

FORWARD_BYTES_MAX: Final = BATCH_BYTES_MAX + 32 * KIB
"""The size of a produce request that a broker passes on to the leader: a full batch, and the fields
around it."""

FORWARDS_IN_FLIGHT_MAX: Final = 256
"""Produce requests that a broker has passed on to leaders and that are not answered yet; one more
is refused.  A leader takes as many from one broker."""

FORWARDS_IN_FLIGHT_BYTES_MAX: Final = 64 * MIB
"""The bytes of these requests together: one more is refused, unless it is the only one."""

FORWARD_TIMEOUT_S: Final = 10.0
"""How long a broker waits for the leader's answer to such a request: not as long as the client,
which so hears of it before it leaves the broker."""

AUTHORIZED_VERBS_MAX: Final = 16
"""The number of verbs that a client's token grants, in a request that is passed on."""

ENTRANCE_SILENCE_S: Final = 1.0
"""How long a client that knows several nodes waits for one of them to say where a topic is, before
it asks the next one; twice as long after each round.  A register that hangs is noticed as late by
the brokers."""

ENTRANCES_LEARNED_MAX: Final = 16
"""The number of brokers that a client remembers from answers, to ask them when the nodes that it
was given are away."""

REDIRECTS_IN_A_ROW_MAX: Final = 2
"""Redirects that a client follows before it asks the register again: one for the change that it
missed, and one for a change that happens meanwhile."""

ADDRESSES_TOLD_MAX: Final = 8
"""Addresses that an error names when brokers have sent a client in circles: the last ones."""

BACKOFF_S_FIRST: Final = 0.05
BACKOFF_S_MAX: Final = 1.0
"""Retries wait a random time below a bound that doubles from the first to the greatest value."""

# --- relations -----------------------------------------------------------------------

assert RECORD_BYTES_MAX <= BATCH_BYTES_MAX < MESSAGE_BYTES_MAX
assert HELLO_BYTES_MAX < MESSAGE_BYTES_MAX
assert MEMORY_BUDGET_BYTES >= MEMORY_BUDGET_BYTES_MIN
assert MEMORY_BUDGET_BYTES_MIN * 3 // 8 > (
    MEMORY_LOAN_BYTES + 2 * CONNECTIONS_MAX * MEMORY_ALLOWANCE_BYTES + RECORD_BYTES_MAX
)
assert AGREED_BYTES_MAX < RECORD_BYTES_MAX
assert 2 * FETCH_BYTES_DEFAULT <= NEWEST_RECORDS_LOG_BYTES <= NEWEST_RECORDS_BYTES
assert AGREEMENT_ATTEMPT_S * 3 <= AGREEMENT_TIMEOUT_S
assert FENCE_S * 1.14 < SUSPECT_S * (1 - 0.14)
assert 3 * PULSE_S <= FENCE_S
assert REGISTER_BEAT_S * 5 <= REGISTER_SILENCE_S < REGISTER_SILENCE_S_MAX
assert REPLICATED_PAGE_BYTES // 100 < REPLICATED_PAGE_ENTRIES
assert REPLICATED_ENTRY_BYTES_MAX < REPLICATED_PAGE_BYTES
assert REGISTER_LOST_S < REGISTER_SILENCE_S
assert REGISTER_QUORUM_S <= REGISTER_SILENCE_S
assert RELAY_BEAT_S * 5 <= RELAY_SILENCE_S <= RELAY_ANSWER_S < RELAY_STUCK_S
assert RELAY_LOST_S >= 16 * (RELAY_SILENCE_S + RELAY_BEAT_S)
assert RELAY_CHANGE_S < RELAY_PRODUCE_S
assert RELAY_REPAIRS_AT_ONCE * RELAY_PART_BYTES <= OUTBOX_BYTES_MAX
assert CLIENT_BATCH_BYTES <= BATCH_BYTES_MAX <= PRODUCER_BUFFER_BYTES
assert BATCHES_IN_FLIGHT <= RECENT_BATCHES_COUNT
assert LETTERS_PENDING_MAX < RECENT_BATCHES_COUNT
assert HEARTBEAT_INTERVAL_S * 3 <= HEARTBEAT_TIMEOUT_S
assert MEMBERSHIP_HEARTBEAT_INTERVAL_S * 3 <= MEMBERSHIP_HEARTBEAT_TIMEOUT_S
assert TURN_S <= ROUND_S < MEMBERSHIP_HEARTBEAT_INTERVAL_S / 10
assert LOAD_INTERVAL_S * 3 < LOAD_UNKNOWN_S < LOAD_AVERAGE_S <= SHED_REST_S
assert 1 < SHED_RATIO_OVER < SHED_RATIO
assert SHED_LIGHT_LOAD < SHED_LOAD_MIN
assert LINK_GRACE_S > BACKOFF_S_FIRST * (LINK_TRIES + 2)
assert LINK_GRACE_S < MEMBERSHIP_HEARTBEAT_TIMEOUT_S
assert GATHER_S > MEMBERSHIP_HEARTBEAT_TIMEOUT_S + BACKOFF_S_MAX / 2
assert FETCH_WAIT_S_MAX > REQUEST_TIMEOUT_S
assert QUESTION_INTERVAL_S < LEADER_SILENCE_S < MEMBERSHIP_HEARTBEAT_TIMEOUT_S
assert READER_SILENCE_S + LEADER_SILENCE_S > MEMBERSHIP_HEARTBEAT_TIMEOUT_S
assert ASKS_PER_CLIENT_MAX < ASKS_IN_FLIGHT_MAX
assert ASKS_IN_FLIGHT_MAX + ASKED_ORDERS_MAX < REQUESTS_IN_FLIGHT_MAX
assert FORWARD_TIMEOUT_S < REQUEST_TIMEOUT_S
assert BATCH_BYTES_MAX < FORWARD_BYTES_MAX < MESSAGE_BYTES_MAX <= FORWARDS_IN_FLIGHT_BYTES_MAX
assert ASK_CONNECT_S <= MEMBERSHIP_HEARTBEAT_TIMEOUT_S <= ENTRANCE_SILENCE_S
