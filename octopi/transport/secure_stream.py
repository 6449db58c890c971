"""A stream over TLS with the interface of a bare stream.

Does the TLS handshake, and turns its failures into errors with a readable text.  The context
decides which peers are trusted (`octopi.security.tls`).
"""

from __future__ import annotations

import ssl

import trio

from octopi.errors import UnreachableError


class SecureStream(trio.abc.HalfCloseableStream):
    """TLS on a stream, once the handshake is done."""

    def __init__(self, stream: trio.SSLStream[trio.abc.Stream], peer: str) -> None:
        self._stream = stream
        self._peer = peer

    def __str__(self) -> str:
        return self._peer

    @property
    def is_verified(self) -> bool:
        """Whether the peer has shown a certificate that this node trusts."""
        return bool(self._stream.getpeercert())

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def send_eof(self) -> None:
        # TLS can't end one direction alone; the peer ends the stream when it has read everything.
        await trio.lowlevel.checkpoint()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        return bytes(await self._stream.receive_some(max_bytes))

    async def aclose(self) -> None:
        await self._stream.aclose()


async def secure_client(
    stream: trio.abc.Stream, context: ssl.SSLContext, host: str
) -> SecureStream:
    """Do the TLS handshake on *stream* as a client; the node has to prove that it is *host*.
    The caller bounds the time.

    Raises:
      UnreachableError: if the handshake fails; the stream is closed.
    """
    secured = trio.SSLStream(stream, context, server_hostname=host, https_compatible=True)
    return await _shaken(secured, str(stream))


async def secure_server(stream: trio.abc.Stream, context: ssl.SSLContext) -> SecureStream:
    """Do the TLS handshake on *stream* as a server.  The caller bounds the time.

    Raises:
      UnreachableError: if the handshake fails; the stream is closed.
    """
    secured = trio.SSLStream(stream, context, server_side=True, https_compatible=True)
    return await _shaken(secured, str(stream))


async def _shaken(secured: trio.SSLStream[trio.abc.Stream], peer: str) -> SecureStream:
    is_open = False
    try:
        await secured.do_handshake()
        is_open = True
    except trio.BrokenResourceError as error:
        raise UnreachableError(f"no TLS with it: {_problem(error.__cause__ or error)}") from error
    finally:
        if not is_open:
            await trio.aclose_forcefully(secured)
    return SecureStream(secured, peer)


def _problem(error: BaseException) -> str:
    """What OpenSSL says about *error*, without the place in its own sources."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not to be trusted: {error.verify_message}"
    return getattr(error, "reason", None) or str(error) or type(error).__name__
