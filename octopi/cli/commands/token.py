"""`octopi-node token`: make keys and tokens, and print what a token grants."""

from __future__ import annotations

import re
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click

from octopi.cli.failures import CommandError, ExitCode
from octopi.cli.invocation import common_options, json_option
from octopi.cli.key_files import (
    key_set,
    make_secret_key,
    read_keys,
    refuse_existing,
    write_secret,
)
from octopi.cli.output import print_json, say

_UNITS_S: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


@click.group()
def token() -> None:
    """Make keys and tokens, and print what a token grants.

    \b
    A secret key, shared by the nodes and those who make tokens:
      octopi-node token keygen keys.json
      octopi-node --role register --auth-keys keys.json --data-dir ./register
    A token for brokers, and one for an application:
      octopi-node token create --key keys.json --subject node --replicate '*' > node.token
      octopi-node token create --key keys.json --subject shop --publish 'orders.*' --ttl 1h
    """


@token.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--public",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Make a key pair (EdDSA): the public key in FILE, for nodes, verifies tokens; the private "
    "key signs them.",
)
@common_options
def keygen(file: Path, public: Path | None) -> None:
    """Make a key set with one new key in FILE, which must not exist.

    \b
    For instance:
      octopi-node token keygen keys.json
      octopi-node token keygen signing.json --public keys.json

    Without --public the key is secret (HS256): every node that verifies tokens with it
    can also make tokens.
    """
    from octopi.operating_system import SystemRandomness
    from octopi.security.tokens import signing_key_pair

    if public is None:
        name = make_secret_key(file)
        say(f"{file}: key {name} signs and verifies tokens; keep it secret", err=True)
        return
    name = SystemRandomness().token_bytes(4).hex()
    refuse_existing(public)
    signing, verifying = signing_key_pair(name)
    write_secret(file, key_set(signing))
    write_secret(public, key_set(verifying), mode=0o644)
    say(f"{file}: key {name} signs; keep it secret", err=True)
    say(f"{public}: key {name} verifies; give it to nodes (--auth-keys)", err=True)


@token.command()
@click.option(
    "--key",
    "key_file",
    required=True,
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Key set with the signing key.",
)
@click.option("--subject", required=True, help="Name of the token's holder; limits count by it.")
@click.option(
    "--ttl", metavar="TIME", help="Lifetime of the token: 30s, 15m, 1h, 7d.  [default: 1h]"
)
@click.option(
    "--forever",
    is_flag=True,
    help="Make a token that never expires; remove its key from the nodes to revoke it.",
)
@click.option("--create", multiple=True, metavar="PATTERN", help="Create these topics.")
@click.option("--publish", multiple=True, metavar="PATTERN", help="Append to these topics.")
@click.option("--subscribe", multiple=True, metavar="PATTERN", help="Read these topics.")
@click.option(
    "--consume",
    multiple=True,
    metavar="TOPIC/SUBSCRIPTION",
    help="Be a member of these durable subscriptions; * for any characters.",
)
@click.option(
    "--admin",
    multiple=True,
    metavar="PATTERN",
    help="Delete these topics; '*' also operates the cluster.",
)
@click.option(
    "--replicate", multiple=True, metavar="PATTERN", help="'*' lets a broker join the cluster."
)
@click.option(
    "--cluster",
    "clusters",
    multiple=True,
    metavar="ID",
    help="Limit the token to the cluster with this id, which `octopi-node status` prints.  Repeat "
    "for more.  [default: every cluster with the key]",
)
@click.option(
    "--quota-topics",
    type=click.IntRange(min=0),
    help="Topics that the holder may have created, at most.",
)
@click.option(
    "--quota-bytes",
    type=click.IntRange(min=0),
    help="Bytes that a broker stores for the holder, at most.",
)
@click.option(
    "--quota-readings",
    type=click.IntRange(min=0),
    help="Readings of the holder at a broker, at most.",
)
@common_options
def create(
    key_file: Path,
    subject: str,
    ttl: str | None,
    forever: bool,
    clusters: tuple[str, ...],
    quota_topics: int | None,
    quota_bytes: int | None,
    quota_readings: int | None,
    **verbs: tuple[str, ...],
) -> None:
    """Make a token, and print it.  PATTERN is a topic name, with * for any characters.

    \b
    For instance:
      octopi-node token create --key keys.json --subject shop \\
        --publish 'orders.*' --subscribe '*' --ttl 1h > shop.token
    """
    from octopi.operating_system import SystemClock
    from octopi.security.quotas import Quota

    if forever and ttl is not None:
        raise CommandError("--forever and --ttl exclude each other: leave one out", ExitCode.USAGE)
    wanted = {verb: list(patterns) for verb, patterns in verbs.items() if patterns}
    if not wanted:
        raise CommandError(
            "the token would grant nothing: add --create, --publish, --subscribe, --admin or "
            "--replicate",
            ExitCode.USAGE,
        )
    keys = read_keys(key_file)
    ttl_s = None if forever else _seconds(ttl or "1h")
    quota = Quota(quota_topics, quota_bytes, quota_readings)
    now_ms = SystemClock().wall_ms()
    say(keys.sign(subject, wanted, now_ms, ttl_s, clusters=clusters, quota=quota))


@token.command()
@click.argument("file", required=False, type=click.Path(path_type=Path, dir_okay=False))
@json_option
@common_options
def show(file: Path | None, as_json: bool) -> None:
    """Print what the token in FILE (or on standard input) grants.  The token is not verified.

    \b
    For instance:
      octopi-node token show shop.token
    """
    from octopi.security.quotas import CLAIM as QUOTA_CLAIM
    from octopi.security.tokens import CLAIM, read_unverified

    text = sys.stdin.read() if file is None else file.read_text(encoding="ascii", errors="replace")
    said = read_unverified(text.strip())
    if as_json:
        print_json(said)
        return
    granted: dict[str, Any] = said.get(CLAIM) or {}
    say(f"subject  {said.get('sub')}")
    say(f"key      {said.get('kid')} ({said.get('alg')})")
    say(f"expires  {_time(said.get('exp'))}")
    if "aud" in said:
        clusters = said["aud"] if isinstance(said["aud"], list) else [said["aud"]]
        say(f"cluster  {' '.join(map(str, clusters))}")
    for verb, patterns in granted.items():
        say(f"{verb:8} {' '.join(patterns)}")
    quota = said.get(QUOTA_CLAIM)
    for what, most in quota.items() if isinstance(quota, dict) else ():
        say(f"at most  {most} {what}")


def _seconds(text: str) -> float:
    found = re.fullmatch(r"([0-9]{1,6})([smhd])", text, re.ASCII)
    if found is None:
        raise CommandError(
            f"--ttl has to be a time such as 30s, 15m, 1h or 7d, not {text!r}", ExitCode.USAGE
        )
    return int(found[1]) * _UNITS_S[found[2]]


def _time(seconds: object) -> str:
    if not isinstance(seconds, int | float):
        return "never"
    return datetime.fromtimestamp(seconds, UTC).isoformat()
