"""The registers of `octopi-node dev`: where they listen, and what they share."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import attrs

from octopi.cli.config import RegisterSettings, join_secret_in
from octopi.cli.failures import CommandError, ExitCode
from octopi.cli.free_ports import free_ports
from octopi.cli.secret_files import shared_secret
from octopi.transport.addresses import host_and_port, listen_address

_ONLY: Final = "register"
"""The directory of a register that is alone; those of several have a number behind it."""


@attrs.frozen
class DevRegisters:
    """The registers of a cluster for development."""

    settings: tuple[RegisterSettings, ...]
    join_secret: str
    """The file with the secret that they share with the brokers."""

    @property
    def has_several(self) -> bool:
        """Whether there is more than one."""
        return len(self.settings) > 1


def dev_registers(
    settings: RegisterSettings, directory: Path, count: int, *, has_tls: bool, is_kept: bool
) -> DevRegisters:
    """*count* registers with their data in *directory*, the first of which listens as *settings*
    say, and the others behind it.  *is_kept*: the directory is used again.

    Raises:
      CommandError: if the directory has the data of another number of registers, or the addresses
        of several would be others next time.
      InvalidOptionError: if they can't listen at that address.
      OSError: if the join secret of several can't be written.
    """
    _refuse_other_number(directory, count)
    if count == 1:
        data = str(directory / _ONLY)
        return DevRegisters((attrs.evolve(settings, data_dir=data),), join_secret_in(data))
    host, port = listen_address(settings.listen)
    if port == 0 and is_kept:
        raise CommandError(
            "several registers are known by their addresses, so a cluster that is kept needs the "
            "same ones each time: name a port (--listen HOST:PORT)",
            ExitCode.USAGE,
        )
    ports = [port + behind for behind in range(count)] if port else free_ports(count)
    places = [host_and_port(host, one) for one in ports]
    scheme = "wss" if has_tls else "ws"
    addresses = [f"{scheme}://{one}" for one in places]
    return DevRegisters(
        tuple(
            attrs.evolve(
                settings,
                listen=place,
                advertise=address,
                peers=",".join(addresses),
                data_dir=str(directory / f"{_ONLY}-{number}"),
            )
            for number, (place, address) in enumerate(zip(places, addresses, strict=True), 1)
        ),
        shared_secret(directory),
    )


def _refuse_other_number(directory: Path, count: int) -> None:
    """Refuse to leave registers out, or to add some, which would know nothing of the others."""
    several = len(list(directory.glob(f"{_ONLY}-*")))
    found = 1 if (directory / _ONLY).exists() else several
    if found not in {0, count}:
        raise CommandError(
            f"{directory} is of a cluster with --registers {found}: start it with as many, or name "
            "another --data-dir",
            ExitCode.USAGE,
        )
