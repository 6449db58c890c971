"""Settings from a context, a TOML file, environment variables and flags; each overrides those
before it.

Each section of the file is a class here, and each key a field with its default, its environment
variable and its meaning.  Components get options made from settings; they never read settings
themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import attrs

from octopi.cli.contexts import client_values
from octopi.cli.setting_checks import SettingsError, from_flag, from_text, read_settings
from octopi.limits import (
    CATCH_UP_SLOWDOWN_MAX,
    CONNECTIONS_PER_TOKEN_MAX,
    FLUSH_BYTES,
    FLUSH_INTERVAL_S,
    FLUSH_MESSAGES,
    GATHER_S,
    MEMORY_BUDGET_BYTES,
    MEMORY_BUDGET_BYTES_MIN,
    PARTITION_COUNT_DEFAULT,
    RELAY_MEMORY_BYTES,
    RELAY_MEMORY_BYTES_MIN,
    REPLICA_COUNT_DEFAULT,
    RETIRED_KEEP_S,
)

DEFAULT_FILE: Final = Path("octopi.toml")
"""Read if it exists and no other file is given."""

_CONTEXT_VARIABLE: Final = "OCTOPI_CONTEXT"

DEFAULT_SERVER: Final = "ws://127.0.0.1:7000"
DEFAULT_REGISTER_LISTEN: Final = "127.0.0.1:7000"


def _setting(default: object, variable: str, meaning: str, least: float | None = None) -> Any:  # noqa: ANN401
    metadata = {"variable": variable, "meaning": meaning, "least": least}
    return attrs.field(default=default, metadata=metadata)


@attrs.frozen
class ClientSettings:
    """``[client]``: settings of commands that connect to a cluster."""

    server: str = _setting(DEFAULT_SERVER, "OCTOPI_SERVER", "addresses of nodes")
    timeout_s: float = _setting(
        5.0, "OCTOPI_TIMEOUT_S", "seconds to wait for an answer", least=0.001
    )
    retry_s: float = _setting(
        60.0,
        "OCTOPI_RETRY_S",
        "seconds for which produce and consume retry while no broker can be reached",
        least=0.001,
    )
    name: str = _setting(
        "",
        "OCTOPI_NAME",
        "name of the connections, shown by `octopi-node consumers list` and the console",
    )
    on_wrong_node: Literal["redirect", "forward"] = _setting(
        "redirect",
        "OCTOPI_ON_WRONG_NODE",
        "redirect: produce at the leaders; forward: have the server, a broker, pass messages on",
    )
    token_file: str = _setting("", "OCTOPI_TOKEN_FILE", "file with the token to authenticate with")
    tls_ca: str = _setting(
        "",
        "OCTOPI_TLS_CA",
        "file with the certificate authority to trust for wss:// (empty: those of the system)",
    )
    join_secret: str = _setting(
        "",
        "OCTOPI_OPERATOR_SECRET",
        "file with the cluster's join secret; an operator who has it also reaches nodes without a "
        "free slot for clients",
    )


@attrs.frozen
class RegisterSettings:
    """``[register]``: settings of a register."""

    listen: str = _setting(DEFAULT_REGISTER_LISTEN, "OCTOPI_LISTEN", "address to listen at")
    data_dir: str = _setting("octopi-data/register", "OCTOPI_DATA_DIR", "directory of the journal")
    partitions: int = _setting(
        PARTITION_COUNT_DEFAULT,
        "OCTOPI_PARTITIONS",
        "number of partitions of a new cluster",
        least=1,
    )
    peers: str = _setting(
        "",
        "OCTOPI_PEERS",
        "addresses of all registers of the cluster, separated by commas, the same list for each of "
        "them (empty: it is the only one)",
    )
    advertise: str = _setting(
        "", "OCTOPI_ADVERTISE", "its address among them (empty: the address it listens at)"
    )
    replicas: int = _setting(
        REPLICA_COUNT_DEFAULT,
        "OCTOPI_REPLICAS",
        "replicas of a new partition; fewer while there are fewer brokers",
        least=1,
    )
    gather_s: float = _setting(
        GATHER_S,
        "OCTOPI_GATHER_S",
        "seconds to wait for brokers after a start before deciding, unless all join earlier",
        least=0,
    )
    shedding: bool = _setting(
        True,
        "OCTOPI_SHEDDING",
        "whether leaderships move away from brokers that have much more to do than others",
    )
    placement: Literal["hash", "random", "least_loaded"] = _setting(
        "hash",
        "OCTOPI_PLACEMENT",
        "how the partitions of a new topic are chosen: by the hash of its name, at random, or "
        "rather those whose leaders have little to do",
    )


@attrs.frozen
class BrokerSettings:
    """``[broker]``: settings of a broker."""

    listen: str = _setting(
        "127.0.0.1:0", "OCTOPI_LISTEN", "address to listen at (port 0: a free one)"
    )
    data_dir: str = _setting("octopi-data/broker", "OCTOPI_DATA_DIR", "directory of the logs")
    register: str = _setting(
        DEFAULT_SERVER,
        "OCTOPI_REGISTER",
        "address of the register, or of all registers, separated by commas",
    )
    join: str = _setting(
        "",
        "OCTOPI_JOIN",
        "addresses of brokers of a cluster without a register, separated by commas; if its own is "
        "among them, it forms the cluster with the others.  Beside --register: those by which it "
        "goes on when the register has handed the cluster over (`octopi-node cluster to-ring`)",
    )
    relay_peers: str = _setting(
        "",
        "OCTOPI_RELAY_PEERS",
        "id and address of each relay, its own as well, as 1=ws://a:7001,2=ws://b:7001,...: the "
        "broker keeps topics in memory together with them, and no logs",
    )
    relay_place: str = _setting(
        "",
        "OCTOPI_RELAY_PLACE",
        "which of the relays hold which topics, as prices.*=1+2+3,games.*=3+4+5,...: of the "
        "patterns that match, the first one counts; the hash of its name places any other topic",
    )
    relay_memory: int = _setting(
        RELAY_MEMORY_BYTES,
        "OCTOPI_RELAY_MEMORY",
        "bytes of memory for all topics in memory together; beyond it those that were silent for "
        "longest lose their oldest messages",
        least=RELAY_MEMORY_BYTES_MIN,
    )
    advertise: str = _setting(
        "", "OCTOPI_ADVERTISE", "address that clients connect to (empty: the address it listens at)"
    )
    id: int | None = _setting(
        None, "OCTOPI_ID", "broker id (none: the register assigns one)", least=1
    )
    host: str = _setting(
        "",
        "OCTOPI_HOST",
        "machine, or rack, that brokers share: no two of them get replicas of one partition "
        "(empty: the broker shares it with no other one)",
    )
    workers: int = _setting(
        1,
        "OCTOPI_WORKERS",
        "brokers to run on this machine, each as a process with its own port and directory",
        least=1,
    )
    flush_messages: int = _setting(
        FLUSH_MESSAGES, "OCTOPI_FLUSH_MESSAGES", "flush a log after this many messages", least=1
    )
    flush_bytes: int = _setting(
        FLUSH_BYTES, "OCTOPI_FLUSH_BYTES", "flush a log after this many bytes", least=1
    )
    flush_interval_s: float = _setting(
        FLUSH_INTERVAL_S,
        "OCTOPI_FLUSH_INTERVAL_S",
        "flush a log after this many seconds",
        least=0.001,
    )
    catch_up_slowdown: float = _setting(
        CATCH_UP_SLOWDOWN_MAX,
        "OCTOPI_CATCH_UP_SLOWDOWN",
        "share of the producers' rate that may go to followers that catch up (1: all of it)",
        least=0,
    )
    keep_retired_s: float = _setting(
        RETIRED_KEEP_S,
        "OCTOPI_KEEP_RETIRED_S",
        "seconds to keep a retired replica, counted while the broker runs (0: delete at once)",
        least=0,
    )


@attrs.frozen
class NodeSettings:
    """``[node]``: settings of a node in either role."""

    tls_cert: str = _setting("", "OCTOPI_TLS_CERT", "certificate to serve with (PEM)")
    tls_key: str = _setting("", "OCTOPI_TLS_KEY", "its private key (PEM)")
    tls_ca: str = _setting(
        "",
        "OCTOPI_TLS_CA",
        "certificate authority of the cluster (PEM): nodes trust it, and brokers need a "
        "certificate signed by it",
    )
    join_secret: str = _setting(
        "",
        "OCTOPI_JOIN_SECRET",
        "file with the secret that nodes of one cluster share "
        "(empty: join-secret in the register's data directory)",
    )
    auth_keys: str = _setting(
        "", "OCTOPI_AUTH_KEYS", "key set to verify tokens with (empty: no token is needed)"
    )
    token_file: str = _setting(
        "", "OCTOPI_TOKEN_FILE", "file with the token to authenticate with at other nodes"
    )
    token_connections: int = _setting(
        CONNECTIONS_PER_TOKEN_MAX,
        "OCTOPI_TOKEN_CONNECTIONS",
        "connections per token, at most",
        least=1,
    )
    token_bytes_per_s: float | None = _setting(
        None,
        "OCTOPI_TOKEN_BYTES_PER_S",
        "bytes per second and token, sent and received together (none: no limit)",
        least=1,
    )
    token_topics: int | None = _setting(
        None,
        "OCTOPI_TOKEN_TOPICS",
        "topics that one token may have created, unless the token sets it (none: no limit)",
        least=0,
    )
    token_stored_bytes: int | None = _setting(
        None,
        "OCTOPI_TOKEN_STORED_BYTES",
        "bytes that a broker stores per token, unless the token sets it (none: no limit)",
        least=0,
    )
    token_readings: int | None = _setting(
        None,
        "OCTOPI_TOKEN_READINGS",
        "readings per token at a broker, unless the token sets it (none: no limit)",
        least=0,
    )
    memory_budget: int = _setting(
        MEMORY_BUDGET_BYTES,
        "OCTOPI_MEMORY_BUDGET",
        "bytes of memory for data that waits for connections: messages, readings, fetches",
        least=MEMORY_BUDGET_BYTES_MIN,
    )
    allow_origin: str = _setting(
        "",
        "OCTOPI_ALLOW_ORIGIN",
        "origins of web pages that may connect, separated by commas (its own always may); "
        "http://host:* means every port",
    )
    insecure: bool = _setting(
        False,
        "OCTOPI_INSECURE",
        "whether to accept connections from the network without tokens",
    )
    history: bool = _setting(True, "OCTOPI_HISTORY", "whether to write the cluster's history")
    metrics_listen: str = _setting(
        "",
        "OCTOPI_METRICS_LISTEN",
        "additional address that serves metrics only, without TLS and tokens",
    )
    trace: str = _setting(
        "",
        "OCTOPI_TRACE",
        "file, or directory for a file of each node, to append steps and messages to "
        "(octopi-node trace shows them)",
    )


@attrs.frozen
class LogSettings:
    """``[log]``: settings of a node's log, which goes to standard error."""

    format: Literal["auto", "console", "json"] = _setting(
        "auto", "OCTOPI_LOG_FORMAT", "auto: console on a terminal, else json"
    )
    level: Literal["debug", "info", "warning", "error"] = _setting(
        "info", "OCTOPI_LOG_LEVEL", "lowest level that is logged"
    )


def join_secret_in(register_directory: str) -> str:
    """The file with the join secret that a register with this data directory makes."""
    from octopi.security.join_secret import SECRET_FILE

    return str(Path(register_directory) / SECRET_FILE)


SECTIONS: Final[dict[str, type]] = {
    "client": ClientSettings,
    "register": RegisterSettings,
    "broker": BrokerSettings,
    "node": NodeSettings,
    "log": LogSettings,
}

_S = TypeVar("_S", ClientSettings, RegisterSettings, BrokerSettings, NodeSettings, LogSettings)


@attrs.frozen
class Setting:
    """A setting in force, with its source."""

    section: str
    key: str
    value: object
    source: str
    """``default``, a file's name, a variable's name or a flag."""
    meaning: str


class Configuration:
    """The settings of one run of a command, from its file and its environment.

    A context (`octopi.cli.contexts`) counts as a whole, so that its token is sent to its cluster
    only.  These say which cluster it is, the first one that is there: ``--server``, ``--context``,
    ``OCTOPI_SERVER``, ``OCTOPI_CONTEXT``, the server of the file, the context in use, the default.
    """

    def __init__(
        self, file: Path | None, environ: Mapping[str, str], context: str | None = None
    ) -> None:
        """Read *file* (None: `DEFAULT_FILE`, if it exists) and the variables in *environ*.
        *context*: the one that a flag names.

        Raises:
          SettingsError: naming the file and key, or the variable, that is wrong.
        """
        self._environ = environ
        self._context = context
        self._from_file: dict[tuple[str, str], tuple[object, str]] = {}
        self._from_environment: dict[tuple[str, str], tuple[object, str]] = {}
        self._from_flags: dict[tuple[str, str], tuple[object, str]] = {}
        chosen = file if file is not None else DEFAULT_FILE
        if file is not None or chosen.exists():
            for section, fields in read_settings(chosen, SECTIONS).items():
                for key, value in fields.items():
                    self._from_file[section, key] = (value, str(chosen))
        for section, cls in SECTIONS.items():
            for field in attrs.fields(cls):
                variable = field.metadata["variable"]
                if variable in environ:
                    value = from_text(cls, field.name, variable, environ[variable])
                    self._from_environment[section, field.name] = (value, variable)

    def override(self, section: str, key: str, value: object, source: str) -> None:
        """Set a value, which comes from *source*, over any other."""
        self._from_flags[section, key] = (value, source)

    def section(self, cls: type[_S], **flags: object) -> _S:
        """The settings of one section, with *flags* (key -> value; None: not given) on top.

        Raises:
          CommandError: if the context that counts is not there, or its file is damaged.
        """
        name = next(name for name, known in SECTIONS.items() if known is cls)
        given = {key: value for key, value in flags.items() if value is not None}
        in_force = self._in_force(has_client=cls is ClientSettings, has_server="server" in given)
        values: dict[str, Any] = {
            key: value for (section, key), (value, _) in in_force.items() if section == name
        }
        for key, value in given.items():
            flag = f"--{key.removesuffix('_s').replace('_', '-')}"
            values[key] = from_flag(cls, key, flag, value)
        return cls(**values)

    def _in_force(
        self, *, has_client: bool, has_server: bool = False
    ) -> dict[tuple[str, str], tuple[object, str]]:
        """The values that count, with their sources.  *has_client*: whether those of a context
        are needed, so that a node never reads one.  *has_server*: whether a flag names a server."""
        file, environment, flags = self._from_file, self._from_environment, self._from_flags
        server, named = ("client", "server"), self._environ.get(_CONTEXT_VARIABLE)
        if has_server and self._context is not None:
            raise SettingsError("--server and --context exclude each other: leave one out")
        if has_client and not has_server:
            if self._context is not None:
                flags = {**client_values(self._environ, self._context, "--context"), **flags}
            elif named and server not in environment:
                found = client_values(self._environ, named, _CONTEXT_VARIABLE)
                environment = {**found, **environment}
            elif server not in environment and server not in file:
                file = {**client_values(self._environ, None, "in use"), **file}
        return {**file, **environment, **flags}

    def settings(self) -> list[Setting]:
        """Every setting in force.

        Raises:
          CommandError: if the context that counts is not there, or its file is damaged.
        """
        in_force = self._in_force(has_client=True)
        return [
            Setting(section, field.name, value, source, field.metadata["meaning"])
            for section, cls in SECTIONS.items()
            for field in attrs.fields(cls)
            for value, source in (in_force.get((section, field.name), (field.default, "default")),)
        ]


def help_text(cls: type, key: str) -> str:
    """The help text of the flag that overrides a setting: meaning, variable and default."""
    field = attrs.fields_dict(cls)[key]
    default = "" if field.default in (None, "", False) else f"; default {field.default}"
    meaning: str = field.metadata["meaning"]
    return f"{meaning[0].upper()}{meaning[1:]}.  [{field.metadata['variable']}{default}]"
