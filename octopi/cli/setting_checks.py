"""Checks the values of settings: those of a file, of environment variables and of flags.

The file is checked by cattrs, which is imported when there is one.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, Union, get_args, get_origin, get_type_hints

import attrs

from octopi.cli.failures import CommandError, ExitCode, did_you_mean

if TYPE_CHECKING:
    from cattrs import Converter

_NUMBER_MAX: Final = 2**63 - 1
"""The largest integer of TOML."""


class SettingsError(CommandError):
    """A setting is unknown or has a value that it can't have."""

    def __init__(self, message: str) -> None:
        super().__init__(message, ExitCode.USAGE)


def read_settings(file: Path, sections: Mapping[str, type]) -> dict[str, dict[str, object]]:
    """The settings in *file*, by section and key.  *sections* has the class of each section.

    Raises:
      SettingsError: naming the file and key that is wrong.
    """
    import tomllib

    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"{file}: {error.strerror}; name another with --config") from error
    except RecursionError:
        raise SettingsError(f"{file} is not valid TOML: it is nested too deep") from None
    except ValueError as error:  # of TOML, of UTF-8, of a number with very many digits
        raise SettingsError(f"{file} is not valid TOML: {error}") from error
    for section, fields in content.items():
        if section not in sections:
            raise SettingsError(
                f"{file}: there is no section [{section}]{did_you_mean(section, sections)}"
            )
        if not isinstance(fields, dict):
            raise SettingsError(f"{file}: {section} is a section: write [{section}] above its keys")
        _check(file, section, sections[section], fields)
    return content


def _check(file: Path, section: str, cls: type, fields: dict[str, object]) -> None:
    from cattrs.errors import ClassValidationError, ForbiddenExtraKeysError

    try:
        _converter().structure(fields, cls)
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


def from_flag(cls: type, key: str, flag: str, value: object) -> object:
    """*value* of the setting *key*, which *flag* gave.

    Raises:
      SettingsError: if the setting can't have it.
    """
    try:
        _check_bound(cls, key, value)
    except SettingsError as error:
        raise SettingsError(f"{flag} {error}") from None
    return value


def _strictly(value: object, kind: type) -> object:
    """*value* if it is of type *kind*; an integer is also a float.  Texts are not converted."""
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


@cache
def _converter() -> Converter:
    """Checks the sections of a file."""
    from cattrs import Converter

    converter = Converter(forbid_extra_keys=True)
    for kind in _KINDS:
        converter.register_structure_hook(kind, _strictly)
    converter.register_structure_hook_func(_is_choice, _one_of)
    return converter


def from_text(cls: type, key: str, variable: str, text: str) -> object:
    """The value of the setting *key* that *variable* has as *text*.

    Raises:
      SettingsError: if the setting can't have it.
    """
    kind = get_type_hints(cls)[key]
    if get_origin(kind) in {Union, types.UnionType}:
        kind = next(one for one in get_args(kind) if one is not type(None))
    try:
        if kind is bool:
            value: object = {"true": True, "false": False}.get(text, text)
        else:
            value = kind(text) if kind in {int, float} else text
        value = _one_of(value, kind) if _is_choice(kind) else _strictly(value, kind)
        _check_bound(cls, key, value)
    except ValueError:
        raise SettingsError(
            f"environment variable {variable} has to be {_KINDS[kind]}, not {text!r}"
        ) from None
    except SettingsError as error:
        raise SettingsError(f"environment variable {variable} {error}") from None
    return value
