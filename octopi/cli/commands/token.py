"""`octopi-node token`: make keys and tokens, and look at tokens."""

from __future__ import annotations

import re
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click

from octopi.cli.failures import CommandError, ExitCode
from octopi.cli.invocation import common_options, json_option
from octopi.cli.key_files import read_keys, refuse_existing, write_secret
from octopi.cli.output import print_json, say

_UNITS_S: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


@click.group()
def token() -> None:
    """Make keys and tokens, and look at tokens.

    \b
    A secret that nodes and whoever makes tokens share:
      octopi-node token keygen keys.json
      octopi-node --role register --auth-keys keys.json --data-dir ./register
    For brokers, and for an application:
      octopi-node token create --key keys.json --subject node --replicate '*' > node.token
      octopi-node token create --key keys.json --subject shop --publish 'orders.*' --ttl 1h
    """


@token.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--public",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Make a key pair (EdDSA): FILE, for nodes, verifies; the other one signs.",
)
@common_options
def keygen(file: Path, public: Path | None) -> None:
    """Make a key set with one new key, in FILE, which must not exist.

    \b
    For instance:
      octopi-node token keygen keys.json
      octopi-node token keygen signing.json --public keys.json

    Without --public the key is a secret (HS256): every node that verifies tokens with it
    could make some, too.
    """
    from octopi.operating_system import SystemRandomness
    from octopi.security.tokens import SECRET_BYTES_MIN, secret_key, signing_key_pair

    randomness = SystemRandomness()
    name = randomness.token_bytes(4).hex()
    if public is None:
        write_secret(file, _key_set(secret_key(name, randomness.token_bytes(SECRET_BYTES_MIN))))
        say(f"{file}: key {name} signs and verifies; keep it secret", err=True)
        return
    refuse_existing(public)
    signing, verifying = signing_key_pair(name)
    write_secret(file, _key_set(signing))
    write_secret(public, _key_set(verifying), mode=0o644)
    say(f"{file}: key {name} signs; keep it secret", err=True)
    say(f"{public}: key {name} verifies; give it to nodes (--auth-keys)", err=True)


@token.command()
@click.option(
    "--key",
    "key_file",
    required=True,
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Key set with the key that signs.",
)
@click.option("--subject", required=True, help="Who holds it: limits count by this name.")
@click.option("--ttl", metavar="TIME", help="How long it lasts: 30s, 15m, 1h, 7d.  [default: 1h]")
@click.option("--forever", is_flag=True, help="Let it last until its key is taken away.")
@click.option("--create", multiple=True, metavar="PATTERN", help="Create these topics.")
@click.option("--publish", multiple=True, metavar="PATTERN", help="Append to these topics.")
@click.option("--subscribe", multiple=True, metavar="PATTERN", help="Read these topics.")
@click.option(
    "--admin", multiple=True, metavar="PATTERN", help="Delete these topics; '*': operate brokers."
)
@click.option("--replicate", multiple=True, metavar="PATTERN", help="'*': be a broker.")
@click.option(
    "--cluster",
    "clusters",
    multiple=True,
    metavar="ID",
    help="Good for this cluster only, which `status` names.  Repeat for more.  [default: any "
    "that knows the key]",
)
@click.option("--quota-topics", type=click.IntRange(min=0), help="Have created so many topics.")
@click.option(
    "--quota-bytes", type=click.IntRange(min=0), help="Have so many bytes stored at a broker."
)
@click.option(
    "--quota-subscriptions",
    type=click.IntRange(min=0),
    help="Have so many subscriptions at a broker.",
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
    quota_subscriptions: int | None,
    **verbs: tuple[str, ...],
) -> None:
    """Print a token.  PATTERN is a topic's name, with * for any characters.

    \b
    For instance:
      octopi-node token create --key keys.json --subject shop \\
        --publish 'orders.*' --subscribe '*' --ttl 1h > shop.token
    """
    from octopi.operating_system import SystemClock
    from octopi.security.quotas import Quota

    if forever and ttl is not None:
        raise CommandError("--forever and --ttl exclude each other", ExitCode.USAGE)
    wanted = {verb: list(patterns) for verb, patterns in verbs.items() if patterns}
    if not wanted:
        raise CommandError("grant something: --publish, --subscribe, ...", ExitCode.USAGE)
    keys = read_keys(key_file)
    ttl_s = None if forever else _seconds(ttl or "1h")
    quota = Quota(quota_topics, quota_bytes, quota_subscriptions)
    now_ms = SystemClock().wall_ms()
    say(keys.sign(subject, wanted, now_ms, ttl_s, clusters=clusters, quota=quota))


@token.command()
@click.argument("file", required=False, type=click.Path(path_type=Path, dir_okay=False))
@json_option
@common_options
def show(file: Path | None, as_json: bool) -> None:
    """Print what the token in FILE (or on standard input) says.  Nothing is verified.

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


def _key_set(entry: dict[str, str]) -> str:
    import json

    return json.dumps({"keys": [entry]}, indent=2) + "\n"


def _seconds(text: str) -> float:
    found = re.fullmatch(r"([0-9]{1,6})([smhd])", text, re.ASCII)
    if found is None:
        raise CommandError(
            f"--ttl is a time such as 30s, 15m, 1h or 7d, not {text!r}", ExitCode.USAGE
        )
    return int(found[1]) * _UNITS_S[found[2]]


def _time(seconds: object) -> str:
    if not isinstance(seconds, int | float):
        return "never"
    return datetime.fromtimestamp(seconds, UTC).isoformat()
