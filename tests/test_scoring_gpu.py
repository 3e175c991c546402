"""On a CUDA device: the self-test holds, neighbours move no bit, and losses agree with the CPU's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from scoring.assignment import RankIdentity
from scoring.config import ScoringSettings
from scoring.session import open_session
from tests.models import SENTENCES
from tests.sessions import score, score_texts, scoring

pytestmark = pytest.mark.gpu

TEXTS = [" ".join(SENTENCES[index % 6 :] + SENTENCES[: index % 5]) for index in range(24)]
MAX_DIFFERENCE = {"fp64": 1e-5, "fp32": 1e-5, "tf32": 1e-2, "mixed": 2e-2, "bf16": 2e-2, "fp16": 1e-2}


@pytest.fixture(autouse=True)
def cuda() -> None:
    """Skip where there is no device."""
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device here")


@pytest.mark.parametrize("precision", sorted(MAX_DIFFERENCE))
@pytest.mark.parametrize("kind", ["llama", "gpt2", "qwen2", "gemma2"])
def test_losses_agree_with_the_cpu_and_ignore_neighbours(
    kind: str, precision: str, model_of: Callable[[str], Path]
) -> None:
    """Block order and neighbours move no bit on the device, and the CPU's fp32 loss is met within the precision."""
    settings = ScoringSettings(model=model_of(kind), device="cuda", precision=precision, tile_tokens=256)
    with scoring(model_of(kind), tile_tokens=256) as session:
        expected = score_texts(session, TEXTS)

    with open_session(settings, None, identity=RankIdentity()) as session:
        together = score_texts(session, TEXTS)
        apart = [results[0] for results in score(session, [[text] for text in TEXTS], order=range(23, -1, -1))]

    assert apart == together
    for found, wanted in zip(together, expected, strict=True):
        assert found.num_tokens == wanted.num_tokens
        assert found.loss_nats == pytest.approx(wanted.loss_nats, rel=MAX_DIFFERENCE[precision])
