"""TLS: the certificate that a node presents, and the authorities that it trusts.

With an authority of their own, nodes verify each other: a node that connects presents its server
certificate, and requests that only brokers may send are refused without a certificate of that
authority (`octopi.admin.http_access`).  Browsers and other clients need no certificate.
"""

from __future__ import annotations

import ssl

import attrs

from octopi.errors import InvalidOptionError


@attrs.frozen
class Tls:
    """The two sides of a node, or of a client."""

    client: ssl.SSLContext
    """For connecting to ``wss://``."""
    server: ssl.SSLContext | None = None
    """For listening; None: the node listens without TLS."""


def tls_of_client(ca_file: str | None = None) -> Tls:
    """Trust *ca_file*, or the system's authorities.

    Raises:
      InvalidOptionError: if the file is no good.
    """
    return Tls(_client(ca_file))


def tls_of_node(cert_file: str, key_file: str, ca_file: str | None) -> Tls:
    """Present *cert_file* in both directions; trust *ca_file*, or the system's authorities.

    Raises:
      InvalidOptionError: if a file is no good.
    """
    client = _client(ca_file)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.minimum_version = ssl.TLSVersion.TLSv1_2
    server.set_alpn_protocols(["http/1.1"])
    for context in (client, server):
        try:
            context.load_cert_chain(cert_file, key_file)
        except (OSError, ssl.SSLError) as error:
            raise InvalidOptionError(
                f"no certificate and key in {cert_file} and {key_file}: {_explained(error)}"
            ) from None
    if ca_file:
        server.load_verify_locations(ca_file)
        server.verify_mode = ssl.CERT_OPTIONAL
    return Tls(client, server)


def _client(ca_file: str | None) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=ca_file or None)
    except (OSError, ssl.SSLError) as error:
        raise InvalidOptionError(f"no authority in {ca_file}: {_explained(error)}") from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def _explained(error: OSError) -> str:
    return error.strerror or type(error).__name__
