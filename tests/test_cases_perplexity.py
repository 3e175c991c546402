"""Faults of similar systems in perplexity, each at the place where scoring would have it.

Rows about pooling stand in test_cases_pooling.py and test_aggregate_cases.py, rows about reading text in
test_cases_tokens.py, rows about ranks in test_cases_ranks.py, rows about one softmax in test_scoring_losses.py.
"""

from __future__ import annotations

import gc
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from schemas.tables import STATUS_NON_FINITE, STATUS_SCORED
from schemas.tally import ExactSum
from scoring.engine import PendingRow, RecordResult, score_blocks
from scoring.method import Lane, Method, Windowing
from scoring.summary import summary, summary_lines
from scoring.tiles import Row, TileFunction, make_menu
from scoring.windows import windows
from tests.launches import complete
from tests.made_runs import MadeRecord, make_build, make_run
from tests.models import MODEL_KINDS, SENTENCES
from tests.reference import reference_nll
from tests.sessions import encoded, encoder_of, key_of, poisoned, score, score_texts, scoring

ModelOf = Callable[[str], Path]
EIGHT = math.log(8)


def uniform(_: int, rows: Sequence[Row]) -> list[NDArray[np.float64]]:
    """A tile of U(8)."""
    return [np.full(len(row.targets), EIGHT) for row in rows]


def results_of(
    texts: list[str],
    model: Path,
    *,
    max_length: int,
    stride: int,
    prefix: Any = "auto",
    compute: TileFunction = uniform,
) -> list[RecordResult]:
    """Score texts by a tile function; each ``~`` is one token."""
    [(_, results)] = score_blocks(
        encoded(encoder_of(model, prefix), [(key_of(0), texts)]),
        Method(Windowing(max_length, stride), (Lane(make_menu(max_length, tokens=64, one_row=False), compute),)),
    )
    return results


@pytest.mark.parametrize("num_blocks", [1, 2])
def test_mean_of_batch_means(num_blocks: int, tiny_llama: Path) -> None:
    """One token of NLL 10 and nine of NLL 1 sum to 19 over 10, in one tile or in two blocks."""

    def compute(_: int, rows: Sequence[Row]) -> list[NDArray[np.float64]]:
        return [np.full(len(row.targets), 10.0 if len(row.targets) == 1 else 1.0) for row in rows]

    texts = ["~", "~" * 9]
    fed = [(key_of(index), texts[index::num_blocks]) for index in range(num_blocks)]
    blocks = score_blocks(
        encoded(encoder_of(tiny_llama), fed),
        Method(Windowing(64, 64), (Lane(make_menu(64, tokens=64, one_row=False), compute),)),
    )

    results = [result for _, block in blocks for result in block]
    total = ExactSum.of(result.loss_nats for result in results if result.loss_nats is not None)
    assert math.exp(total.divided_by(sum(result.num_tokens for result in results))) == pytest.approx(6.6859, abs=1e-4)


@pytest.mark.parametrize("stride", [1, 3, 8])
def test_numerator_and_denominator_cover_other_tokens(stride: int, tiny_llama: Path) -> None:
    """U(8) over 20 tokens in windows of 8 has perplexity 8, with and without a prefix."""
    for prefix, num_tokens in (("auto", 20), ("none", 19)):
        [result] = results_of(["~" * 20], tiny_llama, max_length=8, stride=stride, prefix=prefix)

        assert result.num_tokens == num_tokens
        assert result.loss_nats is not None
        assert math.exp(result.loss_nats / result.num_tokens) == pytest.approx(8, rel=1e-14)


@pytest.mark.parametrize("stride", [1, 3, 10])
def test_strided_windows_miscounted(stride: int, tiny_llama: Path) -> None:
    """T=100 tokens with L=10 and S=1, 3 or L score T tokens behind a prefix and T-1 without one."""
    [behind] = results_of(["~" * 100], tiny_llama, max_length=10, stride=stride)
    [bare] = results_of(["~" * 100], tiny_llama, max_length=10, stride=stride, prefix="none")

    assert (behind.num_tokens, bare.num_tokens) == (100, 99)
    assert behind.num_windows == len(list(windows(101, max_length=10, stride=stride)))


@pytest.mark.parametrize("prefix", ["auto", "none"])
@pytest.mark.parametrize("stride", [1, 5, 16])
def test_lengths_around_the_limit(stride: int, prefix: str, tiny_llama: Path) -> None:
    """L-1, L, L+1, 2L and 2L+1 tokens are each scored once."""
    lengths = [15, 16, 17, 32, 33]

    results = results_of(["~" * n for n in lengths], tiny_llama, max_length=16, stride=stride, prefix=prefix)

    assert [result.num_tokens for result in results] == [n - (prefix == "none") for n in lengths]


def test_a_pad_scored(tiny_llama: Path) -> None:
    """Notes of three and seven tokens in one tile have the losses that they have alone, and those of the reference."""
    texts = ["~" * 3, "x~" * 3 + "~"]
    with scoring(tiny_llama) as session:
        alone = [score_texts(session, [text])[0] for text in texts]

        together = score_texts(session, texts)

    assert together == alone
    assert [result.num_tokens for result in together] == [3, 7]
    for result, text in zip(together, texts, strict=True):
        assert result.loss_nats == pytest.approx(
            reference_nll(tiny_llama, text, max_length=256, stride=256)[0], rel=1e-6
        )


def test_left_against_right_padding(model_of: ModelOf) -> None:
    """A row's shape follows from its own length, so long neighbours change neither the shape nor a bit of the loss."""
    shapes: list[tuple[int, list[int]]] = []
    with scoring(model_of("gpt2")) as session:

        def observed(length: int, rows: Sequence[Row]) -> list[NDArray[np.float64]]:
            shapes.append((length, [len(row.inputs) for row in rows]))
            return session.lanes[0].compute(length, rows)

        texts = ["~" * 5, "~" * 60, "~" * 8, "~" * 200]
        fed = [(key_of(index), [text]) for index, text in enumerate(texts)]
        observed_results = dict(
            score_blocks(
                encoded(session.encoder, fed), Method(session.windowing, (Lane(session.lanes[0].menu, observed),))
            )
        )
        alone = [score_texts(session, [text]) for text in texts]

    assert sorted(shapes) == [(16, [5, 8]), (64, [60]), (208, [200])]
    assert [observed_results[key_of(index)] for index in range(4)] == alone


@pytest.mark.parametrize("kind", sorted(MODEL_KINDS))
def test_pad_length(kind: str, model_of: ModelOf) -> None:
    """The same note in tiles of 8 and of 64 tokens has the same loss but for rounding: no pad has a say in it."""
    text, found = "~x~", []
    for max_length in (8, 64):
        with scoring(model_of(kind), max_length=max_length) as session:
            found.append(score_texts(session, [text])[0].loss_nats)

    assert found[0] == pytest.approx(found[1], rel=1e-6)


def test_very_long_record(tiny_llama: Path) -> None:
    """A note of over 100,000 tokens is scored once each by a real model, while at most a tile's rows are held."""
    held: list[int] = []

    with scoring(tiny_llama, max_length=128) as session:
        most = session.lanes[0].menu.rows_of(128)

        def observed(length: int, rows: Sequence[Row]) -> list[NDArray[np.float64]]:
            if not len(held) % 40:
                gc.collect()
                held.append(sum(type(item) is PendingRow for item in gc.get_objects()))
            else:
                held.append(0)
            return session.lanes[0].compute(length, rows)

        [(_, [result])] = score_blocks(
            encoded(session.encoder, [(key_of(0), ["~" * 100_100])]),
            Method(session.windowing, (Lane(session.lanes[0].menu, observed),)),
        )

    assert (result.status, result.num_tokens, result.num_windows) == (STATUS_SCORED, 100_100, 783)
    assert 0 < max(held) <= most + 1
    assert result.loss_nats is not None
    assert math.isfinite(result.loss_nats)


@pytest.mark.parametrize(
    ("mean", "expected"), [(25.0, 7.200489933738588e10), (709.0, 8.218407461554972e307), (710.0, None)]
)
def test_overflow(mean: float, expected: float | None, tmp_path: Path) -> None:
    """A mean NLL of 25 is 7.2e10, unclamped; 710 is infinite by status, and the NLL is kept."""
    build = make_build(tmp_path / "corpus", [MadeRecord("A", loss=mean * 10, num_tokens=10)])
    run = make_run(tmp_path / "run", build)

    figures = summary(complete(run), run)

    assert figures["nll_per_token"] == mean
    assert figures.get("token_perplexity") == (None if expected is None else pytest.approx(expected, rel=1e-14))
    assert figures.get("status") == ("token perplexity is infinite" if expected is None else None)
    json.dumps(figures, allow_nan=False)
    assert len(summary_lines(figures)) == 3


def test_no_scored_token_has_no_perplexity(tmp_path: Path) -> None:
    """A run that scored nothing says so instead of dividing by zero."""
    build = make_build(tmp_path / "corpus", [MadeRecord("A", loss=None)])
    run = make_run(tmp_path / "run", build)

    figures = summary(complete(run), run)

    assert figures["status"] == "undefined: no token was scored"
    assert "skipped: 1 no_tokens" in summary_lines(figures)[0]


def test_one_nan_record(tiny_llama: Path, tmp_path: Path) -> None:
    """Exactly the notes that read the broken token have no loss, wherever it stands; all others keep every bit."""
    texts = ["ab~cd", *SENTENCES, "~~", "", "x" * 40 + "~" + "y" * 90, "a"]
    with scoring(tiny_llama, max_length=48) as session:
        sound = score_texts(session, texts)

    with scoring(poisoned(tiny_llama, tmp_path / "poisoned", "~"), max_length=48) as session:
        results = score_texts(session, texts)

    for text, before, after in zip(texts, sound, results, strict=True):
        expected = RecordResult(STATUS_NON_FINITE, None, 0, 0, 0, before.num_windows) if "~" in text else before
        assert after == expected


@pytest.mark.parametrize("kind", ["gemma2", "granite", "qwen2", "gpt2"])
def test_fused_loss_differs_from_plain(kind: str, model_of: ModelOf) -> None:
    """Soft cap, logit scale, tied and padded heads: the chunked loss is that of ``model(...).logits``."""
    text = " ".join(SENTENCES) * 2
    with scoring(model_of(kind)) as session:
        [[result]] = score(session, [[text]])

    loss_nats, num_tokens = reference_nll(model_of(kind), text, max_length=256, stride=256)
    assert result.num_tokens == num_tokens
    assert result.loss_nats == pytest.approx(loss_nats, rel=1e-6)
