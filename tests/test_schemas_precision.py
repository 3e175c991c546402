"""Bands of precision: what they say of a record's length, how they are written, and who is in the sample."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import UsageError
from schemas.precision import (
    REDUCED,
    Band,
    Precision,
    PrecisionPolicy,
    band_items,
    bands_text,
    in_fp32,
    is_sampled,
    merged,
    policy_of,
    require_order,
)
from schemas.settings import load_settings
from scoring.config import ScoringSettings

NAMES = st.sampled_from(get_args(Precision))
LIMITS = st.lists(st.integers(1, 400), unique=True, max_size=5).map(sorted)


@st.composite
def ordered_bands(draw: st.DrawFn) -> tuple[Band, ...]:
    """Any bands that make sense."""
    closed = [Band(compute=draw(NAMES), up_to=limit) for limit in draw(LIMITS)]
    return (*closed, Band(compute=draw(NAMES)))


def precision_at(bands: tuple[Band, ...], num_positions: int) -> str:
    """The precision of a record of so many positions."""
    return bands[PrecisionPolicy(bands).band_of(num_positions)].compute


def load(**flags: object) -> ScoringSettings:
    """Settings from flags."""
    return load_settings(ScoringSettings, "scoring", flags={"model": "m", **flags}, environment={})


@given(bands=ordered_bands())
def test_what_is_written_is_read_back(bands: tuple[Band, ...]) -> None:
    """The text of a policy gives its bands."""
    assert tuple(Band.model_validate(item) for item in band_items(bands_text(bands))) == bands


@given(bands=ordered_bands(), num_positions=st.integers(0, 500))
def test_merging_moves_no_record(bands: tuple[Band, ...], num_positions: int) -> None:
    """Merged bands give every length the precision it had, and no two neighbours are alike."""
    found = merged(bands)

    assert precision_at(found, num_positions) == precision_at(bands, num_positions)
    assert all(one.compute != other.compute for one, other in pairwise(found))


@given(bands=ordered_bands(), data=st.data(), num_positions=st.integers(0, 500))
def test_falling_back_moves_only_what_was_named(
    bands: tuple[Band, ...], data: st.DataObject, num_positions: int
) -> None:
    """Records of the named bands are in fp32 then, all others in what they were in."""
    numbers = data.draw(st.sets(st.integers(0, len(bands) - 1)))

    found = precision_at(in_fp32(bands, numbers), num_positions)

    is_named = PrecisionPolicy(bands).band_of(num_positions) in numbers
    assert found == ("fp32" if is_named else precision_at(bands, num_positions))


@given(record_id=st.binary(min_size=16, max_size=16), shares=st.tuples(st.floats(0, 1), st.floats(0, 1)).map(sorted))
def test_a_larger_sample_holds_a_smaller_one(record_id: bytes, shares: list[float]) -> None:
    """A record of the smaller sample is in the larger one; nobody is in none, and all are in the whole."""
    small, large = shares

    assert is_sampled(record_id, small) <= is_sampled(record_id, large)
    assert not is_sampled(record_id, 0.0)
    assert is_sampled(record_id, 1.0)


def test_a_sample_has_its_share() -> None:
    """Of ten thousand ids a tenth, give or take four standard deviations, is in a sample of a tenth."""
    num_sampled = sum(is_sampled(number.to_bytes(16, "big"), 0.1) for number in range(10_000))

    assert 880 <= num_sampled <= 1120


def test_precisions_hold_that_of_the_check() -> None:
    """Where reduced bands are checked, fp32 is computed in too; fp64 is not reduced."""
    bands = (Band(compute="mixed", up_to=9), Band(compute="fp64"))

    assert PrecisionPolicy(bands).precisions == ["mixed", "fp64"]
    assert PrecisionPolicy(bands, check=0.1).precisions == ["mixed", "fp64", "fp32"]
    assert PrecisionPolicy(bands[1:], check=0.1).precisions == ["fp64"]
    assert set(get_args(Precision)) - REDUCED == {"fp32", "fp64"}


@pytest.mark.parametrize(
    ("given_as", "text"),
    [
        ("mixed", "mixed"),
        (" fp32:512 , mixed", "fp32:512,mixed"),
        ("fp32:512,fp32", "fp32"),
        ([{"up_to": 512, "compute": "fp32"}, {"up_to": 900, "compute": "mixed"}, {"compute": "bf16"}],
         "fp32:512,mixed:900,bf16"),
    ],
)  # fmt: skip
def test_a_policy_has_one_text(given_as: object, text: str) -> None:
    """Flags and tables mean the same, and neighbours of one precision are one band."""
    settings = load(precision=given_as)

    assert bands_text(settings.precision) == text
    assert policy_of({"compute": {"precision": text}}) == settings.policy


def test_every_fault_of_the_bands_is_told() -> None:
    """Unknown names and limits of no sense stand in one message, and so do all faults of the order."""
    with pytest.raises(UsageError) as unknown:
        load(precision="fp31:0,mixed:x,bf16")
    with pytest.raises(UsageError) as order:
        load(precision="fp32:512,mixed:512,bf16,fp16:100")

    assert "3 wrong settings" in str(unknown.value)
    assert all(f"scoring.precision.{place} (--precision)" in str(unknown.value) for place in ("0.compute", "1.up_to"))
    assert "the last band ends at 100" in str(order.value)
    assert "1 bands before the last one are open" in str(order.value)
    assert "512 follows 512" in str(order.value)
    assert "100 follows 512" in str(order.value)


def test_no_band_is_refused() -> None:
    """An empty list is no policy."""
    with pytest.raises(ValueError, match="no band; name a precision"):
        require_order([])


@pytest.mark.parametrize(
    ("text", "share"), [("0.5%", 0.005), (" 12 %", 0.12), ("0.25", 0.25), (0.003, 0.003), ("0%", 0)]
)
def test_shares_may_be_percentages(text: object, share: float) -> None:
    """A share is a number, or a percentage with its sign, to the last bit."""
    settings = load(precision_check=text, max_drift=text)

    assert (settings.precision_check, settings.max_drift) == (share, share)


@pytest.mark.parametrize("wrong", ["101%", "-1%", "half", "%", "nan", 1.5])
def test_what_is_no_share_is_refused(wrong: object) -> None:
    """More than all, less than nothing and words are told with the flag that they came by."""
    with pytest.raises(UsageError, match=r"scoring.precision_check \(--precision-check\)"):
        load(precision_check=wrong)


def test_tables_of_a_file_are_bands(tmp_path: Path) -> None:
    """Each ``[[scoring.precision]]`` is one band, in their order."""
    path = tmp_path / "settings.toml"
    path.write_text(
        '[scoring]\nmodel = "m"\nprecision_check = "0.5%"\n'
        '[[scoring.precision]]\nup_to = 512\ncompute = "fp32"\n[[scoring.precision]]\ncompute = "mixed"\n'
    )

    settings = load_settings(ScoringSettings, "scoring", flags={}, config_file=path, environment={})

    assert bands_text(settings.precision) == "fp32:512,mixed"
    assert settings.policy.check == 0.005
