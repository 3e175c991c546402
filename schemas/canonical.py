"""One byte form for every JSON value, so that equal values have equal digests."""

from __future__ import annotations

import json
import math
from typing import Any

from schemas.errors import IntegrityError

MAX_JSON_BYTES = 1 << 30


def canonical_json(value: Any) -> bytes:
    """Serialise a JSON value to its only valid bytes.

    Keys are sorted, the indent is two spaces, text is raw UTF-8, NaN and infinities are refused, and a newline ends
    the document.

    Raises:
        ValueError: a float is not finite, or a string holds a lone surrogate.
    """
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, allow_nan=False, indent=2)
    return text.encode("utf-8") + b"\n"


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
