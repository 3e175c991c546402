"""Which strata are asked for: ``--by department,age_band`` is one crossing of two columns."""

from __future__ import annotations

from collections.abc import Sequence

from schemas.errors import UsageError
from schemas.tables import FEATURE_PREFIX

DEPARTMENT = "department"
LENGTH_BAND = "length_band"


def available_columns(features: Sequence[str]) -> dict[str, str]:
    """What ``--by`` may name, and the record column behind each name.

    A case feature that is itself called ``department`` is named ``feature.department``.
    """
    columns = {DEPARTMENT: DEPARTMENT}
    for feature in features:
        name = FEATURE_PREFIX + feature if feature == DEPARTMENT else feature
        columns[name] = FEATURE_PREFIX + feature
    return columns


def parse_crossings(requested: Sequence[str], features: Sequence[str]) -> list[tuple[str, ...]]:
    """The crossings to report, in the order in which they were asked for.

    Args:
        requested: One comma-separated list of columns each; none means department, and length band where the build
            has one.
        features: Case features of the build.

    Raises:
        UsageError: a column is unknown, or is named twice; every fault is listed with the columns that there are.
    """
    available = available_columns(features)
    if not requested:
        requested = [name for name in (DEPARTMENT, LENGTH_BAND) if name in available]
    crossings = [tuple(name.strip() for name in text.split(",")) for text in requested]
    faults = [f"unknown {name!r}" for name in dict.fromkeys(sum(crossings, ())) if name not in available]
    faults += [f"{','.join(columns)} names a column twice" for columns in crossings if len(set(columns)) < len(columns)]
    seen = [frozenset(columns) for columns in crossings]
    faults += [f"{','.join(columns)} is asked for twice" for columns in crossings if seen.count(frozenset(columns)) > 1]
    if faults:
        raise UsageError(f"--by: {'; '.join(faults)}; this build has {', '.join(available)}")
    return crossings
