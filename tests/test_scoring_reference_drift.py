"""On a real model fp32 is the plain loop to 1e-6, and reduced precisions lie within the drift that is reported."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest

from schemas.partials import list_partials, read_partial
from tests.launches import complete, score_here
from tests.made_runs import MadeRecord, make_build
from tests.models import SENTENCES
from tests.reference import reference_nll

MAX_LENGTH = 256
NUM_NOTES = 56


def made_notes() -> list[MadeRecord]:
    """Notes of 4 to 90 words, shuffled from those of the sentences."""
    generator = random.Random(11)
    words = " ".join(SENTENCES[:4]).split()
    texts = [" ".join(generator.choices(words, k=4 + 86 * at // NUM_NOTES)) for at in range(NUM_NOTES)]
    return [MadeRecord(f"note {at}", text=text) for at, text in enumerate(texts)]


@pytest.mark.parametrize("precision", ["mixed", pytest.param("bf16", marks=pytest.mark.slow)])
def test_reduced_precision_lies_within_its_reported_drift(precision: str, shared: Path, tmp_path: Path) -> None:
    """The perplexity of a band moves, against the plain loop, by what the interval from half of its records says."""
    model, run = shared / "models" / "stories260k-hf", tmp_path / "run"
    build = make_build(tmp_path / "corpus", made_notes())
    settings = {"precision": f"fp32:130,{precision}", "precision_check": 0.5, "max_length": MAX_LENGTH}
    score_here(build.corpus, run, model, **settings, max_drift=0.05)
    [drift] = complete(run).drift

    losses: dict[str, list[tuple[float, float, int]]] = {"fp32": [], precision: []}
    for partial in list_partials(run):
        table, _ = read_partial(partial, run_id=complete(run).run_id, features=[])
        for row in table.to_pylist():
            note = build.records[row["record_id"]].note
            plain, num_tokens = reference_nll(model, note, max_length=MAX_LENGTH, stride=MAX_LENGTH)
            assert row["num_tokens"] == num_tokens
            losses[row["precision"]].append((row["loss_nats"], plain, num_tokens))

    assert len(losses["fp32"]) > 8
    assert len(losses[precision]) > 24
    for loss, plain, _ in losses["fp32"]:
        assert loss == pytest.approx(plain, rel=1e-6)
    own, plain, tokens = (math.fsum(column) for column in zip(*losses[precision], strict=True))
    moved = math.expm1((own - plain) / tokens)
    assert drift.sums["num_records"] < len(losses[precision])
    assert moved != 0
    assert (drift.low or 0) <= moved <= (drift.high or 0)
    assert max(abs(drift.low or 1), abs(drift.high or 1)) < 0.01
