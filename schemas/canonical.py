"""One byte form for every JSON value, so that equal values have equal digests."""

from __future__ import annotations

import json
import math
from typing import Any

from schemas.errors import IntegrityError

MAX_JSON_BYTES = 1 << 30
LINED_LEVELS = 3

_in_one_line = json.JSONEncoder(sort_keys=True, ensure_ascii=False, allow_nan=False).encode


def canonical_json(value: Any) -> bytes:
    """Serialise a JSON value to its only valid bytes.

    Keys are sorted, text is raw UTF-8, NaN and infinities are refused, and a newline ends the document. What stands up
    to three levels deep, as a row of a table does, has a line of its own, indented by two spaces a level; deeper values
    stay in its line, since Python writes an indent ten times as slowly.

    Raises:
        ValueError: a float is not finite, or a string holds a lone surrogate.
    """
    return _lined(value, 0).encode("utf-8") + b"\n"


def parse_json(content: bytes, where: str) -> Any:
    """Parse JSON bytes; NaN, infinities and repeated keys are refused.

    Raises:
        IntegrityError: the bytes are no valid JSON document. The content is never quoted.
    """
    if len(content) > MAX_JSON_BYTES:
        raise IntegrityError(f"{where}: {len(content)} bytes of JSON, at most {MAX_JSON_BYTES} are read")
    try:
        return json.loads(content, parse_constant=_refuse_constant, parse_float=_finite, object_pairs_hook=_unique_keys)
    except (ValueError, RecursionError):
        raise IntegrityError(f"{where}: not valid JSON; restore the file or build it again") from None


def _lined(value: Any, level: int) -> str:
    if level == LINED_LEVELS or not isinstance(value, dict | list) or not value:
        return _in_one_line(value)
    margin = "\n" + "  " * level
    if isinstance(value, list):
        return "[" + ",".join(f"{margin}  {_lined(item, level + 1)}" for item in value) + f"{margin}]"
    if not all(isinstance(key, str) for key in value):
        return _in_one_line(value)
    items = (f"{margin}  {_in_one_line(key)}: {_lined(value[key], level + 1)}" for key in sorted(value))
    return "{" + ",".join(items) + f"{margin}}}"


def _refuse_constant(name: str) -> Any:
    raise ValueError(name)


def _finite(literal: str) -> float:
    value = float(literal)
    if not math.isfinite(value):
        raise ValueError("beyond FP64")
    return value


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) != len(pairs):
        raise ValueError("repeated key")
    return mapping
