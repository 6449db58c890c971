"""The mask that a WebSocket client puts on what it sends (RFC 6455 section 5.3).

It keeps scripts of browsers from writing bytes of their choice to what lies between; it is no
secret.  For a batch it has to be vectorised: in plain Python it costs a hundred times as much
(300 us for 128 KiB), more than everything else that happens to the batch on its way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from wsproto.frame_protocol import XorMaskerSimple

Buffer = bytes | bytearray | memoryview


def apply_mask_slowly(data: Buffer, mask: bytes) -> bytes:
    """*data* with the 4 bytes of *mask* on it, or off it: the same."""
    return bytes(XorMaskerSimple(mask).process(bytearray(data)))


def _quickest() -> Callable[[Buffer, bytes], bytes]:
    try:
        from websockets.speedups import apply_mask as quick
    except ImportError:  # it was installed without its extension
        return apply_mask_slowly
    return quick


apply_mask: Final = _quickest()
"""`apply_mask_slowly`, as quickly as can be had."""
