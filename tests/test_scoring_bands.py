"""Bands of precision: a record has the bits of its own band's precision, whatever else the run computes in."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from schemas.errors import UsageError
from scoring.checkpoints import locate
from scoring.engine import RecordResult
from scoring.models import load_model, load_models
from scoring.recall import Recall
from scoring.selftest import PASSED
from scoring.tiles import Row
from tests.models import MODEL_KINDS, SENTENCES
from tests.sessions import score, score_texts, scoring

ModelOf = Callable[[str], Path]
CPU = torch.device("cpu")
NOTES = [*SENTENCES, *(sentence[:30] for sentence in SENTENCES), SENTENCES[0] * 3, "", "a", SENTENCES[1]]
SETTINGS = {"max_length": 64, "tile_tokens": 192}
BANDS = "fp32:20,mixed:60,bf16"


@pytest.fixture(scope="module")
def expected(tiny_llama: Path) -> list[RecordResult]:
    """Each note as a run in its own precision alone has it."""
    alone: dict[str, list[RecordResult]] = {}
    for precision in ("fp32", "mixed", "bf16"):
        with scoring(tiny_llama, precision=precision, **SETTINGS) as session:
            alone[precision] = score_texts(session, NOTES)
            positions = [len(record.positions) for record in session.encoder.encode(NOTES)]
    lanes = ["fp32" if number <= 20 else "mixed" if number <= 60 else "bf16" for number in positions]
    assert set(lanes) == alone.keys()
    return [alone[lane][at] for at, lane in enumerate(lanes)]


def test_a_record_has_the_bits_of_its_band(tiny_llama: Path, expected: list[RecordResult]) -> None:
    """In a run of three precisions each record has the loss and the name of its own, in any order, repeated or not."""

    @settings(max_examples=10)
    @given(order=st.permutations(range(len(NOTES))), is_remembered=st.booleans())
    def law(order: list[int], is_remembered: bool) -> None:
        texts = [NOTES[at] for at in order]

        blocks = score(session, [texts[:7], texts[7:]], memory=Recall() if is_remembered else None)

        assert [result for block in blocks for result in block] == [expected[at] for at in order]

    with scoring(tiny_llama, precision=BANDS, **SETTINGS) as session:
        law()


DERIVED = sorted(itertools.product(MODEL_KINDS, ["fp64", "mixed", "bf16", "fp16"]))


@pytest.mark.parametrize(("kind", "precision"), [pair for pair in DERIVED if pair != ("mixtral", "fp64")])
def test_derived_weights_are_those_that_are_loaded(kind: str, precision: Any, model_of: ModelOf) -> None:
    """A model derived from one load in fp32 gives the hidden states and the head of one loaded for its precision."""
    checkpoint, tokens_BT = locate(model_of(kind), None), torch.arange(96).reshape(2, 48) % 380
    loaded = load_model(checkpoint, precision=precision, device=CPU)

    derived = load_models(checkpoint, ["fp32", precision], device=CPU)[precision]

    with loaded.computing(), derived.computing():
        assert torch.equal(derived.hidden(tokens_BT), loaded.hidden(tokens_BT))
    assert torch.equal(derived.head.weight_VD, loaded.head.weight_VD)
    assert derived.head.weight_VD.dtype == (torch.float64 if precision == "fp64" else torch.float32)


def test_weights_of_one_type_are_shared(tiny_llama: Path) -> None:
    """Autocast computes on the very fp32 weights of fp32 and with its head; bf16 has a copy."""
    models = load_models(locate(tiny_llama, None), ["fp32", "mixed", "bf16"], device=CPU)
    places = {name: model.model.get_input_embeddings().weight.data_ptr() for name, model in models.items()}

    assert places["fp32"] == places["mixed"] != places["bf16"]
    assert models["fp32"].head is models["mixed"].head


class Casts(TorchDispatchMode):
    """Counts copies of matrices to bf16."""

    def __init__(self) -> None:
        super().__init__()
        self.number = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Every operation of torch passes here."""
        if func is torch.ops.aten._to_copy.default and isinstance(args[0], torch.nn.Parameter):
            self.number += 1
        return func(*args, **(kwargs or {}))


def test_autocast_keeps_its_weights_between_lanes(tiny_llama: Path) -> None:
    """A mixed tile after tiles of other lanes casts no weight again."""
    with scoring(tiny_llama, precision="bf16:16,fp32:32,mixed", **SETTINGS) as session:
        ids = session.encoder.encode([SENTENCES[0]])[0].positions[:17]
        row = Row(inputs=ids[:-1], targets=ids[1:])
        for lane in session.lanes:
            lane.compute(16, [row])

        with Casts() as casts:
            session.lanes[2].compute(16, [row])

    assert casts.number == 0


def test_every_precision_is_proven(tiny_llama: Path) -> None:
    """The self-test holds in each precision, and says in which."""
    with scoring(tiny_llama, precision="fp64:10,fp16:30,mixed", **SETTINGS) as session:
        outcomes = session.selftest.outcomes()

    assert set(outcomes.values()) == {PASSED}
    assert {name.split()[0] for name in outcomes} == {"fp64", "fp16", "mixed"}
    assert len(outcomes) == 18


def test_fp64_is_finer_than_fp32(tiny_llama: Path) -> None:
    """A loss in fp64 is that in fp32 to 1e-6, and not the same."""
    with scoring(tiny_llama, precision="fp64") as session:
        fine = score_texts(session, SENTENCES)
    with scoring(tiny_llama) as session:
        coarse = score_texts(session, SENTENCES)

    assert [result.precision for result in fine] == ["fp64"] * len(SENTENCES)
    for one, other in zip(fine, coarse, strict=True):
        assert one.loss_nats == pytest.approx(other.loss_nats, rel=1e-6)
        assert one.loss_nats != other.loss_nats


def test_a_precision_that_the_device_lacks_is_refused(tiny_llama: Path) -> None:
    """TF32 on a CPU is a usage error that says where it is to be had."""
    with pytest.raises(UsageError, match="precision tf32: only CUDA devices have it, this is cpu; use fp32 or mixed"):
        load_models(locate(tiny_llama, None), ["fp32", "tf32"], device=CPU)


def test_a_model_that_a_precision_lacks_is_refused(model_of: ModelOf) -> None:
    """Torch has no products of experts in fp64: a usage error, not a failure of the first tile."""
    with pytest.raises(UsageError, match=r"precision fp64: torch \S+ lacks an operation of this model"):
        load_models(locate(model_of("mixtral"), None), ["fp64"], device=CPU)
