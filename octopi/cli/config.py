"""Settings: a TOML file, then the environment, then flags; the later one counts.

Each section of the file is a class here, each key a field with its default, the
environment variable that sets it and what it means.  Components get their own options
made from these; none of them reads settings itself.
"""

from __future__ import annotations

import tomllib
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import attrs
import cattrs
from cattrs.errors import ClassValidationError, ForbiddenExtraKeysError

from octopi.cli.failures import CommandError, ExitCode, did_you_mean
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
    REPLICA_COUNT_DEFAULT,
    RETIRED_KEEP_S,
)
from octopi.security.join_secret import SECRET_FILE

DEFAULT_FILE: Final = Path("octopi.toml")
"""Read if it is there and no file is named."""

_NUMBER_MAX: Final = 2**63 - 1
"""What TOML has integers for."""

DEFAULT_SERVER: Final = "ws://127.0.0.1:7000"
DEFAULT_REGISTER_LISTEN: Final = "127.0.0.1:7000"


def _setting(default: object, variable: str, meaning: str, least: float | None = None) -> Any:  # noqa: ANN401
    metadata = {"variable": variable, "meaning": meaning, "least": least}
    return attrs.field(default=default, metadata=metadata)


@attrs.frozen
class ClientSettings:
    """``[client]``: commands that talk to a cluster."""

    server: str = _setting(DEFAULT_SERVER, "OCTOPI_SERVER", "address of the register")
    timeout_s: float = _setting(
        5.0, "OCTOPI_TIMEOUT_S", "seconds to wait for an answer", least=0.001
    )
    retry_s: float = _setting(
        60.0,
        "OCTOPI_RETRY_S",
        "seconds that produce and consume go on trying while no broker can be had",
        least=0.001,
    )
    token_file: str = _setting("", "OCTOPI_TOKEN_FILE", "file with the token to show")
    tls_ca: str = _setting(
        "", "OCTOPI_TLS_CA", "file with the authority to trust at wss:// (empty: the system's)"
    )
    join_secret: str = _setting(
        "",
        "OCTOPI_OPERATOR_SECRET",
        "file with the cluster's join secret, to have a place at nodes that have none for clients",
    )


@attrs.frozen
class RegisterSettings:
    """``[register]``: a node in that role."""

    listen: str = _setting(DEFAULT_REGISTER_LISTEN, "OCTOPI_LISTEN", "address to listen at")
    data_dir: str = _setting(
        "octopi-data/register", "OCTOPI_DATA_DIR", "where it keeps its journal"
    )
    partitions: int = _setting(
        PARTITION_COUNT_DEFAULT, "OCTOPI_PARTITIONS", "partitions of a new cluster", least=1
    )
    replicas: int = _setting(
        REPLICA_COUNT_DEFAULT,
        "OCTOPI_REPLICAS",
        "replicas of a new partition, fewer while there are fewer brokers",
        least=1,
    )
    gather_s: float = _setting(
        GATHER_S,
        "OCTOPI_GATHER_S",
        "seconds to listen to brokers before deciding, unless all come earlier",
        least=0,
    )


@attrs.frozen
class BrokerSettings:
    """``[broker]``: a node in that role."""

    listen: str = _setting(
        "127.0.0.1:0", "OCTOPI_LISTEN", "address to listen at (port 0: a free one)"
    )
    data_dir: str = _setting("octopi-data/broker", "OCTOPI_DATA_DIR", "where it keeps its logs")
    register: str = _setting(DEFAULT_SERVER, "OCTOPI_REGISTER", "address of the register")
    advertise: str = _setting(
        "", "OCTOPI_ADVERTISE", "address that clients are sent to (empty: where it listens)"
    )
    id: int | None = _setting(
        None, "OCTOPI_ID", "its broker id (none: the register gives one)", least=1
    )
    flush_messages: int = _setting(
        FLUSH_MESSAGES, "OCTOPI_FLUSH_MESSAGES", "flush a log after so many messages", least=1
    )
    flush_bytes: int = _setting(
        FLUSH_BYTES, "OCTOPI_FLUSH_BYTES", "flush a log after so many bytes", least=1
    )
    flush_interval_s: float = _setting(
        FLUSH_INTERVAL_S,
        "OCTOPI_FLUSH_INTERVAL_S",
        "flush a log after so many seconds",
        least=0.001,
    )
    catch_up_slowdown: float = _setting(
        CATCH_UP_SLOWDOWN_MAX,
        "OCTOPI_CATCH_UP_SLOWDOWN",
        "share of their rate that producers may lose to followers that catch up (1: all)",
        least=0,
    )
    keep_retired_s: float = _setting(
        RETIRED_KEEP_S,
        "OCTOPI_KEEP_RETIRED_S",
        "seconds to keep a replica that was given up, counted while the broker runs (0: none)",
        least=0,
    )


@attrs.frozen
class NodeSettings:
    """``[node]``: a node in either role."""

    tls_cert: str = _setting("", "OCTOPI_TLS_CERT", "certificate to serve with (PEM)")
    tls_key: str = _setting("", "OCTOPI_TLS_KEY", "its private key (PEM)")
    tls_ca: str = _setting(
        "",
        "OCTOPI_TLS_CA",
        "authority of the cluster (PEM): nodes trust it, and brokers have to show a certificate",
    )
    join_secret: str = _setting(
        "",
        "OCTOPI_JOIN_SECRET",
        "file with the secret that shows that a node is of the cluster "
        "(empty: join-secret in the register's data directory)",
    )
    auth_keys: str = _setting(
        "", "OCTOPI_AUTH_KEYS", "key set that tokens are verified with (empty: nobody needs one)"
    )
    token_file: str = _setting(
        "", "OCTOPI_TOKEN_FILE", "file with the token to show to other nodes"
    )
    token_connections: int = _setting(
        CONNECTIONS_PER_TOKEN_MAX,
        "OCTOPI_TOKEN_CONNECTIONS",
        "connections of one token, at most",
        least=1,
    )
    token_bytes_per_s: float | None = _setting(
        None,
        "OCTOPI_TOKEN_BYTES_PER_S",
        "bytes a second of one token, both ways together (none: no limit)",
        least=1,
    )
    token_topics: int | None = _setting(
        None,
        "OCTOPI_TOKEN_TOPICS",
        "topics that one token may have created, unless it says itself (none: no limit)",
        least=0,
    )
    token_stored_bytes: int | None = _setting(
        None,
        "OCTOPI_TOKEN_STORED_BYTES",
        "bytes of one token that a broker stores, unless it says itself (none: no limit)",
        least=0,
    )
    token_subscriptions: int | None = _setting(
        None,
        "OCTOPI_TOKEN_SUBSCRIPTIONS",
        "subscriptions of one token at a broker, unless it says itself (none: no limit)",
        least=0,
    )
    memory_budget: int = _setting(
        MEMORY_BUDGET_BYTES,
        "OCTOPI_MEMORY_BUDGET",
        "bytes of memory for what connections wait for: messages, subscriptions, fetches",
        least=MEMORY_BUDGET_BYTES_MIN,
    )
    allow_origin: str = _setting(
        "",
        "OCTOPI_ALLOW_ORIGIN",
        "origins of pages that may talk to the node, with commas (its own always may)",
    )
    insecure: bool = _setting(
        False,
        "OCTOPI_INSECURE",
        "whether to listen to the network without asking for tokens",
    )
    metrics_listen: str = _setting(
        "", "OCTOPI_METRICS_LISTEN", "address for metrics alone, without TLS and tokens"
    )


@attrs.frozen
class LogSettings:
    """``[log]``: what a node says about itself, on standard error."""

    format: Literal["auto", "console", "json"] = _setting(
        "auto", "OCTOPI_LOG_FORMAT", "auto is console on a terminal, else json"
    )
    level: Literal["debug", "info", "warning", "error"] = _setting(
        "info", "OCTOPI_LOG_LEVEL", "the least that is logged"
    )


def join_secret_in(register_directory: str) -> str:
    """The file that the register with that data directory makes."""
    return str(Path(register_directory) / SECRET_FILE)


SECTIONS: Final[dict[str, type]] = {
    "client": ClientSettings,
    "register": RegisterSettings,
    "broker": BrokerSettings,
    "node": NodeSettings,
    "log": LogSettings,
}

_S = TypeVar("_S", ClientSettings, RegisterSettings, BrokerSettings, NodeSettings, LogSettings)


class SettingsError(CommandError):
    """A setting is unknown or has a value that it can't have."""

    def __init__(self, message: str) -> None:
        super().__init__(message, ExitCode.USAGE)


@attrs.frozen
class Setting:
    """A value in force, and who said so."""

    section: str
    key: str
    value: object
    source: str
    """``default``, a file's name, a variable's name or a flag."""
    meaning: str


class Configuration:
    """The settings of one run of a command, before its flags."""

    def __init__(self, file: Path | None, environ: Mapping[str, str]) -> None:
        """Read *file* (None: `DEFAULT_FILE`, if it is there) and what *environ* sets.

        Raises:
          SettingsError: naming the file and key, or the variable, that is wrong.
        """
        self._values: dict[tuple[str, str], tuple[object, str]] = {}
        chosen = file if file is not None else DEFAULT_FILE
        if file is not None or chosen.exists():
            for section, fields in _read(chosen).items():
                for key, value in fields.items():
                    self._values[section, key] = (value, str(chosen))
        for section, cls in SECTIONS.items():
            for field in attrs.fields(cls):
                variable = field.metadata["variable"]
                if variable in environ:
                    value = _from_text(cls, field.name, variable, environ[variable])
                    self._values[section, field.name] = (value, variable)

    def override(self, section: str, key: str, value: object, source: str) -> None:
        """Set a value from *source*, whatever was said before."""
        self._values[section, key] = (value, source)

    def section(self, cls: type[_S], **flags: object) -> _S:
        """The settings of one section, with *flags* (key -> value; None: not given) on top."""
        name = next(name for name, known in SECTIONS.items() if known is cls)
        values: dict[str, Any] = {
            key: value for (section, key), (value, _) in self._values.items() if section == name
        }
        for key, value in flags.items():
            if value is not None:
                flag = f"--{key.removesuffix('_s').replace('_', '-')}"
                values[key] = _from_flag(cls, key, flag, value)
        return cls(**values)

    def settings(self) -> list[Setting]:
        """Every setting in force."""
        return [
            Setting(section, field.name, value, source, field.metadata["meaning"])
            for section, cls in SECTIONS.items()
            for field in attrs.fields(cls)
            for value, source in (
                self._values.get((section, field.name), (field.default, "default")),
            )
        ]


def help_text(cls: type, key: str) -> str:
    """What a flag's help says about the setting that it overrides."""
    field = attrs.fields_dict(cls)[key]
    default = "" if field.default in (None, "", False) else f"; default {field.default}"
    meaning: str = field.metadata["meaning"]
    return f"{meaning[0].upper()}{meaning[1:]}.  [{field.metadata['variable']}{default}]"


# --- checking --------------------------------------------------------------------------


def _read(file: Path) -> dict[str, dict[str, object]]:
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"{file}: {error.strerror}; name another with --config") from error
    except RecursionError:
        raise SettingsError(f"{file} is no TOML: it nests too deep") from None
    except ValueError as error:  # of TOML, of UTF-8, of a number with very many digits
        raise SettingsError(f"{file} is no TOML: {error}") from error
    for section, fields in content.items():
        if section not in SECTIONS:
            raise SettingsError(
                f"{file}: there is no section [{section}]{did_you_mean(section, SECTIONS)}"
            )
        if not isinstance(fields, dict):
            raise SettingsError(f"{file}: {section} is a section: write [{section}] above its keys")
        _check(file, section, fields)
    return content


def _check(file: Path, section: str, fields: dict[str, object]) -> None:
    cls = SECTIONS[section]
    try:
        _CONVERTER.structure(fields, cls)
    except ClassValidationError as group:
        noted, other = group.group_exceptions()
        for error, note in noted:
            raise SettingsError(f"{file}: {section}.{note.name} {error}") from None
        for error in other:
            if isinstance(error, ForbiddenExtraKeysError):
                key = min(error.extra_fields)
                known = attrs.fields_dict(cls)
                raise SettingsError(
                    f"{file}: there is no setting {section}.{key}{did_you_mean(key, known)}"
                ) from None
        raise
    for key, value in fields.items():
        try:
            _check_bound(cls, key, value)
        except SettingsError as error:
            raise SettingsError(f"{file}: {section}.{key} {error}") from None


def _check_bound(cls: type, key: str, value: object) -> None:
    least = attrs.fields_dict(cls)[key].metadata["least"]
    if isinstance(value, bool) or not isinstance(value, int | float):
        return
    if not least <= value <= _NUMBER_MAX:
        bound = f"at most {_NUMBER_MAX}" if value > _NUMBER_MAX else f"at least {_shown(least)}"
        raise SettingsError(f"has to be {bound}, not {_shown(value)}")


def _shown(value: float) -> str:
    if isinstance(value, int):
        return str(value) if value.bit_length() < 100 else "a number with very many digits"
    return f"{value:g}"


def _from_flag(cls: type, key: str, flag: str, value: object) -> object:
    try:
        _check_bound(cls, key, value)
    except SettingsError as error:
        raise SettingsError(f"{flag} {error}") from None
    return value


def _strictly(value: object, kind: type) -> object:
    """*value* as a *kind*, without guessing: TOML has types of its own."""
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        raise SettingsError(f"has to be {_KINDS[kind]}, not {value!r}")
    return value


def _is_choice(kind: object) -> bool:
    origin: object = get_origin(kind)
    return origin is Literal


def _one_of(value: object, kind: object) -> object:
    if value not in get_args(kind):
        raise SettingsError(f"has to be one of {', '.join(get_args(kind))}, not {value!r}")
    return value


_KINDS: Final[dict[type, str]] = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
}

_CONVERTER: Final = cattrs.Converter(forbid_extra_keys=True)
for _kind in _KINDS:
    _CONVERTER.register_structure_hook(_kind, _strictly)
_CONVERTER.register_structure_hook_func(_is_choice, _one_of)


def _from_text(cls: type, key: str, variable: str, text: str) -> object:
    kind = get_type_hints(cls)[key]
    if get_origin(kind) in {Union, types.UnionType}:
        kind = next(one for one in get_args(kind) if one is not type(None))
    try:
        if kind is bool:
            value: object = {"true": True, "false": False}.get(text, text)
        else:
            value = kind(text) if kind in {int, float} else text
        value = _CONVERTER.structure(value, kind)
        _check_bound(cls, key, value)
    except ValueError:
        raise SettingsError(
            f"environment variable {variable} has to be {_KINDS[kind]}, not {text!r}"
        ) from None
    except SettingsError as error:
        raise SettingsError(f"environment variable {variable} {error}") from None
    return value
