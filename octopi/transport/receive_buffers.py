"""The buffers that a client receives large messages into, kept from one message to the next.

A block of half a megabyte that is allocated for each message is mapped, cleared and unmapped by the
system each time: at 1 KiB a message that took more processor time than all else in a consumer.  A
node has the C library keep such blocks (`octopi.operating_system.keep_freed_memory`); a library
must not decide that for its program, so it keeps buffers of its own.

What was received is handed on as views.  A buffer is used again only when no view of it exists any
more.  Python counts them: while there is one, a `bytearray` refuses to change its size.  So nothing
that a program keeps can change behind its back, and nobody has to give a buffer back.
"""

from __future__ import annotations

from octopi.limits import IN_PLACE_BYTES_MIN, KEPT_BUFFER_BYTES, KEPT_BUFFERS_COUNT


class ReceiveBuffers:
    """The buffers of one client, for all its connections.

    Invariant: there is no view of a buffer when it is handed out.
    """

    def __init__(self, bytes_min: int = IN_PLACE_BYTES_MIN) -> None:
        """*bytes_min*: the size of the smallest message to receive into them."""
        self.bytes_min = bytes_min
        self._kept: list[bytearray] = []

    def take(self, size_bytes: int) -> memoryview:
        """A place for *size_bytes*, with any content, which belongs to the caller as long as there
        is a view of it."""
        if size_bytes > KEPT_BUFFER_BYTES:
            return memoryview(bytearray(size_bytes))
        for buffer in self._kept:
            if _is_free(buffer):
                return memoryview(buffer)[:size_bytes]
        if len(self._kept) == KEPT_BUFFERS_COUNT:
            return memoryview(bytearray(size_bytes))
        buffer = bytearray(KEPT_BUFFER_BYTES)
        self._kept.append(buffer)
        return memoryview(buffer)[:size_bytes]


def _is_free(buffer: bytearray) -> bool:
    """Whether no view of *buffer* exists."""
    try:
        buffer.pop()
    except BufferError:
        return False
    buffer.append(0)  # the memory of the popped byte is still there, so nothing is moved
    return True
