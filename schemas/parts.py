"""Parts of a record's loss: by class of token and by position, in columns of a partial that add up to the whole.

A part has a name ``KIND.NAME`` and two columns, ``KIND.NAME.loss_nats`` and ``KIND.NAME.num_tokens``. All parts of one
kind together are the record: their tokens and, since losses lie on a grid (``scoring.grid``), their nats too, bit for
bit. Which parts there are stands in the run's fingerprint, so the columns of its partials are known from its header.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from schemas.tally import ExactSum

Kind = Literal["class", "position"]
KINDS: tuple[Kind, ...] = ("class", "position")
FINGERPRINT_KEY = "split"
PARTS_KEY = "parts"
_LOSS, _TOKENS = ".loss_nats", ".num_tokens"


@dataclass(frozen=True, slots=True)
class PartTally:
    """What is known of one part of a set of records; tallies of disjoint sets add.

    Attributes:
        loss_nats: Exact sum of the losses of its tokens.
        num_tokens: Scored tokens.
        num_records: Scored records that have such a token.
    """

    loss_nats: ExactSum = field(default_factory=ExactSum)
    num_tokens: int = 0
    num_records: int = 0

    def merge(self, other: PartTally) -> PartTally:
        """The tally of the union of two disjoint sets of records."""
        return PartTally(
            self.loss_nats.merge(other.loss_nats),
            self.num_tokens + other.num_tokens,
            self.num_records + other.num_records,
        )


def loss_column(part: str) -> str:
    """Nats of a part: float64, null unless the record was scored, 0 where it has no such token."""
    return part + _LOSS


def tokens_column(part: str) -> str:
    """Scored tokens of a part: int64."""
    return part + _TOKENS


def part_columns(parts: Sequence[str]) -> list[str]:
    """The columns of parts, in the order in which they stand in a partial."""
    return [column for part in parts for column in (loss_column(part), tokens_column(part))]


def parts_of(schema: pa.Schema) -> list[str]:
    """Names of the parts of a table, in its order."""
    found = [name.removesuffix(_LOSS) for name in schema.names if name.endswith(_LOSS)]
    return [name for name in found if kind_of(name) in KINDS]


def kind_of(part: str) -> str:
    """``class`` or ``position``."""
    return part.partition(".")[0]


def parts_in(fingerprint: Mapping[str, Any]) -> list[str]:
    """The parts that a run with this fingerprint splits losses into; none where it splits none."""
    return list(fingerprint.get(FINGERPRINT_KEY, {}).get(PARTS_KEY, ()))


def part_tallies(table: pa.Table) -> dict[str, PartTally]:
    """The exact tally of each part over the scored rows of a partial."""
    found = {}
    for part in parts_of(table.schema):
        tokens = table.column(tokens_column(part)).to_numpy()
        found[part] = PartTally(
            loss_nats=ExactSum.of_array(table.column(loss_column(part)).drop_null().to_numpy()),
            num_tokens=int(tokens.sum()),
            num_records=int((tokens > 0).sum()),
        )
    return found


def merge_parts(one: Mapping[str, PartTally], other: Mapping[str, PartTally]) -> dict[str, PartTally]:
    """The tallies of the union of two disjoint sets of records."""
    names = dict.fromkeys([*one, *other])
    return {name: one.get(name, PartTally()).merge(other.get(name, PartTally())) for name in names}


def parts_add_up(table: pa.Table) -> bool:
    """Whether, in every row, the parts of each kind are sound and together exactly the row's loss and tokens."""
    parts = parts_of(table.schema)
    losses = table.column("loss_nats")
    return all(
        _is_whole(table, members, losses)
        for kind in dict.fromkeys(map(kind_of, parts))
        if (members := [part for part in parts if kind_of(part) == kind])
    )


def _is_whole(table: pa.Table, parts: Sequence[str], losses: pa.ChunkedArray) -> bool:
    columns = [table.column(loss_column(part)) for part in parts]
    counts_PN = np.stack([table.column(tokens_column(part)).to_numpy() for part in parts])
    scored = losses.is_valid().to_numpy()
    if any((column.is_valid().to_numpy() != scored).any() for column in columns) or (counts_PN < 0).any():
        return False
    losses_PN = np.stack([column.fill_null(0.0).to_numpy() for column in columns])
    return bool(
        np.isfinite(losses_PN).all()
        and not losses_PN[counts_PN == 0].any()
        and (counts_PN.sum(axis=0) == table.column("num_tokens").to_numpy()).all()
        and _sums_exactly(losses_PN, losses.fill_null(0.0).to_numpy())
    )


def _sums_exactly(losses_PN: NDArray[np.float64], total_N: NDArray[np.float64]) -> bool:
    """Whether the columns add up with no rounding at all, told by the error term of each step (Knuth's TwoSum)."""
    running = np.zeros_like(total_N)
    with np.errstate(over="ignore", invalid="ignore"):
        for losses_N in losses_PN:
            summed = running + losses_N
            back = summed - running
            if ((running - (summed - back)) + (losses_N - back)).any():  # NaN, where the sum overflowed, is true
                return False
            running = summed
    return np.array_equal(running, total_N)
