"""oneDNN's products: the same numbers as torch's, a row's bits its own, and a backbone that computes as before."""

from __future__ import annotations

import pytest
import torch
from transformers.pytorch_utils import Conv1D

from scoring.kernels import PackedLinear, has_onednn, linear, pack_projections, packed

needs_onednn = pytest.mark.skipif(not has_onednn(), reason="this processor or torch has no oneDNN products")


def made(*shape: int, seed: int) -> torch.Tensor:
    """Normal fp32 numbers."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("num_rows", [1, 7, 300])
@pytest.mark.parametrize("has_bias", [False, True])
@torch.no_grad()
def test_a_product_is_that_of_fp64(num_rows: int, has_bias: bool) -> None:
    """Whatever is contiguous or not, within the rounding of fp32."""
    inputs, weight = made(96, num_rows, seed=1).t(), made(96, 40, seed=2).t()
    bias = made(40, seed=3) if has_bias else None

    product = linear(inputs, packed(weight), bias)

    exact = inputs.double() @ weight.double().t() + (0 if bias is None else bias.double())
    assert (product - exact).abs().max().item() < 2e-5


@needs_onednn
@torch.no_grad()
def test_a_row_has_its_own_bits() -> None:
    """In one shape a row's outputs are the same at any place, beside any others, NaN among them."""
    weight, row = packed(made(200, 576, seed=4)), made(1, 576, seed=5)
    strangers = [made(320, 576, seed=6), torch.full((320, 576), torch.nan), torch.zeros(320, 576)]

    products = []
    for place, inputs in zip((0, 161, 319), strangers, strict=True):
        inputs[place] = row
        products.append(linear(inputs, weight)[place])

    assert torch.equal(products[0], products[1])
    assert torch.equal(products[0], products[2])


@torch.no_grad()
def test_only_plain_projections_are_replaced() -> None:
    """Linear and Conv1D become oneDNN's with the same outputs; a subclass, which may compute otherwise, stays."""

    class Scaled(torch.nn.Linear):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return 3 * super().forward(inputs)

    torch.manual_seed(7)
    inner = torch.nn.Sequential(torch.nn.Linear(24, 12, bias=False), Conv1D(16, 12))
    backbone = torch.nn.Sequential(torch.nn.Linear(8, 24), inner, Scaled(16, 4))
    inputs = made(2, 5, 8, seed=8)
    before = backbone(inputs)

    pack_projections(backbone)

    kinds = [type(module) for module in backbone.modules() if not isinstance(module, torch.nn.Sequential)]
    assert kinds == [PackedLinear, PackedLinear, PackedLinear, Scaled]
    assert torch.allclose(backbone(inputs), before, atol=1e-6)


@torch.no_grad()
def test_a_packed_weight_can_be_read() -> None:
    """Code that looks at a projection's weight finds it as it was."""
    weight = made(33, 17, seed=9)

    projection = PackedLinear(weight, None)

    assert torch.equal(projection.weight, weight)
