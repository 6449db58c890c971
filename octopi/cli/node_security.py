"""Makes the security of a node from its settings: TLS, tokens and allowed origins."""

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
from octopi.security.origins import allowed_place, is_loopback
from octopi.security.quotas import Quota
from octopi.security.tls import Tls, tls_of_node
from octopi.transport.addresses import host_and_port, listen_address
from octopi.transport.handshake import TokenSource


@attrs.frozen
class NodeSecurity:
    """TLS, tokens and access policy of a node."""

    access: HttpAccessPolicy
    tls: Tls | None
    token: TokenSource
    """Returns the token that the node authenticates with at other nodes."""

    @property
    def authenticator(self) -> Authenticator | None:
        """Authenticates connections.  None disables authentication."""
        return self.access.authenticator


def protection(settings: NodeSettings, listen: str) -> NodeSecurity:
    """The security of a node with *settings* that listens at *listen*.

    Raises:
      CommandError: if settings contradict each other, or would accept the network without tokens.
      InvalidOptionError: if a file is invalid.
    """
    authenticator = _authenticator(settings)
    host, port = listen_address(listen)
    if authenticator is None and not settings.insecure and not is_loopback(host):
        raise CommandError(
            f"every client that reaches {host_and_port(host or '*', port)} could do anything: "
            "require tokens with --auth-keys FILE, listen at 127.0.0.1, or add --insecure",
            ExitCode.USAGE,
        )
    if bool(settings.tls_cert) != bool(settings.tls_key):
        raise CommandError(
            "--tls-cert and --tls-key need each other: give both, or neither", ExitCode.USAGE
        )
    if settings.tls_ca and not settings.tls_cert:
        raise CommandError(
            "--tls-ca needs a certificate of the node: give --tls-cert and --tls-key, too",
            ExitCode.USAGE,
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
    quota = Quota(settings.token_topics, settings.token_stored_bytes, settings.token_readings)
    limits = TokenLimits(settings.token_connections, settings.token_bytes_per_s, quota)
    return Authenticator(keys, SystemClock(), limits)


def _origins(text: str) -> tuple[str, ...]:
    origins = tuple(one.strip() for one in text.split(",") if one.strip())
    for origin in origins:
        if allowed_place(origin) is None or not origin.startswith(("http://", "https://")):
            raise CommandError(
                f"--allow-origin {origin!r} is not an origin: "
                "write http://host:port, https://host, or http://host:* for every port",
                ExitCode.USAGE,
            )
    return origins


def _no_token() -> None:
    return None
