"""Units of measurement in text: a list of symbols, which is data, and the places where they stand as units."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from schemas.canonical import canonical_json
from schemas.errors import UsageError
from schemas.seals import label
from schemas.toml import read_toml

UNITS_FILE = Path(__file__).with_name("units.toml")
LISTS = ("after_number", "alone")
_NO_LETTER_BEFORE, _NO_LETTER_AFTER = r"(?<![^\W_])", r"(?![^\W_])"
_AFTER_NUMBER = r"(?:(?<=\d)|(?<=\d[ \u00a0\u202f-]))"


@dataclass(frozen=True, slots=True)
class Units:
    """A list of units, ready to be searched.

    Attributes:
        sha256: Of the two lists, as canonical JSON.
        after_number: Any unit behind a digit, with at most one space or hyphen between.
        alone: Units that are such by themselves.
    """

    sha256: str
    after_number: re.Pattern[str]
    alone: re.Pattern[str]

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Where units stand, as character offsets; ``mg/dL`` is one, in which another may be found again."""
        for pattern in (self.after_number, self.alone):
            for found in pattern.finditer(text):
                yield found.span()


def read_units(path: Path | None) -> Units:
    """Read a list of units; the package's own without a path.

    Raises:
        UsageError: the file is no TOML of the two lists ``after_number`` and ``alone``.
    """
    path = path or UNITS_FILE
    content = read_toml(path, "TOML list of units")
    is_list = all(isinstance(content.get(name), list) for name in LISTS) and len(content) == len(LISTS)
    if not is_list or not all(isinstance(unit, str) and unit.strip() for name in LISTS for unit in content[name]):
        raise UsageError(f"{label(path)}: not two lists of units, {' and '.join(LISTS)}; see scoring/units.toml")
    after, alone = (_union(content["after_number"] + content["alone"]), _union(content["alone"]))
    return Units(
        sha256=hashlib.sha256(canonical_json(content)).hexdigest(),
        after_number=re.compile(rf"{_AFTER_NUMBER}(?i:{after}(?:/{after})*){_NO_LETTER_AFTER}"),
        alone=re.compile(rf"{_NO_LETTER_BEFORE}{alone}(?:/{after})*{_NO_LETTER_AFTER}"),
    )


def _union(units: Iterable[str]) -> str:
    """Any of some texts, the longest first."""
    return f"(?:{'|'.join(map(re.escape, sorted(set(units), key=lambda unit: (-len(unit), unit)))) or '(?!)'})"
