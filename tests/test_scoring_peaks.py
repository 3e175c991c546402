"""A stated budget of memory is kept, with long rows and large vocabularies too, or refused before the work."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from schemas.documents import read_document
from schemas.errors import UsageError
from schemas.manifests import RunHeader
from scoring.assignment import RankIdentity
from scoring.budget import Budget
from scoring.config import RESERVED_BYTES
from scoring.peaks import MemoryLimit
from scoring.run import run_rank
from scoring.session import open_session
from tests.launches import notes, settings_of
from tests.made_runs import MadeRecord, make_build
from tests.models import make_tokenizer
from tests.ranks import run_ranks

MEBIBYTE = 1 << 20
LENGTH, VOCABULARY = 8192, 150_000


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Few weights but those of a large vocabulary, and many positions."""
    from transformers import LlamaConfig, LlamaForCausalLM

    folder = tmp_path_factory.mktemp("large")
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=LENGTH,
        tie_word_embeddings=True,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    return make_tokenizer(folder)


def highest_of_loading(identity: RankIdentity, *, model: Path) -> int:
    """Bytes that a process takes to load the model and prove it, in the smallest tiles."""
    meter = MemoryLimit(1, torch.device("cpu")).measure()
    with open_session(settings_of(model, tile_tokens=16, max_length=16), None, identity=identity):
        return meter.num_used()


def highest_of_a_run(identity: RankIdentity, *, corpus: Path, run: Path, model: Path, budget: int) -> int:
    """Bytes that a whole run takes."""
    meter = MemoryLimit(1, torch.device("cpu")).measure()
    settings = settings_of(model, memory_budget=budget, tile_tokens=1 << 13)
    run_rank(corpus, run, settings, identity=replace(identity, address=None))
    return meter.num_used()


@pytest.mark.slow
def test_a_run_keeps_within_its_budget(large: Path, tmp_path: Path) -> None:
    """8,192-token rows over a vocabulary of 150,000 take at most 1.2 times what was stated, weights aside."""
    records = [MadeRecord("A", text="blood pressure 120/80 " * (30 * at)) for at in (1, 2, 3, 24)]
    build, budget = make_build(tmp_path / "corpus", records), 256 * MEBIBYTE

    run = tmp_path / "run"
    body = functools.partial(highest_of_a_run, corpus=build.corpus, run=run, model=large, budget=budget)

    weights = run_ranks(functools.partial(highest_of_loading, model=large), 1)[0]
    outcome = run_ranks(body, 1)[0]

    assert (weights.message, outcome.message) == ("", "")
    header = read_document(run / "run.json", RunHeader)
    assert 16 <= header.fingerprint["compute"]["tile_tokens"] <= 1 << 13
    assert outcome.value <= weights.value + 1.2 * budget


def test_a_row_that_is_over_the_budget_is_refused(tiny_llama: Path) -> None:
    """A budget below a single row ends with one line before any work, not with a run that breaks it."""
    settings = settings_of(tiny_llama, memory_budget=RESERVED_BYTES + 1, max_length=256)

    with (
        pytest.raises(UsageError, match=r"a row of 256 tokens takes [0-9]+ bytes, 1 are left to tiles; raise"),
        open_session(settings, None, identity=RankIdentity(), budget=Budget(may_shrink=True)),
    ):
        pass


def test_a_resumed_run_keeps_its_tiles(tiny_llama: Path, tmp_path: Path) -> None:
    """Whatever the budget measures later, tiles stay as the header has them."""
    build, run = make_build(tmp_path / "corpus", notes(12, 2)), tmp_path / "run"
    settings = settings_of(tiny_llama, max_length=64, tile_tokens=256, memory_budget=1 << 30)
    first = run_rank(build.corpus, run, settings, identity=RankIdentity())
    (run / "COMPLETE").unlink()

    again = run_rank(
        build.corpus, run, settings.model_copy(update={"memory_budget": RESERVED_BYTES + 1}), identity=RankIdentity()
    )

    assert again.run_id == first.run_id
