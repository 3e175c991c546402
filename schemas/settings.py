"""One frozen settings model from defaults, a TOML file, ``PPL_*`` variables and flags; later ones win.

The variable of field ``target_tokens`` in section ``sharding`` is ``PPL_SHARDING_TARGET_TOKENS``; ``__`` enters a
nested field (``PPL_SHARDING_COLUMNS__TEXT``). ``PPL_CONFIG`` names the TOML file. Every error is reported at once.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator

from schemas.errors import UsageError
from schemas.paths import fault_of_path
from schemas.seals import label

PREFIX = "PPL_"
CONFIG_VARIABLE = "PPL_CONFIG"
SECTIONS = ("sharding", "scoring", "aggregate")
# Fields that are a table of their own in the TOML file, with the section that they belong to.
OWN_TABLES = {"departments": "sharding"}


# Of pydantic's words those that speak of its models rather than of settings.
_WORDS = {"missing": "is needed; set it", "extra_forbidden": "there is no such setting; leave it out"}


class Settings(BaseModel):
    """Base of each stage's settings."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @field_validator("*", mode="after")
    @classmethod
    def _possible_path(cls, value: Any) -> Any:
        if isinstance(value, Path) and (fault := fault_of_path(value)):
            raise ValueError(fault)
        return value


SettingsT = TypeVar("SettingsT", bound=Settings)


def load_settings(
    model: type[SettingsT],
    section: str,
    *,
    flags: Mapping[str, Any],
    config_file: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> SettingsT:
    """Merge all sources and validate.

    Args:
        model: The stage's settings model.
        section: Its TOML table, one of ``SECTIONS``.
        flags: From the command line; ``None`` and empty tuples mean "not given"; dotted names enter nested fields.
        config_file: TOML file; ``PPL_CONFIG`` when absent.
        environment: ``os.environ`` when absent.

    Raises:
        UsageError: lists every wrong field with where it came from.
    """
    environment = os.environ if environment is None else environment
    config_file = config_file or (Path(environment[CONFIG_VARIABLE]) if environment.get(CONFIG_VARIABLE) else None)
    merged: dict[str, Any] = {}
    origins: dict[str, str] = {}
    if config_file is not None:
        _merge(merged, _toml_section(config_file, section), origins, f"{config_file.name} [{section}]")
    for name, value in _variables(environment, section).items():
        _merge(merged, value, origins, name)
    for name, value in flags.items():
        if value is not None and value != ():
            flag = "--" + name.rsplit(".", 1)[-1].replace("_", "-")
            _merge(merged, _nested(name.split("."), value), origins, flag)
    try:
        return model.model_validate(merged)
    except ValidationError as error:
        raise UsageError(_all_errors(error, section, origins)) from None


def secret_variable(name: str) -> str | None:
    """A secret that the environment holds; it is no setting, since settings are shown where they are wrong."""
    return os.environ.get(name)


def _toml_section(path: Path, section: str) -> dict[str, Any]:
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{label(path)}: {os.strerror(error.errno or 0)}; name an existing TOML file") from None
    except (ValueError, RecursionError):
        raise UsageError(f"{label(path)}: not valid TOML; mend it, or leave out --config") from None
    known = [*SECTIONS, *OWN_TABLES]
    unknown = sorted(content.keys() - set(known))
    if unknown:
        raise UsageError(f"{label(path)}: unknown tables {', '.join(unknown)}; known are {', '.join(known)}")
    table = content.get(section, {})
    if not isinstance(table, dict):
        raise UsageError(f"{label(path)}: {section} is no table; write [{section}]")
    own = {name: content[name] for name, owner in OWN_TABLES.items() if owner == section and name in content}
    if twice := sorted(own.keys() & table.keys()):
        raise UsageError(f"{label(path)}: {twice[0]} stands in [{section}] and as a table of its own; write it once")
    return {**table, **own}


def _variables(environment: Mapping[str, str], section: str) -> dict[str, dict[str, Any]]:
    prefix = f"{PREFIX}{section.upper()}_"
    found = {}
    for name in sorted(environment):
        if name.startswith(prefix):
            keys = name.removeprefix(prefix).lower().split("__")
            found[name] = _nested(keys, _decoded(environment[name]))
    return found


def _decoded(text: str) -> Any:
    if text[:1] in "[{":
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return text
    return text


def _nested(keys: list[str], value: Any) -> dict[str, Any]:
    for key in reversed(keys):
        value = {key: value}
    return dict(value)


def _merge(
    target: dict[str, Any], source: Mapping[str, Any], origins: dict[str, str], origin: str, at: str = ""
) -> None:
    for key, value in source.items():
        path = f"{at}{key}"
        if isinstance(value, Mapping) and isinstance(target.get(key, {}), dict):
            _merge(target.setdefault(key, {}), value, origins, origin, f"{path}.")
        else:
            target[key] = value
        origins[path] = origin


def _all_errors(error: ValidationError, section: str, origins: Mapping[str, str]) -> str:
    lines = []
    for item in error.errors(include_input=False, include_url=False, include_context=False):
        parts = [str(part) for part in item["loc"]]
        words = _WORDS.get(item["type"], item["msg"].removeprefix("Value error, ").replace("Input should", "should", 1))
        lines.append(f"{_place(section, parts, origins)}: {words}")
    return f"{len(lines)} wrong settings: " + "; ".join(lines)


def _place(section: str, parts: list[str], origins: Mapping[str, str]) -> str:
    """Which setting, and who set it or its parts; settings that do not go together have no name of their own."""
    if not parts:
        return section
    path = ".".join(parts)
    within = dict.fromkeys(origin for key, origin in origins.items() if key.startswith(f"{path}."))
    enclosing = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    origin = ", ".join(within) or next((origins[key] for key in enclosing if key in origins), "not set")
    return f"{section}.{path} ({origin})"
