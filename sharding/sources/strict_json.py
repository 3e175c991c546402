"""JSON objects by RFC 8259 to the letter: no NaN, no Infinity, and no name twice."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any


def strict_object(line: bytes, *, number: Callable[[str], Any] | None = None) -> dict[str, Any]:
    """The object that a line of UTF-8 holds.

    Args:
        line: One JSON text.
        number: What becomes of a number as it is written; as Python reads it if absent.

    Raises:
        UnicodeDecodeError: it is not UTF-8.
        ValueError: it is no JSON, or no object.
        RecursionError: it is nested too deeply.
    """
    value = json.loads(
        line.decode("utf-8"),
        parse_int=number,
        parse_float=number,
        parse_constant=_no_constant,
        object_pairs_hook=_unique_names,
    )
    if not isinstance(value, dict):
        raise ValueError("no object")  # noqa: TRY004 - one kind of error for whatever is no record
    return value


def _no_constant(_name: str) -> Any:
    raise ValueError("no JSON number")


def _unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("repeated name")
    return found
