"""Tiles: whatever rows there are, the model sees one of the menu's shapes, and padding never has a say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from scoring.checkpoints import locate
from scoring.forward import make_tile_function
from scoring.models import LoadedModel, has_experts, load_model
from scoring.tiles import Row, make_menu
from tests.models import VOCAB_SIZE
from tests.reference import window_losses

ModelOf = Callable[[str], Path]
MENU = make_menu(64, tokens=256, one_row=False)


@pytest.fixture(scope="module")
def llama(tiny_llama: Path) -> LoadedModel:
    """A loaded model."""
    return load_model(locate(tiny_llama, None), precision="fp32", device=torch.device("cpu"))


def row_of(length: int, *, num_context: int, seed: int) -> Row:
    """A row of random tokens."""
    ids: NDArray[np.int64] = np.random.default_rng(seed).integers(0, VOCAB_SIZE, length + 1)
    return Row(inputs=ids[:-1], targets=ids[num_context + 1 :], num_context=num_context)


def shapes_seen(model: LoadedModel) -> tuple[list[tuple[int, ...]], Any]:
    """Shapes of the batches that a model's backbone is called with, and what ends the listening."""
    shapes: list[tuple[int, ...]] = []

    def listen(_module: Any, _arguments: Any, named: dict[str, torch.Tensor]) -> None:
        shapes.append(tuple(named["input_ids"].shape))

    return shapes, model.model.base_model.register_forward_pre_hook(listen, with_kwargs=True)


@settings(max_examples=20)
@given(sizes=st.lists(st.integers(1, 64), min_size=1, max_size=4))
def test_a_tile_has_the_shape_of_its_length(sizes: list[int], llama: LoadedModel) -> None:
    """One row or four, short or long: the forward pass of a length T has rows_of(T) × T tokens."""
    length = MENU.length_of(max(sizes))
    rows = [row_of(size, num_context=0, seed=at) for at, size in enumerate(sizes)][: MENU.rows_of(length)]
    shapes, listening = shapes_seen(llama)

    with llama.computing(), listening:
        losses = make_tile_function(llama, MENU)(length, rows)

    assert shapes == [(MENU.rows_of(length), length)]
    assert list(map(len, losses)) == [len(row.targets) for row in rows]


@settings(max_examples=20)
@given(sizes=st.lists(st.tuples(st.integers(1, 64), st.integers(0, 63)), min_size=1, max_size=4))
def test_a_row_has_the_losses_of_an_unpadded_pass(
    sizes: list[tuple[int, int]], llama: LoadedModel, tiny_llama: Path
) -> None:
    """Each row, also one with context that is not scored, has the losses of a plain pass over it alone, in order."""
    rows = [row_of(n, num_context=min(context, n - 1), seed=at) for at, (n, context) in enumerate(sizes)]

    with llama.computing():
        losses = make_tile_function(llama, MENU)(64, rows)

    for row, own in zip(rows, losses, strict=True):
        alone = window_losses(tiny_llama, [*row.inputs.tolist(), int(row.targets[-1])])
        assert own.dtype == np.float64
        assert own.tolist() == pytest.approx(alone[row.num_context :], rel=1e-5, abs=1e-5)


def test_a_shape_is_independent_of_the_head_chunks(llama: LoadedModel) -> None:
    """A row's bits are the same when the scored positions before it shift the borders of the head's chunks."""
    probe = row_of(64, num_context=0, seed=1)
    found = []

    with llama.computing():
        compute = make_tile_function(llama, MENU)
        for num_context in (0, 1, 37, 63):
            neighbours = [row_of(64, num_context=num_context, seed=at) for at in (2, 3)]
            found.append(compute(64, [*neighbours, probe])[-1].tolist())

    assert found == [found[0]] * 4


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (transformers.DbrxConfig(), True),
        (transformers.MixtralConfig(), True),
        (transformers.LlamaConfig(), False),
    ],
    ids=["in a part", "in itself", "none"],
)
def test_a_mixture_of_experts_is_known_by_its_configuration(
    config: transformers.PreTrainedConfig, expected: bool
) -> None:
    """Wherever a family says how many experts there are: such a model has rows of its own."""
    assert has_experts(config) == expected
