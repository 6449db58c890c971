"""Decoders with faults, for tests of the fuzzer: ``octopi:SIZE:CONTENT``."""

from __future__ import annotations


def check_sound(data: bytes) -> bool:
    """Without a fault."""
    if not data.startswith(b"octopi"):
        return False
    parts = data.split(b":")
    return len(parts) == 3


def check_nested(data: bytes) -> bool:
    """Raises IndexError behind four checks: ``octopi:4:`` with less than 4 bytes behind it."""
    if not data.startswith(b"octopi"):
        return True
    parts = data.split(b":")
    if len(parts) != 3:
        return True
    if not parts[1].isdigit():
        return True
    if parts[1] == b"4":
        parts[2][3]
    return True


def check_endless(data: bytes) -> bool:
    """Never ends if there are five colons."""
    while data.count(b":") >= 5:
        pass
    return True
