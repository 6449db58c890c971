"""What nodes of each kind do before they run, from their settings."""

from __future__ import annotations

import shlex

from octopi.cli.config import BrokerSettings, NodeSettings
from octopi.cli.failures import CommandError, ExitCode
from octopi.cli.secret_files import secret_of_broker
from octopi.cli.workers import check_single
from octopi.logger import bind, get_logger
from octopi.operating_system import allow_many_files, is_open_to_others
from octopi.security.join_secret import SecretSource
from octopi.transport.addresses import is_secure, server_address

_log = get_logger(__name__)


def begin_broker(settings: BrokerSettings, common: NodeSettings) -> SecretSource:
    """Do what a broker of any cluster does first; return its join secret.

    Raises:
      CommandError: if the settings contradict each other.
      InvalidOptionError: if the address to advertise is none.
    """
    check_single(settings.data_dir)
    refuse_plain_address(settings.advertise, common)
    allow_many_files()
    bind(role="broker")
    warn_of_others(settings.data_dir)
    return secret_of_broker(common.join_secret)


def addresses_in(text: str) -> list[str]:
    """The addresses in *text*, which commas separate."""
    return [one.strip() for one in text.split(",") if one.strip()]


def refuse_plain_address(advertise: str, common: NodeSettings) -> None:
    """Refuse to advertise an address without TLS for a broker that serves with TLS only: clients
    and other brokers would be sent there, and would never reach it."""
    if not advertise:
        return
    server_address(advertise)
    if common.tls_cert and not is_secure(advertise):
        raise CommandError(
            f"this broker serves with TLS, and {advertise} is an address without: nothing that is "
            f"sent there could connect; advertise wss://{advertise.partition('://')[2]} "
            "(--advertise, OCTOPI_ADVERTISE, broker.advertise)",
            ExitCode.USAGE,
        )


def warn_of_others(directory: str) -> None:
    """Warn if other users can access a data directory that existed before.  Its permissions are not
    changed, because they may be intended."""
    if is_open_to_others(directory):
        _log.warning(
            "the data directory is open to other users",
            directory=directory,
            next=f"chmod -R go-rwx {shlex.quote(directory)}",
        )
