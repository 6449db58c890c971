"""The addresses of the registers, as one broker tries them: the one that was active last first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from octopi.errors import RefusedError, Status


class RegisterAddresses:
    """At least one address, in the order in which to try them."""

    def __init__(self, addresses: Iterable[str]) -> None:
        self._addresses = list(addresses)
        assert self._addresses

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._addresses))

    @property
    def first(self) -> str:
        """The one to try next."""
        return self._addresses[0]

    def prefer(self, address: str) -> None:
        """The register at *address* is the active one."""
        if address in self._addresses:
            self._addresses.remove(address)
            self._addresses.insert(0, address)

    def failed(self, address: str) -> None:
        """There is no active register at *address* now: try it last."""
        if address in self._addresses:
            self._addresses.remove(address)
            self._addresses.append(address)

    def redirected(self, refusal: RefusedError) -> bool:
        """Whether *refusal* came from a standby that names an active register; it is the first
        one now."""
        if refusal.status != Status.NOT_LEADER or refusal.address not in self._addresses:
            return False
        self.prefer(refusal.address)
        return True
