"""A connection: one link, one reader, one writer, numbered requests both ways.

`Connection.run` is the reader; it has the writer as its only child task, and nothing else
sends or receives on the link.  So a caller that is cancelled while it waits never leaves half a
message on the link, and synchronous code may call `post`.

What a connection does about a peer that misbehaves:

- The peer doesn't read what we send: the outbox fills, the reader pauses, and the connection is
  closed when no message could be sent for `SEND_TIMEOUT_S`.
- The peer sends requests without waiting for answers: the reader pauses at
  `REQUESTS_IN_FLIGHT_MAX`, not counting the requests for which `set_aside` was called.
- The peer is silent: the connection is closed after the heartbeat time-out.  The time counts
  only while the reader reads, since a paused reader would not notice what the peer sends.
- The peer breaks the protocol: it gets a `Failure`, then the connection is closed.

A connection knows no roles: `on_message` decides what a message means.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar

import trio

from octopi.environment import Clock, Link
from octopi.errors import ConnectionLostError, OctopiError, ProtocolError, Status
from octopi.limits import MEMORY_ALLOWANCE_BYTES, OUTBOX_BYTES_MAX, SEND_TIMEOUT_S
from octopi.logger import get_logger
from octopi.metrics.latencies import Latencies
from octopi.security.authenticator import AuthenticatedPeer
from octopi.security.grants import EVERYTHING, Grants
from octopi.security.token_bucket import TokenBucket
from octopi.transport.close_codes import GOING_AWAY, close_code
from octopi.transport.connection_statistics import ConnectionStatistics
from octopi.transport.failures import failure, failure_of, refusal
from octopi.transport.memory_budget import ConnectionMemory
from octopi.transport.memory_pool import UNFINISHED
from octopi.transport.message_sender import MessageSender
from octopi.transport.peer_names import peer_shown
from octopi.transport.pending_requests import Numbered, PendingRequests
from octopi.transport.requests import answer_to, spoken_version
from octopi.transport.turns import ConnectionTurn
from octopi.wire.codec import decode, encode
from octopi.wire.endpoints import NOTICES, REQUESTS
from octopi.wire.messages import TYPE_NAMES, Failure, Heartbeat, Hello, Welcome

_log = get_logger(__name__)

_HEARTBEAT: Final = encode(Heartbeat())

_PACE_S: Final = 1.0
"""The longest sleep while a peer is over its rate: the connection may end meanwhile."""

_CLOCK_RESOLUTION_S: Final = 1e-6
"""Differences of times are inexact, so a deadline counts as reached this much before it."""

_T = TypeVar("_T")


class Connection(MessageSender):
    """Messages over a link whose handshake is done.

    Invariant: once `end_reason` is set nothing is posted, and every callback of `ask`
    has been, or is about to be, called with a `ConnectionLostError`, once.
    """

    # With so many attributes a dictionary of them would take two KiB of an idle connection.
    # fmt: off
    __slots__ = (
        "_callbacks", "_ended", "_fault", "_heartbeat_interval_s", "_heartbeat_timeout_s",
        "_last_payload_at", "_last_received_at", "_last_request", "_latencies", "_probe",
        "_probed_at", "_received_bytes", "_received_count", "_receives", "_refuses_requests",
        "_running", "_unanswered", "greeting", "turn",
    )
    # fmt: on

    def __init__(
        self,
        link: Link,
        clock: Clock,
        greeting: Hello | Welcome,
        *,
        receives: frozenset[type],
        heartbeat_interval_s: float,
        heartbeat_timeout_s: float,
        latencies: Latencies | None = None,
        entry: AuthenticatedPeer | None = None,
        turn: ConnectionTurn | None = None,
        memory: ConnectionMemory | None = None,
    ) -> None:
        """*latencies*: where to count how long the peer's requests take.  *entry*: the identity
        that the peer's token proved; None where tokens are not required.  *turn*: shares the
        thread with other connections; None on the side that connected.  *memory*: the accounts
        to which memory for the peer is charged; None: memory is not bounded."""
        super().__init__(link, clock, entry, memory)
        self.greeting: Final = greeting
        """The hello or the welcome that the peer sent."""
        self._receives = receives
        self._heartbeat_interval_s = heartbeat_interval_s
        self._heartbeat_timeout_s = heartbeat_timeout_s
        self.turn: Final = turn
        self._latencies = latencies
        self._unanswered = PendingRequests()
        self._refuses_requests = False
        self._callbacks: dict[int, Callable[[object], None]] = {}
        self._last_request = 0
        self._probe = 0
        self._running = False
        self._fault: Exception | None = None
        """What the peer did wrong in the last message, or how handling it failed."""
        self._ended = trio.Event()

        self._last_received_at = self._last_payload_at = self._sent_at
        self._probed_at = -math.inf
        self._received_count = self._received_bytes = 0

    # --- what callers use ------------------------------------------------------------

    @property
    def version(self) -> int:
        """The version of the protocol that both sides speak."""
        return spoken_version(self.greeting)

    @property
    def grants(self) -> Grants:
        """What the peer may do."""
        return EVERYTHING if self.entry is None else self.entry.identity.grants

    @property
    def last_received_at(self) -> float:
        """When the last message was received; before the first one, when the connection was
        opened.  By the clock, in seconds."""
        return self._last_received_at

    @property
    def last_payload_at(self) -> float:
        """When the last message was received that was neither a heartbeat nor an answer to
        `probe`."""
        return self._last_payload_at

    @property
    def probed_at(self) -> float:
        """When `probe` was called last."""
        return self._probed_at

    def statistics(self) -> ConnectionStatistics:
        """Counters and queue lengths of this moment."""
        return ConnectionStatistics(
            sent_count=self._sent_count,
            sent_bytes=self._sent_bytes,
            received_count=self._received_count,
            received_bytes=self._received_bytes,
            outbox_bytes=self.outbox.size_bytes,
            unanswered_count=len(self._unanswered),
            awaited_count=len(self._callbacks),
        )

    def post(self, message: object) -> None:
        """Hand *message* to the writer, even if the outbox is full.

        Raises:
          ConnectionLostError: if the connection has ended.
          ValueError: if a field is out of its bounds.
        """
        if self._end is not None:
            raise ConnectionLostError(str(self._end))
        data = encode(message)
        if self._unanswered and type(message) not in REQUESTS:
            answered: Any = getattr(message, "request", None)
            asked = self._unanswered.answered(answered)
            if asked is not None and self._latencies is not None:
                self._latencies.observe(asked[0], self._clock.now() - asked[1])
            if self._room:
                self._room.unpark_all()
        now = self._clock.now()
        if self._bucket is not None:
            self._bucket.spend(len(data), now)
        self._send_or_keep(now, data)

    def set_aside(self, request: int) -> None:
        """Don't count *request*, whose answer waits for an event, against
        `REQUESTS_IN_FLIGHT_MAX`.  Callers bound how many they set aside."""
        if self._unanswered.set_aside(request) and self._room:
            self._room.unpark_all()

    async def drained(self) -> None:
        """Wait until the outbox holds no more than `OUTBOX_BYTES_MAX`.

        Raises:
          ConnectionLostError: if the connection has ended.
        """
        while self.outbox.size_bytes > OUTBOX_BYTES_MAX and self._end is None:
            await self._room.park()
        await self.paced()

    async def paced(self) -> None:
        """Wait while the peer has had more than its share of bytes a second.

        Raises:
          ConnectionLostError: if the connection has ended.
        """
        # This does not yield to other tasks each time: the outbox bounds what callers can post.
        await trio.lowlevel.checkpoint_if_cancelled()
        if self._bucket is not None:
            await self._pace(self._bucket)
        if self._end is not None:
            raise ConnectionLostError(str(self._end))

    async def send(self, message: object) -> None:
        """Wait until the outbox has room, then `post` *message*.  Cancelled: nothing was posted.

        Raises:
          ConnectionLostError: if the connection has ended.
          ValueError: if a field is out of its bounds.
        """
        await self.drained()
        self.post(message)

    def next_request(self) -> int:
        """A request number that this connection hasn't given before."""
        self._last_request += 1
        return self._last_request

    def ask(self, message: Numbered, on_answer: Callable[[object], None]) -> None:
        """Post a request; *on_answer* gets each message that comes back with its number,
        `Failure` included, until `forget`.

        It is called in the reader, so it must not wait.  When the connection ends it gets
        the `ConnectionLostError`, as its last call.

        Raises:
          ConnectionLostError: if the connection has ended; *on_answer* is not called.
          ValueError: if a field is out of its bounds.
        """
        assert message.request not in self._callbacks, "the request number is in use"
        self.post(message)
        self._callbacks[message.request] = on_answer

    def probe(self, message: Numbered) -> None:
        """Post a request whose answer only shows that the peer is live; its content is dropped.

        Raises:
          ConnectionLostError: if the connection has ended.
        """
        self.post(message)
        self._probe = message.request
        self._probed_at = self._clock.now()

    def forget(self, request: int) -> None:
        """Drop further answers to *request*.  Harmless if it was never asked."""
        self._callbacks.pop(request, None)

    async def request(self, message: Numbered, expected: type[_T], timeout_s: float) -> _T:
        """Send one request and wait for its one answer.

        A time-out ends the connection, because the peer may still carry the request out, and this
        connection has no way to find out.  Cancelled: the answer is dropped.

        Raises:
          RefusedError: if the peer answered with a `Failure`, or is too old to know *message*.
          ConnectionLostError: if the connection ended, or no answer came in time; the peer may
              have carried the request out.
          ProtocolError: if the answer is of another class; the connection is ended.
          ValueError: if a field is out of its bounds.
        """
        return await answer_to(
            self, message, expected, clock=self._clock, timeout_s=timeout_s, abort=self._abort
        )

    async def close(self, code: int = 1000, reason: str = "", *, grace_s: float = 0.0) -> None:
        """Close gracefully: send what was posted (within `CLOSE_TIMEOUT_S`), then close the link
        with *code* and *reason*.

        With *grace_s*, new requests of the peer are refused from now on, and the connection waits
        up to *grace_s* seconds for its earlier requests to be answered.
        """
        try:
            if grace_s:
                self._refuses_requests = True
                with self._clock.timeout(grace_s):
                    while self._unanswered and self._end is None:
                        await self._room.park()
            self._begin_close(code, reason, f"closed by this side: {reason or code}")
            if self._running:
                await self._flush()
        finally:
            self._begin_close(code, reason, f"closed by this side: {reason or code}")
            self._scope.cancel()
        if self._running:
            await self._ended.wait()
        else:
            await self._link.aclose(self._close_code, self._close_reason)

    # --- the two tasks ---------------------------------------------------------------

    async def run(
        self,
        on_message: Callable[[Any], None],
        *,
        on_end: Callable[[], None] = lambda: None,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Read and write until either side closes the connection; then close the link.

        *on_message* gets the requests and notices of the peer, one after the other, and must not
        wait.  An `OctopiError` that it raises for a request becomes the answer.  Any other
        exception is logged and ends this connection only.
        *on_end* is called once, as soon as the connection has ended and before the link is closed,
        which takes a while if the peer hangs.
        """
        self._running = True
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._write)
                    task_status.started()
                    await self._read(on_message)
        finally:
            self._finish()
            try:
                on_end()
                await self._link.aclose(self._close_code, self._close_reason)
            finally:
                self._ended.set()

    async def _read(self, on_message: Callable[[Any], None]) -> None:
        take = partial(self._take_data, on_message)
        try:
            while True:
                # One scope for many messages: entering one for each would cost more than
                # all else that happens to a small message here.
                with self._clock.timeout(self._time_left()):
                    await self._read_all(take)
                    return
                self._keep_time()
        except ProtocolError as error:
            _log.sparing(self._clock).info("peer_refused", peer=peer_shown(self), error=str(error))
            await self._refuse(error)
        except Exception:
            # A bug in the handler of messages: this peer is told, other connections go on.
            _log.sparing(self._clock).exception("message_handler_failed", peer=peer_shown(self))
            await self._refuse(ProtocolError("the node failed internally", Status.INTERNAL))

    async def _read_all(self, take: Callable[[bytes | memoryview], bool]) -> None:
        while self._fault is None:
            if self._is_full:
                while self._is_full:
                    await self._room.park()
                self._last_received_at = self._clock.now()  # the peer may have sent meanwhile
            if self._bucket is not None:
                await self._pace(self._bucket)
                self._last_received_at = self._clock.now()
            try:
                await self._link.receive_all(take, self.turn)
            except ConnectionLostError as error:
                self._abort(str(error))
                return
        raise self._fault

    async def _pace(self, bucket: TokenBucket) -> None:
        """Wait while the peer and the other connections of its token are over their rate."""
        while self._end is None and (wait_s := bucket.wait_s(self._clock.now())) > 0:
            self._last_received_at = self._clock.now()
            await self._clock.sleep_until(self._clock.now() + min(wait_s, _PACE_S))

    def _take_data(self, on_message: Callable[[Any], None], data: bytes | memoryview) -> bool:
        """Handle a message from the link.  False: the reader has to pause before the next one."""
        self._last_received_at = self._clock.now()
        self._received_count += 1
        self._received_bytes += len(data)
        if self._bucket is not None:
            self._bucket.spend(len(data), self._last_received_at)
        if self._end is not None:
            return True
        try:
            self._take(decode(data, self._receives), on_message)
        except Exception as error:  # the reader tells the peer
            self._fault = error
            return False
        if self._bucket is not None and self._bucket.wait_s(self._last_received_at) > 0:
            return False
        return not self._is_full

    def _time_left(self) -> float:
        """Seconds until `_keep_time` may have something to do."""
        if self._sending_since is None:
            due = self._sent_at + self._heartbeat_interval_s
        else:
            due = self._sending_since + SEND_TIMEOUT_S
        if not self._is_full:
            due = min(due, self._listened_at + self._heartbeat_timeout_s)
        return max(0.0, due - self._clock.now())

    def _keep_time(self) -> None:
        """End the connection if the peer hangs; send a heartbeat if one is due."""
        now = self._clock.now() + _CLOCK_RESOLUTION_S
        if self._sending_since is not None:
            if now >= self._sending_since + SEND_TIMEOUT_S:
                self._abort(f"{self.peer} took nothing for {SEND_TIMEOUT_S:g} s")
        elif now >= self._sent_at + self._heartbeat_interval_s:
            self._sent_at = self._clock.now()
            if self._end is None and not self.outbox.messages:
                self.outbox.put(_HEARTBEAT)
                self._work.unpark()
        if not self._is_full and now >= self._listened_at + self._heartbeat_timeout_s:
            unfinished = self.memory.incoming.held(UNFINISHED)
            what = "has not finished a message" if unfinished else "was silent"
            code = close_code(Status.TOO_SLOW) if unfinished else GOING_AWAY
            self._abort(f"{self.peer} {what} for {self._heartbeat_timeout_s:g} s", code)

    @property
    def _listened_at(self) -> float:
        """Since when the peer has been silent while we read; infinite while we don't read."""
        waits_until = -math.inf if self.turn is None else self.turn.waits_until
        return max(self._last_received_at, waits_until)

    @property
    def _is_full(self) -> bool:
        if self._end is not None:
            return False
        outbox = self.outbox
        if outbox.size_bytes > MEMORY_ALLOWANCE_BYTES and outbox.is_full:
            return True
        return self._unanswered.is_full

    def _take(self, message: object, on_message: Callable[[Any], None]) -> None:
        """Hand a message to the handler of requests and notices, or to the caller of `ask`."""
        cls = type(message)
        number: int | None = getattr(message, "request", None)
        if self.turn is not None:
            self.turn.took(cls)
        if cls is not Heartbeat and number != self._probe:
            self._last_payload_at = self._last_received_at
        if cls in REQUESTS and number is not None:
            self._take_request(number, message, on_message)
        elif cls in NOTICES:
            self._hand_over(number, message, on_message)
        elif number is not None:
            on_answer = self._callbacks.get(number)
            if on_answer is not None:
                on_answer(message)
        elif isinstance(message, Failure):
            self._abort(f"{self.peer} ended the connection: {refusal(message)}")
        else:
            assert cls is Heartbeat

    def _take_request(
        self, number: int, message: object, on_message: Callable[[Any], None]
    ) -> None:
        if number in self._unanswered:
            raise ProtocolError(
                f"{TYPE_NAMES[type(message)]}.request: {number} has had no answer yet"
            )
        self._unanswered.add(number, type(message), self._last_received_at)
        if self._refuses_requests:
            self.post(failure(number, Status.SHUTTING_DOWN, "the node is shutting down"))
        else:
            self._hand_over(number, message, on_message)

    def _hand_over(
        self, number: int | None, message: object, on_message: Callable[[Any], None]
    ) -> None:
        try:
            on_message(message)
        except OctopiError as error:
            answer = failure_of(number, error)
            if answer is None:
                raise
            if number is None:
                raise ProtocolError(answer.reason, Status(answer.status)) from error
            if self.turn is not None:
                self.turn.refused(answer.status)
            self.post(answer)

    async def _refuse(self, error: ProtocolError) -> None:
        """Tell the peer what it did wrong, and end the connection."""
        if self._end is None:
            self.post(failure(error.request, error.status, str(error)))
            self._begin_close(close_code(error.status), str(error), f"closed by this side: {error}")
        await self._flush()

    # --- the end ---------------------------------------------------------------------

    def _finish(self) -> None:
        self._begin_close(GOING_AWAY, "", "closed by this side")
        assert self._end is not None
        self._flushed.set()
        callbacks, self._callbacks = self._callbacks, {}
        for on_answer in callbacks.values():
            try:
                on_answer(self._end)
            except Exception:
                _log.sparing(self._clock).exception("answer_handler_failed", peer=peer_shown(self))
        self._unanswered.clear()
        self.outbox.close(str(self._end))
        self.memory.close()
