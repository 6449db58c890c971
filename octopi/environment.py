"""The only door to the outside: clock, network, disk, chance and the trace of steps.

A node is built with an `Environment` and reaches nothing else.  In production its
parts are those of `octopi.operating_system`; the simulator gives virtual ones.  This module
only declares the doors.

Costs shaped them: an append to the page cache takes about 5 us and a thread hop 140 us,
so `File.append`, `pread` and `truncate` are plain calls, while `File.sync` waits for the
device (about 1 ms) and is async.
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
        """Seconds on a clock that never goes back; its zero means nothing."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC, for time stamps only: it may jump."""

    async def sleep_until(self, deadline: float) -> None:
        """Return when `now` has reached *deadline*."""

    def timeout(self, seconds: float) -> trio.CancelScope:
        """A cancel scope, to be entered at once, that ends after *seconds*."""


Stopwatch = Callable[[], float]
"""Seconds that work has taken, on a scale of its own: how long a task goes on without others
having their turn.  It stands still in virtual time, where work takes none."""


def standing_still() -> float:
    """The stopwatch of virtual time."""
    return 0.0


class Turn(Protocol):
    """Of one task: what bounds how long it works before others have their turn."""

    is_over: bool
    """Whether it has lasted long enough, when `look` was called last."""
    useless_count: int
    """Useless frames that were read in it; the reader of frames counts them."""

    def begin(self) -> bool:
        """Begin to work, if that may be now; else `wait` first, which begins, too."""

    async def wait(self) -> None:
        """Wait for the turn, and begin."""

    def look(self) -> None:
        """Say in `is_over` whether the turn is over."""

    def end(self) -> None:
        """Nothing is done any more until the next `begin`; safe to call twice."""

    async def give_way(self) -> None:
        """End this turn, let all others have theirs, and begin the next one."""


class Memory(Protocol):
    """Memory that is shared."""

    ample_bytes: int
    """Anybody may take so much without asking."""


class Intake(Protocol):
    """How much a link may read, and keep of it."""

    @property
    def pool(self) -> Memory:
        """What it comes out of."""

    def room(self, wanted_bytes: int) -> int:
        """How many of *wanted_bytes* may be read now; 0: `wait` first."""

    async def wait(self, wanted_bytes: int, missing_bytes: int) -> None:
        """Wait for room for some of *wanted_bytes*.  So many are missing of the message that has
        begun to come, as far as that is known."""

    def keep(self, size_bytes: int) -> None:
        """So much is kept now of what was read."""


class Link(Protocol):
    """A two-way stream of whole binary messages, in order, between two nodes.

    One task sends and one receives.  A send that is cancelled leaves the link torn: the
    only thing left to do with it is `aclose`.
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

    def offer(self, data: bytes) -> bool:
        """Send one message at once if that takes neither waiting nor another task's turn.
        False: not all of it was sent, so hand the same one to `send` next.  Not to be called
        while a `send` is under way."""

    async def receive(self, bytes_max: int = MESSAGE_BYTES_MAX) -> bytes:
        """Wait for the next message, of at most *bytes_max*: of a longer one not much more
        than that is ever kept, and after it nothing can be received.

        Raises:
          ConnectionLostError: if the link is gone.
          ProtocolError: if the peer sent what is no binary message of legal size.
        """

    async def receive_all(self, take: Callable[[bytes], bool], turn: Turn | None = None) -> None:
        """Call *take* with each message that comes, until it says false: `receive` in a
        loop, which a link may do better.  *take* never waits, and raises nothing.
        Cancelled: no message is lost.

        *turn*: bounds what is done before others have theirs.  A link that hands over one
        message at a time, between two of which others have theirs, has no need of it.

        Raises:
          ConnectionLostError: if the link is gone.
          ProtocolError: if the peer sent what is no binary message of legal size.
        """

    def settle(self, *, is_client: bool) -> bool:
        """The peer of an accepted link has said who it is: a client, or else a member of the
        cluster.  Until then it is a stranger, and may be cut off for one that connects later.
        False: the node has no place for another client; close the link."""

    def meter(self, intake: Intake) -> None:
        """Read from now on only what *intake* has room for, in `receive_all`.  A link that keeps
        no parts of messages has no need of it."""

    async def aclose(self, code: int = 1000, reason: str = "") -> None:
        """Close with a WebSocket close *code* (RFC 6455 section 7.4) and a *reason* of at
        most 123 bytes.  Bounded by itself, safe to call twice and when cancelled."""


class Net(Protocol):
    """Makes and accepts links."""

    async def connect(self, url: str, path: str) -> Link:
        """Open a link to the endpoint *path* of the node at *url* (``ws://host:port``).

        Raises:
          UnreachableError: if that can't be done now.
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
        cancelled.  Each has its task of *handler* in *handler_nursery*, which outlives the
        listening, and is gone when that returns.  ``started`` gives the url that clients
        use.

        Raises:
          UnreachableError: if the address can't be had (in use, not ours, not allowed).
        """


class NonBlockingStream(trio.abc.HalfCloseableStream):
    """A stream that can also be used without a turn of the scheduler, which costs as much as all
    else that happens to a small message."""

    @abstractmethod
    def send_nowait(self, parts: Sequence[bytes | memoryview]) -> int:
        """Send as much of *parts*, one behind the other, as can be sent at once; return how many
        bytes.  Not while a `send_all` is under way.

        Raises:
          trio.BrokenResourceError: if the other side is gone.
          trio.ClosedResourceError: if this side is closed.
        """

    @abstractmethod
    def receive_nowait(self, bytes_max: int) -> bytes | None:
        """What has come, at most *bytes_max*; None if nothing has, empty at the end.

        Raises:
          trio.BrokenResourceError: if the other side is gone.
          trio.ClosedResourceError: if this side is closed.
        """

    @abstractmethod
    def cut(self) -> None:
        """Close this side at once and without a word: its descriptor is free when this returns.
        Tasks that wait for the stream hear that this side is closed."""

    @abstractmethod
    async def wait_readable(self) -> None:
        """Wait until `receive_nowait` has something to say."""

    @abstractmethod
    async def wait_writable(self) -> None:
        """Wait until `send_nowait` can send something."""


class StreamNet(Protocol):
    """Makes and accepts streams of bytes: what `octopi.transport` builds links on."""

    async def connect(self, host: str, port: int) -> trio.abc.HalfCloseableStream:
        """Open a stream.

        Raises:
          OSError: if that can't be done.
        """

    async def listen(self, host: str, port: int) -> Listening:
        """Take an address; port 0 picks a free one.

        Raises:
          OSError: if it can't be had.
        """


@attrs.frozen
class Listening:
    """An address taken."""

    listeners: list[trio.abc.Listener[trio.abc.HalfCloseableStream]]
    port: int


class File(Protocol):
    """An open file.  It survives the process once appended, the machine once synced."""

    @property
    def path(self) -> str:
        """Where it is, for people to read."""

    @property
    def size_bytes(self) -> int:
        """Its length."""

    def append(self, data: bytes | memoryview) -> None:
        """Write all of *data* at the end, into the page cache.

        Raises:
          OSError: and then any prefix of *data* may be in the file.
        """

    def pread(self, size_bytes: int, position_bytes: int) -> bytes:
        """Up to *size_bytes* from *position_bytes* on; fewer only at the end of the file."""

    def truncate(self, size_bytes: int) -> None:
        """Cut the file to *size_bytes*."""

    async def sync(self) -> None:
        """Wait until the data is on the device (fdatasync).

        Not interrupted by cancellation once begun.

        Raises:
          OSError: and then it is unknown what the device holds; trying again proves nothing.
        """

    def close(self) -> None:
        """Let go of the file; safe to call twice."""


@attrs.frozen
class DiskSpace:
    """How full a file system is."""

    free_bytes: int
    """What this process may still write."""
    total_bytes: int


class DirectoryLock(Protocol):
    """A held lock on a directory; ends with the process or by `release`."""

    def release(self) -> None:
        """Let others have the directory; safe to call twice."""


class Disk(Protocol):
    """One node's files.  Paths are ``/``-separated."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and appending.

        Raises:
          FileNotFoundError: if there is none and *create* is false.
          OSError: for what else the system says.
        """

    def read_file(self, path: str) -> bytes:
        """The whole content of a small file.

        Raises:
          FileNotFoundError: if there is none.
        """

    async def replace_file(self, path: str, data: bytes) -> None:
        """Put *data* in the place of the file at once and for good: written beside it,
        synced, renamed, directory synced.  After a failure at any point the old or the new
        content is there, whole."""

    def make_directory(self, path: str) -> None:
        """Make the directory and its parents where they are missing."""

    def list_directory(self, path: str) -> list[str]:
        """The names in it, sorted; empty if there is no such directory."""

    def is_link(self, path: str) -> bool:
        """Whether the last name of *path* is a symbolic link; False if nothing is there."""

    def remove(self, path: str) -> None:
        """Remove a file, or a symbolic link and not what it points to."""

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory."""

    def rename(self, old: str, new: str) -> None:
        """Rename a file or directory, replacing *new* if it is a file."""

    async def sync_directory(self, path: str) -> None:
        """Wait until names made, renamed and removed in it are on the device."""

    def room(self, path: str) -> DiskSpace | None:
        """How much room the file system has that *path* lies on; None: there is no bound, or
        nobody knows."""

    def page_cache_id(self) -> str:
        """The same as long as the page cache lives: after it has changed, what was not synced
        may be lost."""

    def lock_directory(self, path: str) -> DirectoryLock:
        """Hold *path* against other processes.

        Raises:
          DirectoryInUseError: if another process holds it.
        """


class Randomness(Protocol):
    """Randomness, one source a node."""

    def random(self) -> float:
        """A number in [0, 1), for jitter and choice."""

    def token_bytes(self, count: int) -> bytes:
        """*count* bytes that can't be guessed, for ids."""


class TraceEvent(Protocol):
    """Something that a node came to; the protocols' steps are those of `octopi.tracing.steps`."""

    @property
    def text(self) -> str:
        """What it is, in words."""

    @property
    def facts(self) -> Mapping[str, Any]:
        """What it says, by name."""

    def values(self) -> tuple[Any, ...]:
        """What it says, without the names, in the same order."""


Trace = Callable[[TraceEvent], None]
"""Called with each step that the node comes to; never waits."""


class Machine(Protocol):
    """A state machine that can check itself."""

    def check_invariants(self) -> None:
        """Assert what it promises of its own state."""


Audit = Callable[[Machine], None]
"""Called with a machine after each of its events; never waits."""


class Sized(Protocol):
    """Something that holds what has to stay bounded."""

    def sizes(self) -> dict[str, int]:
        """How much it holds of each thing, by name: for people and for bounds to look at."""


Watch = Callable[[Sized], None]
"""Called once with each thing whose sizes are to stay within bounds."""


@attrs.frozen
class Environment:
    """What a node may touch."""

    clock: Clock
    net: Net
    disk: Disk
    randomness: Randomness
    trace: Trace | None = None
    """Observer of steps; None costs nothing."""
    audit: Audit | None = None
    """Called with a machine after each of its events, to check its invariants; None costs
    nothing."""
    watch: Watch | None = None
    """Called with each object that has sizes.  None: they are not observed."""
    stopwatch: Stopwatch = standing_still
    """How long work takes."""
