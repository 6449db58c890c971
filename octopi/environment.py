"""The interfaces of a node to its environment: clock, network, disk, randomness, and the observer
of steps.

A node is built with an `Environment` and uses nothing else of the outside.  In production its parts
are those of `octopi.operating_system`; the simulator gives virtual ones.  This module only declares
the interfaces.

Costs have decided which calls are async: an append to the page cache takes about 5 us and a change
of threads 140 us, so `File.append`, `pread` and `truncate` are plain calls, while `File.sync` waits
for the device (about 1 ms) and is async.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

import attrs
import trio

from octopi.limits import MESSAGE_BYTES_MAX


class Clock(Protocol):
    """Time as one node sees it."""

    def now(self) -> float:
        """Seconds on a clock that never goes back, from an arbitrary zero."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC, for time stamps only, since this clock may jump."""

    async def sleep_until(self, deadline: float) -> None:
        """Return when `now` has reached *deadline*."""

    def timeout(self, seconds: float) -> trio.CancelScope:
        """A cancel scope, to be entered at once, that ends after *seconds*."""


Stopwatch = Callable[[], float]
"""Seconds on a scale of its own, to measure how long a task works before others have their turn.
In virtual time it stands still, since work takes no time there."""


def standing_still() -> float:
    """The stopwatch of virtual time."""
    return 0.0


class Turn(Protocol):
    """A turn of one task: bounds how long the task works before others have their turn."""

    is_over: bool
    """Whether the turn had lasted long enough when `look` was called last."""
    useless_count: int
    """The number of useless frames that were read in the turn; the reader of frames counts
    them."""

    def begin(self) -> bool:
        """Begin to work, if the task may do so now.  If not, call `wait`, which begins, too."""

    async def wait(self) -> None:
        """Wait for the turn, and begin."""

    def look(self) -> None:
        """Set `is_over`."""

    def end(self) -> None:
        """End the turn: the task does no work until the next `begin`.  Safe to call twice."""

    async def give_way(self) -> None:
        """End this turn, let all others have theirs, and begin the next one."""


class Memory(Protocol):
    """Memory that several links share."""

    ample_bytes: int
    """How much each link may use without asking."""


class Intake(Protocol):
    """Bounds how much a link may read, and how much of that it may keep."""

    @property
    def pool(self) -> Memory:
        """The memory that is shared with other links."""

    def room(self, wanted_bytes: int) -> int:
        """How many of *wanted_bytes* may be read now; 0: `wait` first."""

    async def wait(self, wanted_bytes: int, missing_bytes: int) -> None:
        """Wait for room for some of *wanted_bytes*.  *missing_bytes*: how many bytes are missing of
        the message that has begun to arrive, as far as that is known."""

    def keep(self, size_bytes: int) -> None:
        """The link keeps *size_bytes* now of the bytes that it has read."""


class Link(Protocol):
    """A two-way stream of whole binary messages, in order, between two nodes.

    One task sends and one receives.  After a cancelled send the link is unusable, and has to be
    closed with `aclose`.
    """

    @property
    def peer(self) -> str:
        """The other side's address, for people to read."""

    @property
    def path(self) -> str:
        """The endpoint that the connecting side asked for, such as ``/v1/client``."""

    async def send(self, data: bytes) -> None:
        """Send one message.

        Raises:
          ConnectionLostError: if the link is gone.
        """

    def offer(self, *parts: bytes) -> bool:
        """Send one message, which consists of *parts*, without waiting and without giving way to
        other tasks, if possible.
        False: not all of it was sent, so pass the same message to `send` next.  Don't call it
        while a `send` is under way."""

    async def receive(self, bytes_max: int = MESSAGE_BYTES_MAX) -> bytes:
        """Wait for the next message, of at most *bytes_max*.  Of a longer message not much more
        than that is ever kept, and no message can be received after it.

        Raises:
          ConnectionLostError: if the link is gone.
          ProtocolError: if the peer sent something else than a binary message of legal size.
        """

    async def receive_all(
        self, take: Callable[[bytes | memoryview], bool], turn: Turn | None = None
    ) -> None:
        """Call *take* with each message that arrives, until it returns false.  This is `receive` in
        a loop, which a link may do faster.  *take* doesn't wait, and raises nothing.  If it is
        cancelled, no message is lost.

        A client's large message may come as a view that can't be written to, of memory that is used
        again when no view of it exists any more.

        *turn*: bounds how long the link works before other tasks have their turn.  A link that
        gives way to other tasks after each message may ignore it.

        Raises:
          ConnectionLostError: if the link is gone.
          ProtocolError: if the peer sent something else than a binary message of legal size.
        """

    def settle(self, *, is_client: bool) -> bool:
        """The peer of an accepted link has said who it is: a client, or else a member of the
        cluster.  Before that the peer is a stranger, and the link may be closed in favour of a
        newer one.  False: the node has no slot for another client; close the link."""

    def meter(self, intake: Intake) -> None:
        """From now on, read in `receive_all` only as much as *intake* has room for.  A link that
        keeps no parts of messages may ignore this."""

    async def aclose(self, code: int = 1000, reason: str = "") -> None:
        """Close with a WebSocket close *code* (RFC 6455 section 7.4) and a *reason* of at
        most 123 bytes.  It has a time limit of its own, and is safe to call twice and when
        cancelled."""


class Net(Protocol):
    """Makes and accepts links."""

    async def connect(self, url: str, path: str) -> Link:
        """Open a link to the endpoint *path* of the node at *url* (``ws://host:port``).

        Raises:
          UnreachableError: if that isn't possible now.
        """

    async def listen(
        self,
        address: str,
        handler: Callable[[Link], Awaitable[None]],
        *,
        paths: frozenset[str],
        handler_nursery: trio.Nursery,
        task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Accept links for *paths* at *address* (``host:port``, port 0 picks one) until
        cancelled.  For each link, a task in *handler_nursery* runs *handler*, also after listening
        has ended; the link is closed when the handler returns.  ``started`` gives the url for
        clients.

        Raises:
          UnreachableError: if it can't listen at the address (in use, not of this machine, not
              allowed).
        """


class NonBlockingStream(trio.abc.HalfCloseableStream):
    """A stream that can also be used without a turn of Trio's scheduler.  For a small message, that
    turn costs as much as all other work."""

    @abstractmethod
    def send_nowait(self, parts: Sequence[bytes | memoryview]) -> int:
        """Send *parts*, one behind the other, as far as possible without waiting; return how many
        bytes were sent.  Don't call it while a `send_all` is under way.

        Raises:
          trio.BrokenResourceError: if the other side is gone.
          trio.ClosedResourceError: if this side is closed.
        """

    @abstractmethod
    def receive_nowait(self, bytes_max: int) -> bytes | None:
        """The bytes that have arrived, at most *bytes_max*; None if there are none, empty at the
        end.

        Raises:
          trio.BrokenResourceError: if the other side is gone.
          trio.ClosedResourceError: if this side is closed.
        """

    @abstractmethod
    def receive_into(self, place: memoryview) -> int | None:
        """Like `receive_nowait`, but put the bytes that have arrived at the beginning of *place*,
        and return how many they are."""

    @abstractmethod
    def cut(self) -> None:
        """Close this side at once, without a closing handshake: its descriptor is free when this
        returns.  Tasks that wait for the stream get `trio.ClosedResourceError`."""

    @abstractmethod
    async def wait_readable(self) -> None:
        """Wait until `receive_nowait` returns bytes or raises."""

    @abstractmethod
    async def wait_writable(self) -> None:
        """Wait until `send_nowait` can send something."""


class StreamNet(Protocol):
    """Makes and accepts streams of bytes, on which `octopi.transport` builds links."""

    async def connect(self, host: str, port: int) -> trio.abc.HalfCloseableStream:
        """Open a stream.

        Raises:
          OSError: if that isn't possible.
        """

    async def listen(self, host: str, port: int) -> Listening:
        """Listen at an address; port 0 picks a free port.

        Raises:
          OSError: if that isn't possible.
        """


@attrs.frozen
class Listening:
    """The listeners at an address."""

    listeners: list[trio.abc.Listener[trio.abc.HalfCloseableStream]]
    port: int


class File(Protocol):
    """An open file.  Appended data survives the process; synced data survives the machine's power
    failure."""

    @property
    def path(self) -> str:
        """The path of the file, for people to read."""

    @property
    def size_bytes(self) -> int:
        """The length of the file."""

    def append(self, data: bytes | memoryview) -> None:
        """Write all of *data* at the end, into the page cache.

        Raises:
          OSError: if that fails; then any prefix of *data* may be in the file.
        """

    def pread(self, size_bytes: int, position_bytes: int) -> bytes:
        """Up to *size_bytes* from *position_bytes* on; fewer only at the end of the file."""

    def rewrite(self, size_bytes: int, position_bytes: int) -> None:
        """Write the bytes there once more, unchanged, so that the next sync brings them to the
        device even if a sync of them has failed before, in this process or another one."""

    def truncate(self, size_bytes: int) -> None:
        """Cut the file to *size_bytes*."""

    async def sync(self) -> None:
        """Wait until the data is on the device (fdatasync, or syncfs together with other files).

        Not interrupted by cancellation once begun.

        Raises:
          OSError: if that fails; then it is unknown what the device has, even if a second call
              succeeds.
        """

    def close(self) -> None:
        """Close the file; safe to call twice."""


@attrs.frozen
class DiskSpace:
    """How full a file system is."""

    free_bytes: int
    """How much this process may still write."""
    total_bytes: int


class DirectoryLock(Protocol):
    """A held lock on a directory; it ends with the process or by `release`."""

    def release(self) -> None:
        """Release the lock; safe to call twice."""


class Disk(Protocol):
    """One node's files.  Paths are ``/``-separated."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and appending.

        Raises:
          FileNotFoundError: if there is no such file and *create* is false.
          OSError: for any other error of the system.
        """

    def read_file(self, path: str) -> bytes:
        """The whole content of a small file.

        Raises:
          FileNotFoundError: if there is no such file.
        """

    async def replace_file(self, path: str, data: bytes) -> None:
        """Replace the content of the file by *data*, atomically and durably: write another file,
        sync it, rename it, and sync the directory.  After a failure at any point, the file has its
        whole old or its whole new content."""

    def make_directory(self, path: str) -> None:
        """Make the directory and its parents, as far as they are missing."""

    def list_directory(self, path: str) -> list[str]:
        """The names in the directory, sorted; empty if there is no such directory."""

    def is_link(self, path: str) -> bool:
        """Whether the last name of *path* is a symbolic link; False if there is no such file."""

    def remove(self, path: str) -> None:
        """Remove a file or a symbolic link; the target of a link stays."""

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory."""

    def rename(self, old: str, new: str) -> None:
        """Rename a file or directory, replacing *new* if it is a file."""

    async def sync_directory(self, path: str) -> None:
        """Wait until all changes of names in the directory are on the device."""

    def room(self, path: str) -> DiskSpace | None:
        """The space of the file system with *path*; None: it is unbounded or unknown."""

    def page_cache_id(self) -> str:
        """An id of the machine's page cache.  If it has changed, the machine has started again, and
        data that was not synced may be lost."""

    def lock_directory(self, path: str) -> DirectoryLock:
        """Lock *path* against other processes.

        Raises:
          DirectoryInUseError: if another process holds it.
        """


class Randomness(Protocol):
    """A source of randomness; each node has one."""

    def random(self) -> float:
        """A number in [0, 1), for jitter and choice."""

    def token_bytes(self, count: int) -> bytes:
        """*count* bytes that can't be guessed, for ids."""


class TraceEvent(Protocol):
    """A moment that a node has reached, such as a step of `octopi.tracing.steps`."""

    @property
    def text(self) -> str:
        """A description of the event."""

    @property
    def facts(self) -> Mapping[str, Any]:
        """The fields of the event, by name."""

    def values(self) -> tuple[Any, ...]:
        """The values of the fields, in the same order."""


Trace = Callable[[TraceEvent], None]
"""Called with each step that the node reaches; doesn't wait."""


class Machine(Protocol):
    """A state machine that can check itself."""

    def check_invariants(self) -> None:
        """Assert the invariants of the machine's state."""


Audit = Callable[[Machine], None]
"""Called with a machine after each of its events; doesn't wait."""


class Sized(Protocol):
    """An object that holds things whose number or size must stay bounded."""

    def sizes(self) -> dict[str, int]:
        """How much it holds of each kind, by name: for people, and for checks of the bounds."""


Watch = Callable[[Sized], None]
"""Called once with each object whose sizes must stay within bounds."""


@attrs.frozen
class Environment:
    """Everything of the outside that a node may use."""

    clock: Clock
    net: Net
    disk: Disk
    randomness: Randomness
    trace: Trace | None = None
    """The observer of steps.  None: steps are not observed, which costs nothing."""
    audit: Audit | None = None
    """Called with a machine after each of its events, to check its invariants.  None: they are not
    checked, which costs nothing."""
    watch: Watch | None = None
    """Called with each object that has sizes.  None: they are not observed."""
    stopwatch: Stopwatch = standing_still
    """Measures how long work takes."""
