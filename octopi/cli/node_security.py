"""How a node is protected, from its settings: TLS, tokens, and who may come from where."""

from __future__ import annotations

from pathlib import Path

import attrs

from octopi.admin.http_access import HttpAccessPolicy
from octopi.cli.config import NodeSettings
from octopi.cli.failures import CommandError, ExitCode
from octopi.cli.key_files import read_keys
from octopi.cli.token_file import TokenFile
from octopi.operating_system import SystemClock
from octopi.security.authenticator import Authenticator, TokenLimits
from octopi.security.origins import is_loopback, place_of
from octopi.security.quotas import Quota
from octopi.security.tls import Tls, tls_of_node
from octopi.transport.addresses import host_and_port, listen_address
from octopi.transport.handshake import TokenSource


@attrs.frozen
class NodeSecurity:
    """What a node shows, and asks for."""

    access: HttpAccessPolicy
    tls: Tls | None
    token: TokenSource
    """Gives what it shows to other nodes."""

    @property
    def authenticator(self) -> Authenticator | None:
        """Whom it asks about tokens; None: nobody."""
        return self.access.authenticator


def protection(settings: NodeSettings, listen: str) -> NodeSecurity:
    """What *settings* ask for, for a node that listens at *listen*.

    Raises:
      CommandError: if that can't be had, or would let the whole network in unasked.
      InvalidOptionError: if a file is no good.
    """
    authenticator = _authenticator(settings)
    host, port = listen_address(listen)
    if authenticator is None and not settings.insecure and not is_loopback(host):
        raise CommandError(
            f"whoever reaches {host_and_port(host or '*', port)} could do everything: ask for "
            "tokens with --auth-keys, listen at 127.0.0.1, or say --insecure",
            ExitCode.USAGE,
        )
    if bool(settings.tls_cert) != bool(settings.tls_key):
        raise CommandError("--tls-cert and --tls-key go together", ExitCode.USAGE)
    if settings.tls_ca and not settings.tls_cert:
        raise CommandError(
            "--tls-ca says whom to trust: give --tls-cert and --tls-key, too", ExitCode.USAGE
        )
    tls = None
    if settings.tls_cert:
        tls = tls_of_node(settings.tls_cert, settings.tls_key, settings.tls_ca or None)
    access = HttpAccessPolicy(
        authenticator, _origins(settings.allow_origin), verifies_brokers=bool(settings.tls_ca)
    )
    token: TokenSource = TokenFile(settings.token_file) if settings.token_file else _no_token
    return NodeSecurity(access, tls, token)


def _authenticator(settings: NodeSettings) -> Authenticator | None:
    if not settings.auth_keys:
        return None
    keys = read_keys(Path(settings.auth_keys))
    quota = Quota(settings.token_topics, settings.token_stored_bytes, settings.token_subscriptions)
    limits = TokenLimits(settings.token_connections, settings.token_bytes_per_s, quota)
    return Authenticator(keys, SystemClock(), limits)


def _origins(text: str) -> tuple[str, ...]:
    origins = tuple(one.strip() for one in text.split(",") if one.strip())
    for origin in origins:
        if place_of(origin) is None or not origin.startswith(("http://", "https://")):
            raise CommandError(
                f"{origin!r} is no origin: write http://host:port or https://host", ExitCode.USAGE
            )
    return origins


def _no_token() -> None:
    return None
