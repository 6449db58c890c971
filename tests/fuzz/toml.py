"""The settings: ``octopi.toml``, and variables of the environment."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, Literal, cast, get_args, get_origin, get_type_hints

import attrs
from hypothesis import strategies as st

from octopi.cli.config import SECTIONS, Configuration
from octopi.cli.setting_checks import SettingsError
from tests.fuzz.target import Target


class _File:
    """A file with *data* in it."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def __str__(self) -> str:
        return "octopi.toml"

    def read_text(self, encoding: str) -> str:
        return self._data.decode(encoding)


_EMPTY: Final = cast(Path, _File(b""))
_VARIABLES: Final = (
    "OCTOPI_TIMEOUT_S",
    "OCTOPI_PARTITIONS",
    "OCTOPI_ID",
    "OCTOPI_INSECURE",
    "OCTOPI_LOG_FORMAT",
    "OCTOPI_SERVER",
)
_HINTS: Final = {cls: get_type_hints(cls) for cls in SECTIONS.values()}


def check(data: bytes) -> bool:
    """It is tried as a file, and as the value of each variable."""
    text = data.decode(errors="surrogateescape")
    if len(text) < 100:
        for variable in _VARIABLES:  # one of each type
            _settings(_EMPTY, {variable: text})
    return _settings(cast(Path, _File(data)), {}) or b"]" in data or b"=" in data


def _settings(file: Path, environ: dict[str, str]) -> bool:
    """Whether there are any."""
    try:
        configuration = Configuration(file, environ)
    except SettingsError as error:
        said = str(error)
    else:
        _check_settings(configuration)
        return True
    assert said.startswith(("octopi.toml", "environment variable")), said
    return False


def _check_settings(configuration: Configuration) -> None:
    """They have the types and bounds that are said of them."""
    for cls in SECTIONS.values():
        hints = _HINTS[cls]
        section: Any = configuration.section(cast(Any, cls))
        for field in attrs.fields(cls):
            value, least = getattr(section, field.name), field.metadata["least"]
            kind = hints[field.name]
            choices = get_args(kind) or (kind,)
            is_typed = value in choices if get_origin(kind) is Literal else type(value) in choices
            is_whole = type(value) is int and float in choices
            assert value is None or is_typed or is_whole, (field.name, value)
            if least is not None and value is not None:
                assert least <= value < float("inf"), (field.name, value)
    assert configuration.settings()


def _written(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value) if isinstance(value, int | float) else f'"{value}"'


@st.composite
def _files(draw: st.DrawFn) -> bytes:
    lines = []
    for name in draw(st.lists(st.sampled_from(sorted(SECTIONS)), unique=True, min_size=1)):
        lines.append(f"[{name}]")
        fields = attrs.fields(SECTIONS[name])
        for field in draw(st.lists(st.sampled_from(fields), unique=True, max_size=4)):
            default = 7 if field.default is None else field.default
            lines.append(f"{field.name} = {_written(default)}")
    return "\n".join(lines).encode()


TARGET = Target(
    "toml",
    "any file, and any value of a variable, is refused with the name of the key, or gives settings "
    "of the types and within the bounds that are documented",
    _files() | st.sampled_from([b"1", b"0.5", b"true", b"json", b"ws://a:1", b""]),
    check,
    ("octopi/cli/config.py", "octopi/cli/setting_checks.py"),
    input_bytes_max=8000,
    words=(
        *(f"[{name}]\n".encode() for name in SECTIONS),
        *(f"{field.name} = ".encode() for cls in SECTIONS.values() for field in attrs.fields(cls)),
        b"[", b"]", b"[[", b"]]", b"{", b"}", b"=", b"\n", b'"', b"'''", b'"""', b"#", b".", b",",
        b"true", b"false", b"inf", b"-inf", b"nan", b"0x", b"1e400", b"-1", b"1979-05-27T07:32:00Z",
        b"07:32:00", b"\\u0000", b"\\ud800", b"\\U00110000", b"a.b.c = 1\n", b"{a=", b"[client]\n",
        b"_", b"1_000", b"-" + b"9" * 400,
    ),
)  # fmt: skip
