"""Losses split by class and position: every way the parts are the whole, to the bit."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import UsageError
from schemas.parts import kind_of
from scoring.config import ScoringSettings
from scoring.grid import on_grid
from scoring.sequences import losses_of
from scoring.split import Split, open_split, split_part
from scoring.token_classes import TokenClasses
from scoring.units import read_units

CLASSES = TokenClasses(read_units(None))
BANDS = st.sets(st.integers(1, 40), max_size=5).map(sorted).map(tuple)
TOKENS = st.lists(st.tuples(st.floats(-1e-3, 1e6) | st.floats(0, 1e-300), st.integers(0, 3)), min_size=1, max_size=60)


def settings_of(**more: object) -> ScoringSettings:
    """Settings of a run that splits losses."""
    return ScoringSettings.model_validate({"model": "model", "token_classes": True, **more})


@given(tokens=TOKENS, bounds=BANDS, is_prefixed=st.booleans())
def test_parts_add_up_to_the_record_bit_for_bit(
    tokens: list[tuple[float, int]], bounds: tuple[int, ...], is_prefixed: bool
) -> None:
    """Classes and bands each hold every scored token once, and their losses add up to the record's with no rounding."""
    losses = [loss for loss, _ in tokens]
    labels = np.array([label for _, label in tokens] if is_prefixed else [3, *(label for _, label in tokens)], np.uint8)
    split, whole = Split(CLASSES, bounds), losses_of(len(losses))
    whole.put(0, np.array(losses))

    score = whole.score(lambda losses_N: split.losses(losses_N, labels))

    by_part = dict(zip(split.parts, score.parts, strict=True))
    for kind in ("class", "position"):
        parts = [part for name, part in by_part.items() if kind_of(name) == kind]
        assert sum(Fraction(part.loss_nats) for part in parts) == Fraction(score.loss_nats or 0)
        assert sum(part.loss_nats for part in reversed(parts)) == score.loss_nats == whole.score().loss_nats
        assert sum(part.num_tokens for part in parts) == score.num_tokens == len(losses)


@given(num_tokens=st.integers(1, 60), bounds=BANDS, is_prefixed=st.booleans())
def test_bands_count_the_tokens_before(num_tokens: int, bounds: tuple[int, ...], is_prefixed: bool) -> None:
    """The first token of a record is at 0, scored or not; a band holds the positions from its bound to the next."""
    positions = range(0 if is_prefixed else 1, num_tokens)
    split, ones = Split(CLASSES, bounds), on_grid(np.ones(len(positions)))

    parts = split.losses(ones, np.zeros(num_tokens, np.uint8))[len(CLASSES.names) :]

    edges = [0, *bounds, 1000]
    expected = [sum(low <= at < high for at in positions) for low, high in pairwise(edges)]
    assert [part.num_tokens for part in parts] == [part.loss_nats for part in parts] == expected


def test_parts_have_names(tmp_path: Path) -> None:
    """Classes in their order, lexicons among them, then bands by their positions."""
    (tmp_path / "terms").write_text("aspirin")

    split = open_split(settings_of(lexicon=[f"drugs={tmp_path}/terms"], position_bands="32,128"))

    assert split is not None
    assert list(split.parts) == [
        *("class.number", "class.unit", "class.section_header", "class.lexicon.drugs", "class.other"),
        *("position.0-31", "position.32-127", "position.128-"),
    ]


def test_all_that_a_split_depends_on_is_in_its_part_of_the_fingerprint(tmp_path: Path) -> None:
    """Another term, unit list, band or name makes another; terms and paths are not in it."""
    terms, units = tmp_path / "terms", tmp_path / "units"
    units.write_text('alone = ["kg"]\nafter_number = []')
    found = []
    for text, more in [
        ("aspirin", {}),
        ("aspirin\nibuprofen", {}),
        ("aspirin", {"units": units}),
        ("aspirin", {"position_bands": (5,)}),
        ("aspirin", {"lexicon": [f"drugs={terms}"]}),
    ]:
        terms.write_text(text)
        split = open_split(settings_of(**{"lexicon": [str(terms)], **more}))
        assert split is not None
        found.append(split_part(split))

    assert all(one != other for at, one in enumerate(found) for other in found[:at])
    assert "aspirin" not in str(found)
    assert str(tmp_path) not in str(found)


def test_two_lexicons_need_two_names(tmp_path: Path) -> None:
    """Files of one name would be one class; the cure is named."""
    (tmp_path / "terms").write_text("aspirin")

    with pytest.raises(UsageError, match="NAME=FILE"):
        open_split(settings_of(lexicon=[f"{tmp_path}/terms"] * 2))


@pytest.mark.parametrize(
    "wrong",
    [{"position_bands": "32,32"}, {"position_bands": (0, 5)}, {"position_bands": "x"}]
    + [{"token_classes": False, **more} for more in ({"lexicon": ["f"]}, {"units": "f"}, {"position_bands": (7,)})],
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, object]) -> None:
    """Bands ascend from a positive bound, and what belongs to classes needs them."""
    with pytest.raises(ValueError, match=r"position_bands|token_classes"):
        settings_of(**wrong)


def test_nothing_is_split_unless_it_is_asked_for() -> None:
    """Without the setting no list is read."""
    assert open_split(ScoringSettings(model=Path("model"))) is None
