"""How people see a stratum's values: department names instead of codes, and words for what has no letters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aggregate.crossings import DEPARTMENT
from schemas.folders import Build
from schemas.report import StratumValue

NULL_LABEL = "(null)"
EMPTY_LABEL = "(empty)"


def department_labels(build: Build, *, names: bool) -> dict[str, str]:
    """Label of each department's code: its name from its own view where names are shown, or the code again."""
    codes = [entry.code for entry in build.manifest.departments]
    return {code: label_of(build.department_name(code)) if names else code for code in codes}


def labelled(columns: Sequence[str], key: Sequence[str | None], departments: Mapping[str, str]) -> list[StratumValue]:
    """A cell's values with their labels, in the order of the crossing's columns."""
    return [
        StratumValue(
            column=column,
            value=value,
            label=departments[value] if column == DEPARTMENT and value is not None else label_of(value),
        )
        for column, value in zip(columns, key, strict=True)
    ]


def label_of(value: str | None) -> str:
    """A value as one printable line; control characters could forge lines of a report."""
    if value is None:
        return NULL_LABEL
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in value) or EMPTY_LABEL
