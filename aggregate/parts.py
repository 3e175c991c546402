"""Where the loss sits: the classes of tokens and the bands of positions of the whole, from the records themselves.

The parts of one kind add up to the whole, so a hidden one is hidden with others: there are two at least, together they
are of as many records and patients as a stratum has to have, and their tokens are more than they are. How many records
a part occurs in is not told at all: the numbers of two bands would tell how many records end between them.
"""

from __future__ import annotations

from collections.abc import Collection

import polars as pl

from aggregate.collect import Collected
from aggregate.figures import per, share
from aggregate.limbs import split
from aggregate.records import COUNTS, PATIENT, SCORED
from aggregate.strata import Cell, cells
from schemas.errors import IntegrityError
from schemas.parts import KINDS, kind_of, loss_column, tokens_column
from schemas.report import ExactLoss, Figures, LossSplit, Part, PartFigures, Suppressed
from schemas.tally import ExactSum, Tally

TOKENS = COUNTS[0]


def loss_splits(collected: Collected, whole: Figures | Suppressed, *, min_cell: int) -> list[LossSplit]:
    """The parts of each kind that the run splits losses into; none where it splits none.

    Args:
        collected: Records with the columns of the parts.
        whole: Figures of all records; where they are hidden, so are their parts.
        min_cell: Parts that occur in fewer records or patients are hidden; 0 hides none.

    Raises:
        IntegrityError: the records do not give the exact tallies of the parts.
    """
    found = []
    for kind in KINDS:
        parts = [part for part in collected.parts if kind_of(part) == kind]
        by_part = {part: part_cell(collected, part) for part in parts}
        hidden = hidden_parts(collected.records, by_part, min_cell=min_cell)
        shown = [
            Part(
                name=part.removeprefix(f"{kind}."),
                figures=Suppressed()
                if isinstance(whole, Suppressed) or part in hidden
                else _figures(cell.tally, collected.total),
            )
            for part, cell in by_part.items()
        ]
        found += [LossSplit(by=kind, parts=shown)] if shown else []
    return found


def part_cell(collected: Collected, part: str) -> Cell:
    """All records that have tokens of a part, with these tokens and their loss alone.

    Raises:
        IntegrityError: they do not add up to the tally of the part.
    """
    having = collected.records.filter(pl.col(tokens_column(part)) > 0)
    tokens = [pl.col(tokens_column(part)).alias(name) if name == TOKENS else pl.lit(0).alias(name) for name in COUNTS]
    rows = having.select(PATIENT, SCORED, *tokens).hstack(split(having[loss_column(part)].to_numpy()))
    [cell] = cells(rows, ()) or [Cell((), Tally(), num_skipped=0, num_patients=0, num_without_patient=0)]
    expected = collected.parts[part]
    exact = (cell.tally.loss_nats, cell.tally.num_tokens, cell.tally.num_records)
    if exact != (expected.loss_nats, expected.num_tokens, expected.num_records):
        raise IntegrityError(f"part {part}: records do not add up to its tally; report this as a bug")
    return cell


def hidden_parts(records: pl.DataFrame, by_part: dict[str, Cell], *, min_cell: int) -> set[str]:
    """The parts of one kind to hide: small ones, and then those of the fewest records until nothing gives them away."""
    hidden = {part for part, cell in by_part.items() if _is_small(cell, min_cell)}
    order = sorted(by_part, key=lambda part: (by_part[part].tally.num_records, part))
    left = [part for part in order if by_part[part].tally.num_records and part not in hidden]
    while hidden and left and _is_told(records, by_part, hidden, min_cell):
        hidden.add(left.pop(0))
    return hidden


def _is_told(records: pl.DataFrame, by_part: dict[str, Cell], hidden: Collection[str], min_cell: int) -> bool:
    """Whether the whole less what is shown tells of a hidden part, or of few records or patients."""
    if len(hidden) == 1 or sum(by_part[part].tally.num_tokens for part in hidden) <= len(hidden):
        return True
    having = records.filter(pl.any_horizontal(pl.col(list(map(tokens_column, hidden))) > 0))
    return _is_few(len(having), having[PATIENT].drop_nulls().n_unique(), min_cell)


def _is_small(cell: Cell, min_cell: int) -> bool:
    return _is_few(cell.tally.num_records, cell.num_patients, min_cell)


def _is_few(num_records: int, num_patients: int, min_cell: int) -> bool:
    return 0 < num_records < min_cell or 0 < num_patients < min_cell


def _figures(tally: Tally, whole: Tally) -> PartFigures:
    return PartFigures(
        num_tokens=tally.num_tokens,
        share_of_tokens=share(ExactSum.of([tally.num_tokens]), ExactSum.of([whole.num_tokens]), "tokens"),
        loss_nats_exact=ExactLoss(**tally.loss_nats.to_json()),
        share_of_loss=share(tally.loss_nats, whole.loss_nats, "loss"),
        nll_per_token=per(tally.loss_nats, tally.num_tokens, "tokens"),
    )
