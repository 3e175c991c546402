"""Small cells: strata of few records or patients are hidden, and further ones, until nothing hidden can be derived.

Hidden first are the strata with fewer records or known patients than the threshold (*primary*), then others
(*complementary*), over all crossings of a report and the whole at once:

1. What a published stratum leaves after the published strata inside it, of any one crossing, is never a small set and
   never a single hidden stratum.
2. Every hidden stratum has a witness (``aggregate.derivability``), so neither sums nor bounds pin it.

The complementary stratum is the one with the fewest records that helps. Each step hides at least one set more, and
with everything hidden nothing is left to derive from, so it ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

import numpy as np
import polars as pl

from aggregate.atoms import Atoms, Integers, Key, atoms_of
from aggregate.derivability import Flags, Question, cheapest_hiding, questions, unanswered


def hidden_keys(records: pl.DataFrame, crossings: Sequence[Sequence[str]], *, min_cell: int) -> list[frozenset[Key]]:
    """Keys of the strata to hide, by crossing; those of the whole come first.

    Args:
        records: See ``aggregate.records``.
        crossings: Columns of ``records`` by crossing.
        min_cell: Strata with fewer records or patients are hidden; 0 hides none.
    """
    if not min_cell:
        return [frozenset() for _ in range(len(crossings) + 1)]
    atoms = atoms_of(records, crossings, min_cell=min_cell)
    hidden = hidden_sets(atoms, min_cell=min_cell)
    return [frozenset(key for key, index in table.items() if hidden[index]) for table in atoms.keys]


def hidden_sets(atoms: Atoms, *, min_cell: int) -> Flags:
    """By set, whether it has to be hidden."""
    hidden = np.array([atoms.is_small(members, min_cell) for members in atoms.atoms_of], dtype=np.bool_)
    answered: set[Question] = set()
    while True:
        _hide_siblings(atoms, hidden, min_cell)
        asked = [question for question in questions(atoms, np.flatnonzero(hidden)) if question not in answered]
        left = unanswered(atoms, hidden, asked)
        if not left:
            return hidden
        answered.update(set(asked).difference(left))  # a witness stays one when more is hidden
        hidden[_complement(atoms, hidden, left[0])] = True


def _hide_siblings(atoms: Atoms, hidden: Flags, min_cell: int) -> None:
    """Hide the smallest strata inside published ones until no difference of published strata tells of a few records."""
    pairs = list(permutations(range(len(atoms.sets)), 2))
    changed = True
    while changed:
        changed = False
        for outer, inner in pairs:
            for inside in _telling(atoms, hidden, (outer, inner), min_cell):
                hidden[min(inside, key=lambda index: (_num_records(atoms, index), index))] = True
                changed = True


def _telling(atoms: Atoms, hidden: Flags, pair: tuple[int, int], min_cell: int) -> list[Integers]:
    """Where a published stratum less those inside it tells too much: the published strata inside, of one crossing."""
    outer_A, inner_A = atoms.sets[pair[0]], atoms.sets[pair[1]]
    found = []
    for parent in np.unique(outer_A[~hidden[outer_A]]):
        members = atoms.atoms_of[parent]
        children, num_shared = np.unique(inner_A[members], return_counts=True)
        whole = num_shared == [len(atoms.atoms_of[child]) for child in children]
        inside = children[whole & ~hidden[children] & (children != parent)]
        rest = members[~np.isin(inner_A[members], inside)]
        if len(inside) and len(rest) and (atoms.is_small(rest, min_cell) or _is_hidden(atoms, hidden, rest, pair[1])):
            found.append(inside)
    return found


def _is_hidden(atoms: Atoms, hidden: Flags, rest: Integers, inner: int) -> bool:
    """Whether some atoms are just those of one hidden stratum of a crossing."""
    index = atoms.sets[inner, rest[0]]
    return bool(hidden[index]) and np.array_equal(atoms.atoms_of[index], rest)


def _complement(atoms: Atoms, hidden: Flags, question: Question) -> list[int]:
    """What to hide so that a question gets a witness; the smallest stratum at hand where there is no advice."""
    if advised := [index for index in cheapest_hiding(atoms, hidden, question) if not hidden[index]]:
        return advised
    near = np.unique(atoms.sets[:, atoms.atoms_of[question.of_set]])
    seen = near[~hidden[near]] if not hidden[near].all() else np.flatnonzero(~hidden)
    return [int(min(seen, key=lambda index: (_num_records(atoms, index), index)))]


def _num_records(atoms: Atoms, index: int) -> int:
    return sum(atoms.counts(atoms.atoms_of[index]))
