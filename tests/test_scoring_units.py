"""Units of measurement: found after numbers and alone, by a list that can be replaced."""

from __future__ import annotations

from pathlib import Path

import pytest

from schemas.errors import UsageError
from scoring.units import Units, read_units


def found(units: Units, text: str) -> list[str]:
    """The units in a text, in order, but for those inside others."""
    spans = sorted(set(units.spans(text)))
    is_inside = [any(a <= start and stop <= b and (a, b) != (start, stop) for a, b in spans) for start, stop in spans]
    return [text[start:stop] for (start, stop), inside in zip(spans, is_inside, strict=True) if not inside]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("81 mg PO, 110mg/dL, 5 ML, 12.5 µg", ["mg", "mg/dL", "ML", "µg"]),
        ("BP 120/80 mmHg, 37.2 °C, 98% on air", ["mmHg", "°C", "%"]),
        ("weight in kg, dose in mL/min", ["kg", "mL/min"]),
        ("a 45-year-old, for 2 hours", ["year", "hours"]),
        ("5 mgx, xmg, mg2", []),
        ("in a day the s wave", []),
        ("at 5 pm in a bed, 3 in all", []),
    ],
)
def test_units_stand_after_numbers_or_alone(text: str, expected: list[str]) -> None:
    """Symbols that are words too count after a number only, all others anywhere at word borders."""
    assert found(read_units(None), text) == expected


def test_another_list_replaces_the_own_one(tmp_path: Path) -> None:
    """Only the units of the file are known, and another list has another digest."""
    file = tmp_path / "units.toml"
    file.write_text('after_number = ["hands"]\nalone = []\n')

    units = read_units(file)

    assert found(units, "16 hands, 5 mg, hands") == ["hands"]
    assert units.sha256 != read_units(None).sha256


@pytest.mark.parametrize(
    "content", ["alone = []", "alone = [1]\nafter_number = []", 'alone = ""\nafter_number = [" "]', "["]
)
def test_what_is_no_list_of_units_is_refused(content: str, tmp_path: Path) -> None:
    """One line names the file and the cure."""
    file = tmp_path / "units.toml"
    file.write_text(content)

    with pytest.raises(UsageError, match=r"units\.toml: "):
        read_units(file)
