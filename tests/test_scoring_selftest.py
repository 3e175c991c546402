"""The self-test passes where its claims hold, and finds each way in which they can fail."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from schemas.errors import IntegrityError
from schemas.manifests import NOT_INVARIANT
from scoring.checkpoints import locate
from scoring.forward import make_tile_function
from scoring.losses import Head
from scoring.models import LoadedModel, load_model
from scoring.selftest import PASSED, SelfTest, require_passed, run_selftest
from scoring.tiles import Row, TileFunction, TileMenu, make_menu
from tests.models import MODEL_KINDS
from tests.sessions import scoring

ModelOf = Callable[[str], Path]
MENU = make_menu(128, tokens=512, one_row=False)


class Looking(torch.nn.Module):
    """A small model whose every position sees the mean of its whole row, as a bidirectional encoder does."""

    def __init__(self, *, ahead: bool) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(1)
        self.embeddings_VD = torch.randn(50, 8, generator=generator)
        self.ahead = ahead
        self.base_model = self.backbone

    def backbone(self, input_ids: torch.Tensor, **_: Any) -> Any:
        """Hidden states of a batch."""
        own_BTD = self.embeddings_VD[input_ids]
        counts_T1 = torch.arange(1, own_BTD.shape[1] + 1)[:, None]
        seen_BTD = own_BTD.mean(dim=1, keepdim=True) if self.ahead else own_BTD.cumsum(dim=1) / counts_T1
        return type("Output", (), {"last_hidden_state": own_BTD + seen_BTD})

    def forward(self, input_ids: torch.Tensor, **_: Any) -> Any:
        """Logits of a batch."""
        hidden_BTD = self.backbone(input_ids).last_hidden_state
        return type("Output", (), {"logits": hidden_BTD @ self.embeddings_VD.T})


def looking(*, ahead: bool) -> LoadedModel:
    """Such a model, loaded."""
    model: Any = Looking(ahead=ahead)
    return LoadedModel(model, Head(model.embeddings_VD), "fp32", None, "none", has_experts=False, num_parameters=400)


def outcomes(model: LoadedModel, menu: TileMenu = MENU, compute: TileFunction | None = None) -> dict[str, str]:
    """What the self-test says of a model."""
    with model.computing():
        compute = compute or make_tile_function(model, menu)
        return run_selftest(model, menu, compute, num_threads=torch.get_num_threads()).outcomes()


@pytest.fixture(scope="module")
def gemma2(model_of: ModelOf) -> LoadedModel:
    """A model with a soft cap."""
    return load_model(locate(model_of("gemma2"), None), precision="fp32", device=torch.device("cpu"))


@pytest.mark.parametrize("kind", sorted(MODEL_KINDS))
def test_every_known_shape_passes(kind: str, model_of: ModelOf) -> None:
    """All claims hold for each kind of model."""
    with scoring(model_of(kind)) as session:
        found = session.selftest.outcomes()

    assert set(found.values()) == {PASSED}
    assert found.keys() == {
        "tile_invariance",
        "repeatability",
        "causality",
        "chunked_head",
        "threads",
        "finite_losses",
    }


@pytest.mark.parametrize("settings", [{"max_length": 2}, {"max_length": 3}, {"tile_rows": "1"}, {"tile_tokens": 16}])
@pytest.mark.parametrize("precision", ["fp32", "mixed", "bf16"])
def test_every_setting_passes(settings: dict[str, Any], precision: Any, tiny_llama: Path) -> None:
    """The claims hold for the shortest windows, single rows and every precision."""
    with scoring(tiny_llama, precision=precision, **settings) as session:
        assert set(session.selftest.outcomes().values()) == {PASSED}


@pytest.mark.parametrize("softcap", [None, 2.0, 3.5])
def test_a_wrong_soft_cap_is_found(softcap: float | None, gemma2: LoadedModel) -> None:
    """A head that caps otherwise than the model fails by the size of the error."""
    found = outcomes(replace(gemma2, head=replace(gemma2.head, softcap=softcap)))

    assert "nats from the model's logits, 0.001 allowed" in found.pop("chunked_head")
    assert set(found.values()) == {PASSED}


@pytest.mark.parametrize("change", [{"multiplier": 0.5}, {"divisor": 2.0}, {"bias_V": torch.ones(384).cumsum(0)}])
def test_a_wrongly_read_head_is_found(change: dict[str, Any], gemma2: LoadedModel) -> None:
    """A scale or bias that the model does not have fails too."""
    assert outcomes(gemma2)["chunked_head"] == PASSED

    found = outcomes(replace(gemma2, head=replace(gemma2.head, **change)))

    assert found["chunked_head"] != PASSED


def test_a_model_that_looks_ahead_is_found() -> None:
    """A backbone in which a later token reaches an earlier position fails causality, and only a causal one passes."""
    assert outcomes(looking(ahead=False))["causality"] == PASSED

    found = outcomes(looking(ahead=True))

    assert "a later token changed an earlier loss, tile of 8 × 64 tokens" in found["causality"]


@pytest.mark.parametrize("size", [1e-9, 1.0])
def test_bits_that_depend_on_a_neighbour_are_found(size: float, gemma2: LoadedModel) -> None:
    """A device on which another row moves a loss, however little, fails tile invariance."""
    sound = make_tile_function(gemma2, MENU)

    def leaking(length: int, rows: Sequence[Row]) -> list[NDArray[np.float64]]:
        mixed = sum(int(row.inputs[0]) for row in rows)
        return [losses + size * mixed for losses in sound(length, rows)]

    found = outcomes(gemma2, MENU, leaking)

    assert found["tile_invariance"].startswith(f"{NOT_INVARIANT}: other bits beside other rows, tile of ")
    assert found["repeatability"] == PASSED


def test_bits_that_depend_on_the_place_are_found(gemma2: LoadedModel) -> None:
    """So does one on which a row's place in the tile moves a loss."""
    sound = make_tile_function(gemma2, MENU)

    def placed(length: int, rows: Sequence[Row]) -> list[NDArray[np.float64]]:
        return [losses * (1 + at * 2**-52) for at, losses in enumerate(sound(length, rows))]

    assert outcomes(gemma2, MENU, placed)["tile_invariance"] != PASSED


def test_bits_that_change_each_time_are_found(gemma2: LoadedModel) -> None:
    """A device that gives one tile other bits the second time is told from one that only minds the neighbours."""
    sound, times = make_tile_function(gemma2, MENU), itertools.count(1)

    def unsteady(length: int, rows: Sequence[Row]) -> list[NDArray[np.float64]]:
        shift = 1 + next(times) * 2**-52
        return [losses * shift for losses in sound(length, rows)]

    found = outcomes(gemma2, MENU, unsteady)

    assert found["repeatability"].startswith("other bits the second time, tile of ")


def test_another_thread_count_is_found(gemma2: LoadedModel) -> None:
    """The fingerprint never claims threads that do not compute."""
    found = torch.get_num_threads()

    with gemma2.computing():
        selftest = run_selftest(gemma2, MENU, make_tile_function(gemma2, MENU), num_threads=found + 1)

    assert selftest.threads == f"{found} threads compute, {found + 1} were asked for"


@pytest.mark.parametrize(
    ("claim", "field", "cure"),
    [
        ("tile_invariance", "tile_invariance", "set --tile-rows 1"),
        ("repeatability", "repeatability", "score on another"),
        ("causality", "causality", "score another, or report the model"),
        ("chunked_head", "head", "report the model"),
        ("threads", "threads", "set --threads-per-rank"),
    ],
)
def test_a_failure_names_its_claim_and_the_cure(claim: str, field: str, cure: str) -> None:
    """The run does not start, and the message says what was seen and what to do."""
    passed = SelfTest(PASSED, PASSED, PASSED, PASSED, PASSED, PASSED, "0" * 64)
    require_passed(passed, strict=True)

    with pytest.raises(IntegrityError) as caught:
        require_passed(replace(passed, **{field: "what was seen"}), strict=True)

    assert str(caught.value).startswith(f"self-test {claim}: what was seen; ")
    assert cure in str(caught.value)


@pytest.mark.parametrize(
    ("field", "is_refused"),
    [("tile_invariance", False), ("repeatability", True), ("causality", True), ("head", True), ("threads", True)],
)
def test_only_tile_invariance_can_be_done_without(field: str, is_refused: bool) -> None:
    """Unless strict, a run goes on where neighbours change bits, and under no other failure."""
    failed = replace(SelfTest(PASSED, PASSED, PASSED, PASSED, PASSED, PASSED, "0" * 64), **{field: "what was seen"})

    with pytest.raises(IntegrityError) if is_refused else nullcontext():
        require_passed(failed, strict=False)

    assert failed.is_batch_invariant == is_refused


def test_a_model_that_is_nan_everywhere_fails(model_of: ModelOf) -> None:
    """One broken norm weight makes every loss NaN; the self-test says so before hours are spent."""
    model = load_model(locate(model_of("llama"), None), precision="fp32", device=torch.device("cpu"))
    model.model.base_model.norm.weight.data[0] = float("nan")

    found = outcomes(model)

    assert found["finite_losses"] == "every loss is NaN or infinite"
