"""What the published strata tell of a hidden one, shown by witness tables.

A *witness* of a hidden stratum is another table of non-negative whole numbers, over the same atoms, that agrees with
everything that is published and lists the same strata, but has another count in that stratum. One witness settles both
ways of deriving a cell. By bounds: the count is not pinned, as two values are possible. By linear algebra: were the
stratum's 0/1 vector in the row space of the published ones, all tables that agree with them would have the same count
in it; and tokens, words, bytes and losses add up over the same atoms, so they are no more derivable than the count.

The search (HiGHS through scipy) is in floating point, the proof is not: a table counts as a witness only after its
rounded numbers pass every equation in integers. A search that fails hides more, never less. The cells whose hiding
leaves room for a witness come from the linear relaxation of Fischetti and Salazar, "Solving the cell suppression
problem on tabular data with linear constraints", Management Science 47(7), 2001.

Letters: K counts (scored, skipped), A atoms, N atoms in scope, S sets.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aggregate.atoms import Atoms, Integers

MOVE = 8  # how far a witness moves the count of an atom at most; margins are undone by moves of 1
SEED = 20_001
NODE_LIMIT = 200  # branches of one search; a fixed number, so that the same report comes out on a slow machine
TOLERANCE = 1e-6
WIDE_SCOPE = 6_000  # atoms up to which all of them are in scope where a few were not enough

Flags = NDArray[np.bool_]


class Question(NamedTuple):
    """A number that must not be derivable: the records of a hidden set, of all kinds or of one."""

    of_set: int
    kinds: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Problem:
    """All tables that a reader has to reckon with, as rows over the counts of the atoms in scope.

    Attributes:
        scope: The atoms whose counts may differ, [N].
        kinds: The counts that are not zero everywhere.
        start: True counts in scope, kind by kind.
        rows: Sparse 0/1 matrix; a row for each published set and kind, then one for each hidden set, which a table
            has to keep at 1 or more: the stratum is listed.
        num_equal: How many rows are of published sets.
        published: The set behind each row of a published one.
    """

    scope: Integers
    kinds: tuple[int, ...]
    start: Integers
    rows: Any
    num_equal: int
    published: Integers

    def indicator(self, question: Question, atoms: Integers) -> Integers:
        """The 0/1 vector of a question over the variables."""
        inside = np.isin(self.scope, atoms).astype(np.int64)
        return np.concatenate([inside * (kind in question.kinds) for kind in self.kinds])


def questions(atoms: Atoms, hidden: Iterable[int]) -> list[Question]:
    """What must stay unknown of hidden sets: how many records, and how many scored or skipped unless there are none.

    That a kind has no records in a stratum tells of no record, and a whole of no skipped record tells it of all.
    """
    kinds = _kinds(atoms)
    asked = []
    for index in sorted(hidden):
        counts = atoms.counts(atoms.atoms_of[index])
        parts = [(kind,) for kind in kinds if counts[kind]] if len(kinds) > 1 else []
        asked += [Question(index, which) for which in dict.fromkeys([kinds, *parts])]
    return asked


def unanswered(atoms: Atoms, hidden: Flags, asked: Sequence[Question]) -> list[Question]:
    """The questions without a witness, the first for certain, those after it so far as they were tried.

    Args:
        atoms: All atoms and sets.
        hidden: By set, whether it is hidden.
        asked: From ``questions``.
    """
    left = list(asked)
    for scope in _scopes(atoms, hidden):
        if not left:
            break
        left = _search(atoms, make_problem(atoms, hidden, scope), left)
    return left


def cheapest_hiding(atoms: Atoms, hidden: Flags, question: Question) -> list[int]:
    """Published sets whose hiding lets the number asked for differ, with the fewest records in all.

    None where the relaxation sees no need, or no way.
    """
    scope = _scopes(atoms, hidden)[-1]
    if len(scope) < atoms.num_records.shape[1]:
        touching = np.unique(atoms.sets[1:, atoms.atoms_of[question.of_set]])
        scope = np.unique(np.concatenate([scope, *(atoms.atoms_of[index] for index in touching)]))
    problem = make_problem(atoms, hidden, scope)
    target = problem.indicator(question, atoms.atoms_of[question.of_set])
    found = [_relaxed(atoms, problem, sign * target) for sign in (1.0, -1.0)]
    costs = [item for item in found if item is not None]
    return min(costs)[1] if costs else []


def make_problem(atoms: Atoms, hidden: Flags, scope: Integers) -> Problem:
    """The rows of all sets that have atoms in scope; counts out of scope are taken as known."""
    from scipy import sparse

    kinds = _kinds(atoms)
    sets_CN = atoms.sets[:, scope]
    touched = np.unique(sets_CN)
    place = np.searchsorted(touched, sets_CN)
    columns = np.broadcast_to(np.arange(len(scope)), place.shape)
    shape = (len(touched), len(scope))
    member = sparse.csr_array((np.ones(place.size, dtype=np.int64), (place.ravel(), columns.ravel())), shape=shape)
    member.data = np.minimum(member.data, 1)
    seen, unseen = member[~hidden[touched]], member[hidden[touched]]
    start_KN = atoms.num_records[np.array(kinds)][:, scope]
    rows = sparse.vstack([sparse.block_diag([seen] * len(kinds)), sparse.hstack([unseen] * len(kinds))], format="csr")
    return Problem(
        scope=scope,
        kinds=kinds,
        start=start_KN.ravel(),
        rows=rows,
        num_equal=seen.shape[0] * len(kinds),
        published=np.tile(touched[~hidden[touched]], len(kinds)),
    )


def _search(atoms: Atoms, problem: Problem, asked: Sequence[Question]) -> list[Question]:
    """The questions left without a witness: many are tried at once, then one by one until the first that fails."""
    targets = {question: problem.indicator(question, atoms.atoms_of[question.of_set]) for question in asked}
    weights = np.random.default_rng(SEED)
    while targets:
        num_before = len(targets)
        sides = weights.uniform(-1.0, 1.0, size=num_before)
        targets = _not_moved(problem, targets, sides @ np.array(list(targets.values())))
        if len(targets) == num_before:
            break
    for question, target in list(targets.items()):
        for sign in (1.0, -1.0):
            if question in targets:
                targets = _not_moved(problem, targets, sign * target)
        if question in targets:
            break
    return list(targets)


def _not_moved(
    problem: Problem, targets: dict[Question, Integers], goal: NDArray[np.floating[Any]]
) -> dict[Question, Integers]:
    """The questions whose number is the same in the table that makes ``goal`` largest."""
    table = _another_table(problem, goal)
    if table is None:
        return targets
    move = table - problem.start
    return {question: target for question, target in targets.items() if not target @ move}


def _another_table(problem: Problem, goal: NDArray[np.floating[Any]]) -> Integers | None:
    """A whole table that a reader cannot tell from the true one, proved in integers; None where none was found."""
    from scipy.optimize import Bounds, LinearConstraint, milp

    low = problem.rows @ problem.start
    high = low.astype(np.float64)
    low[problem.num_equal :], high[problem.num_equal :] = 1, np.inf
    found = milp(
        -goal,
        integrality=np.ones(len(goal)),
        bounds=Bounds(np.maximum(problem.start - MOVE, 0), problem.start + MOVE),
        constraints=LinearConstraint(problem.rows, low, high) if len(low) else (),
        options={"node_limit": NODE_LIMIT},
    )
    if found.x is None:
        return None
    table: Integers = np.rint(found.x).astype(np.int64)
    sums = problem.rows @ table
    agrees = (sums[: problem.num_equal] == low[: problem.num_equal]).all() and (sums >= low).all()
    return table if agrees and (table >= 0).all() else None


def _relaxed(atoms: Atoms, problem: Problem, target: NDArray[np.floating[Any]]) -> tuple[float, list[int]] | None:
    """The least number of published records to give up so that ``target`` can grow by 1, and the sets that hold them.

    Variables are the fractional move of each count, then how far each published sum rises and how far it falls.
    """
    from scipy import sparse
    from scipy.optimize import linprog

    seen, unseen = problem.rows[: problem.num_equal], problem.rows[problem.num_equal :]
    num_seen, num_counts = seen.shape
    weights = np.array([sum(atoms.counts(atoms.atoms_of[index])) for index in problem.published], dtype=np.float64)
    slack = sparse.eye_array(num_seen)
    least = sparse.vstack([unseen, sparse.csr_array(target[None, :])])
    found = linprog(
        np.concatenate([np.zeros(num_counts), weights, weights]),
        A_eq=sparse.hstack([seen, -slack, slack]) if num_seen else None,
        b_eq=np.zeros(num_seen) if num_seen else None,
        A_ub=-sparse.hstack([least, sparse.csr_array((least.shape[0], 2 * num_seen))]),
        b_ub=np.append(unseen @ problem.start - 1, -1),
        bounds=[*((-count, MOVE) for count in problem.start), *((0, None) for _ in range(2 * num_seen))],
    )
    if found.x is None:
        return None
    changed = np.abs(found.x[num_counts : num_counts + num_seen]) + np.abs(found.x[num_counts + num_seen :]) > TOLERANCE
    return float(found.fun), sorted({int(index) for index in problem.published[changed]})


def _kinds(atoms: Atoms) -> tuple[int, ...]:
    return tuple(int(kind) for kind in np.flatnonzero(atoms.num_records.sum(axis=1))) or (0,)


def _scopes(atoms: Atoms, hidden: Flags) -> list[Integers]:
    """The atoms of hidden sets, where a witness mostly is; then all, where those are few enough."""
    near = np.flatnonzero(hidden[atoms.sets].any(axis=0))
    num_atoms = atoms.num_records.shape[1]
    return [near, np.arange(num_atoms)] if len(near) < num_atoms <= WIDE_SCOPE else [near]
