"""The strata of all crossings of a report as sets of atoms, which are what the strata of any two crossings share.

An atom is one combination of all columns of all crossings that occurs in the records. Every stratum is a union of
atoms, and its sums are the sums of theirs; so what one published stratum tells of another is told by their atoms. We
grant a reader to know which combinations occur, and nothing else that is not published.

Letters: C crossings (the whole is the first, a crossing of no column), A atoms, S sets, K counts (scored, skipped).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from aggregate.records import PATIENT, SCORED

Key = tuple[str | None, ...]
Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Atoms:
    """All atoms of a report and the sets that they form.

    Strata of several crossings that hold the same atoms are one set: what hides one of them has to hide them all.

    Attributes:
        num_records: Scored and skipped records of each atom, [K, A].
        patients: Distinct known patients of each atom's scored records; of many, some.
        sets: The set that each atom lies in, by crossing, [C, A].
        atoms_of: The atoms of each set, ascending.
        keys: By crossing, the set of each stratum's key.
    """

    num_records: Integers
    patients: tuple[frozenset[bytes], ...]
    sets: Integers
    atoms_of: tuple[Integers, ...]
    keys: tuple[dict[Key, int], ...]

    def counts(self, atoms: Integers) -> tuple[int, int]:
        """Scored and skipped records of some atoms."""
        scored, skipped = self.num_records[:, atoms].sum(axis=1)
        return int(scored), int(skipped)

    def is_small(self, atoms: Integers, min_cell: int) -> bool:
        """Whether some atoms hold records, and fewer of them, or of known patients, than ``min_cell``."""
        scored, skipped = self.counts(atoms)
        if 0 < scored < min_cell or 0 < scored + skipped < min_cell:
            return True
        seen: set[bytes] = set()
        for atom in atoms:
            seen |= self.patients[atom]
            if len(seen) >= min_cell:
                return False
        return bool(seen)


def atoms_of(records: pl.DataFrame, crossings: Sequence[Sequence[str]], *, min_cell: int) -> Atoms:
    """Cut the records into atoms.

    Args:
        records: See ``aggregate.records``.
        crossings: Columns of ``records`` by crossing; the whole is put before them.
        min_cell: How many patients of an atom are kept at most: as many tell that they are enough, alone or with
            those of other atoms, and fewer are all that there are.
    """
    columns = sorted(set(chain.from_iterable(crossings)))
    patients = pl.col(PATIENT).filter(pl.col(SCORED)).drop_nulls().unique().head(min_cell)
    found = records.group_by(columns or [pl.lit("").alias("whole")]).agg(
        pl.col(SCORED).sum().cast(pl.Int64).alias("num_scored"),
        (~pl.col(SCORED)).sum().cast(pl.Int64).alias("num_skipped"),
        patients.alias("patients"),
    )
    rows = sorted(found.iter_rows(named=True), key=lambda row: [_order(row[name]) for name in columns])
    return join(
        [(row["num_scored"], row["num_skipped"]) for row in rows],
        [frozenset(row["patients"]) for row in rows],
        [[tuple(row[name] for name in crossing) for row in rows] for crossing in ((), *crossings)],
    )


def join(
    counts: Sequence[tuple[int, int]], patients: Sequence[frozenset[bytes]], keys: Iterable[Sequence[Key]]
) -> Atoms:
    """Atoms with their sets.

    Args:
        counts: Scored and skipped records by atom.
        patients: Known patients by atom.
        keys: By crossing, the key of the stratum that each atom lies in.
    """
    known: dict[bytes, int] = {}
    members: list[Integers] = []
    labels, tables = [], []
    for crossing in keys:
        found: dict[Key, list[int]] = {}
        for atom, key in enumerate(crossing):
            found.setdefault(key, []).append(atom)
        table: dict[Key, int] = {}
        for key in sorted(found, key=lambda key: [_order(value) for value in key]):
            atoms = np.array(found[key], dtype=np.int64)
            table[key] = known.setdefault(atoms.tobytes(), len(known))
            if table[key] == len(members):
                members.append(atoms)
        labels.append([table[key] for key in crossing])
        tables.append(table)
    return Atoms(
        num_records=np.array(counts, dtype=np.int64).reshape(len(counts), 2).T,
        patients=tuple(patients),
        sets=np.array(labels, dtype=np.int64).reshape(len(labels), len(counts)),
        atoms_of=tuple(members),
        keys=tuple(tables),
    )


def _order(value: Any) -> tuple[bool, Any]:
    return value is None, value or ""
