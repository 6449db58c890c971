"""What `octopi-node dev` makes for its cluster, and what it tells its user about it."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Final

import attrs

from octopi.cli.config import DEFAULT_SERVER, NodeSettings
from octopi.cli.key_files import make_certificates, make_secret_key, read_keys, write_secret
from octopi.cli.output import say
from octopi.logger import get_logger
from octopi.operating_system import SystemClock

_log = get_logger(__name__)

_OF_A_NODE: Final = {"replicate": ["*"], "consume": ["*"]}
_OF_THE_USER: Final = {
    verb: ["*"] for verb in ("admin", "create", "publish", "subscribe", "consume")
}


@attrs.frozen
class DevSecurity:
    """The files with which the nodes of a cluster for development are protected."""

    directory: Path
    has_tls: bool
    has_tokens: bool

    @property
    def _authority(self) -> Path:
        return self.directory / "tls" / "ca.pem"

    @property
    def _token(self) -> Path:
        """Of the user, who may do everything."""
        return self.directory / "user.token"

    def make(self) -> None:
        """Make what is missing.

        Raises:
          CommandError: if a package for it is missing.
          OSError: if a file can't be written.
        """
        self.directory.mkdir(0o700, parents=True, exist_ok=True)
        if self.has_tls and not self._authority.exists():
            make_certificates(self._authority.parent, ())
        if self.has_tokens and not self._token.exists():
            keys = self.directory / "keys.json"
            if not keys.exists():
                make_secret_key(keys)
            now_ms = SystemClock().wall_ms()
            ring = read_keys(keys)
            node = self.directory / "node.token"
            if not node.exists():
                write_secret(node, ring.sign("node", _OF_A_NODE, now_ms, None))
            write_secret(self._token, ring.sign("user", _OF_THE_USER, now_ms, None))

    def settings(self, common: NodeSettings) -> NodeSettings:
        """*common*, with these files."""
        if self.has_tls:
            tls = self._authority.parent
            common = attrs.evolve(
                common,
                tls_cert=str(tls / "node.pem"),
                tls_key=str(tls / "node.key"),
                tls_ca=str(self._authority),
            )
        if self.has_tokens:
            common = attrs.evolve(
                common,
                auth_keys=str(self.directory / "keys.json"),
                token_file=str(self.directory / "node.token"),
            )
        return common

    def variables(self, url: str) -> dict[str, str]:
        """What clients of the cluster at *url* need in their environment."""
        variables = {} if url == DEFAULT_SERVER else {"OCTOPI_SERVER": url}
        if self.has_tls:
            variables["OCTOPI_TLS_CA"] = str(self._authority)
        if self.has_tokens:
            variables["OCTOPI_TOKEN_FILE"] = str(self._token)
        return variables


def greet(url: str, data: str, security: DevSecurity, *, for_people: bool) -> None:
    """Tell the user that the cluster at *url* is ready, and what to do next: in lines for people,
    or else in the log.  *url*: the address of the register, or those of several with commas."""
    console = f"{url.partition(',')[0].replace('ws', 'http', 1)}/console/"
    variables = security.variables(url)
    if not for_people:
        _log.info("cluster ready", server=url, console=console, data=data, environment=variables)
        return
    lines = [("console", console), ("data", data)]
    if variables:
        assigned = " ".join(f"{name}={shlex.quote(one)}" for name, one in variables.items())
        lines.append(("first", f"export {assigned}"))
    lines += [
        ("try", "seq 1000 | octopi-node produce numbers"),
        ("", "octopi-node consume numbers -o earliest -e"),
        ("", "octopi-node status"),
        ("stop", "Ctrl-C"),
    ]
    say(err=True)
    for name, what in lines:
        say(f"  {name:8} {what}", err=True)
    say(err=True)
