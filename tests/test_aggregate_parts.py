"""Parts of the loss in reports: exact, from the rows, and hidden where they tell of few people."""

from __future__ import annotations

from fractions import Fraction

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggregate.collect import Collected
from aggregate.figures import figures
from aggregate.parts import hidden_parts, loss_splits, part_cell
from aggregate.records import as_records
from aggregate.report import whole_cell
from schemas.errors import IntegrityError
from schemas.partials import tally_of
from schemas.parts import PartTally, loss_column, part_tallies, tokens_column
from schemas.report import PartFigures, Suppressed
from schemas.tables import STATUS_SCORED, partial_schema
from schemas.tally import Tally
from tests.made_partials import row

NAMES = ["class.a", "class.b", "class.c", "class.other"]
# By record: its patient, and the tokens of each class; losses are a quarter nat a token.
Made = list[tuple[int | None, tuple[int, int, int, int]]]
RECORDS: st.SearchStrategy[Made] = st.lists(
    st.tuples(st.none() | st.integers(0, 5), st.tuples(*[st.sampled_from([0, 0, 1, 2, 7])] * 4)), max_size=14
)


def collected_of(made: Made) -> Collected:
    """Verified records of a run that splits losses into four classes."""
    rows = []
    for number, (patient, counts) in enumerate(made):
        total = sum(counts)
        one = row(number, status=STATUS_SCORED if total else "no_tokens", loss_nats=total / 4, num_tokens=total)
        one["patient_id"] = None if patient is None else bytes([patient]) * 16
        for name, count in zip(NAMES, counts, strict=True):
            one |= {loss_column(name): count / 4 if total else None, tokens_column(name): count}
        rows.append(one)
    table = pa.Table.from_pylist(rows, schema=partial_schema([], NAMES))
    records, tally = as_records(table, "d-0"), tally_of(table)
    return _collected(records, tally, part_tallies(table))


def _collected(records: pl.DataFrame, total: Tally, parts: dict[str, PartTally]) -> Collected:
    return Collected(
        records=records,
        total=total,
        skipped={},
        precisions={},
        drift=[],
        num_checked_patients={},
        parts=parts,
        checks={},
        layout_checks={},
    )


def shown(collected: Collected, *, min_cell: int) -> dict[str, PartFigures]:
    """The classes that are not hidden."""
    splits = loss_splits(collected, figures(whole_cell(collected)), min_cell=min_cell)
    return {part.name: part.figures for part in splits[0].parts if isinstance(part.figures, PartFigures)}


@given(made=RECORDS)
def test_figures_are_those_of_plain_sums(made: Made) -> None:
    """Tokens, shares and nats of each class are what fractions make of the rows."""
    found = shown(collected_of(made), min_cell=0)

    totals = [sum(counts[at] for _, counts in made) for at in range(4)]
    for name, total in zip(NAMES, totals, strict=True):
        part = found[name.removeprefix("class.")]
        exact = Fraction(int(part.loss_nats_exact.mantissa)) * Fraction(2) ** part.loss_nats_exact.exponent
        assert (part.num_tokens, exact) == (total, Fraction(total, 4))
        if sum(totals):
            share = float(Fraction(total, sum(totals)))
            assert (
                part.share_of_tokens.model_dump() == part.share_of_loss.model_dump() == {"status": "ok", "value": share}
            )
        else:
            assert part.share_of_loss.status == part.share_of_tokens.status == "undefined"
        assert part.nll_per_token.status == ("ok" if total else "undefined")


@given(made=RECORDS, min_cell=st.integers(1, 6))
def test_what_is_hidden_is_told_by_nothing_that_is_shown(made: Made, min_cell: int) -> None:
    """Each shown class is of enough records and patients or of none; what the hidden ones leave together is too."""
    collected = collected_of(made)

    visible = {f"class.{name}" for name in shown(collected, min_cell=min_cell)}

    def is_few(names: list[str]) -> bool:
        having = [patient for patient, counts in made if any(counts[NAMES.index(name)] for name in names)]
        known = set(having) - {None}
        return 0 < len(having) < min_cell or 0 < len(known) < min_cell

    hidden = [name for name in NAMES if name not in visible]
    assert not any(is_few([name]) for name in visible)
    occurring = [name for name in NAMES if collected.parts[name].num_tokens]
    if hidden and set(hidden) < set(occurring):
        assert len(hidden) > 1
        assert not is_few(hidden)
        assert sum(collected.parts[name].num_tokens for name in hidden) > len(hidden)


def test_the_rarest_other_class_goes_with_a_small_one() -> None:
    """A class of two records is hidden with the least of the others, and no more are."""
    made: Made = [(at, (1 if at < 2 else 0, 1 if at < 15 else 0, 1, 9)) for at in range(20)]
    collected = collected_of(made)
    by_part = {name: part_cell(collected, name) for name in NAMES}

    assert hidden_parts(collected.records, by_part, min_cell=11) == {"class.a", "class.b"}
    assert hidden_parts(collected.records, by_part, min_cell=2) == set()


def test_nothing_is_shown_where_the_whole_is_hidden() -> None:
    """Parts of a hidden whole are hidden, all of them."""
    collected = collected_of([(1, (1, 2, 3, 4))] * 20)

    [split] = loss_splits(collected, Suppressed(), min_cell=0)

    assert all(isinstance(part.figures, Suppressed) for part in split.parts)


def test_records_that_do_not_give_the_tally_are_refused() -> None:
    """A tally of another token than the records have is an error, never a figure."""
    collected = collected_of([(1, (1, 2, 3, 4))] * 3)
    collected.parts["class.a"] = PartTally(collected.parts["class.a"].loss_nats, 4, 3)

    with pytest.raises(IntegrityError, match=r"class\.a"):
        part_cell(collected, "class.a")


def test_runs_without_parts_have_no_splits() -> None:
    """Neither columns nor tables are made up."""
    table = pa.Table.from_pylist([row(0)], schema=partial_schema(["sex", "diagnosis"]))
    collected = _collected(as_records(table, "d-0"), tally_of(table), {})

    assert loss_splits(collected, figures(whole_cell(collected)), min_cell=11) == []
    assert not [name for name in collected.records.columns if name.startswith("class.")]
    assert isinstance(collected.records, pl.DataFrame)
