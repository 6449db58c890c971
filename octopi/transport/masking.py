"""The mask that a WebSocket client applies to what it sends (RFC 6455 section 5.3).

The mask is no secret.  It keeps scripts in browsers from sending bytes of their choice to proxies
on the way.  For a batch it has to be vectorised: plain Python takes a hundred times as long (300 us
for 128 KiB), longer than all else that is done for the batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from wsproto.frame_protocol import XorMaskerSimple

Buffer = bytes | bytearray | memoryview


def apply_mask_slowly(data: Buffer, mask: bytes) -> bytes:
    """Return *data* XOR the 4 bytes of *mask*, repeated; this masks and unmasks."""
    return bytes(XorMaskerSimple(mask).process(bytearray(data)))


def _quickest() -> Callable[[Buffer, bytes], bytes]:
    try:
        from websockets.speedups import apply_mask as quick
    except ImportError:  # websockets was installed without its C extension
        return apply_mask_slowly
    return quick


apply_mask: Final = _quickest()
"""The same as `apply_mask_slowly`, by the C extension of websockets where there is one."""
