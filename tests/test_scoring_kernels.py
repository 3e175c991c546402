"""oneDNN's products: the same numbers as torch's, a row's bits its own, and a backbone that computes as before."""

from __future__ import annotations

import pytest
import torch
from transformers.activations import ACT2FN
from transformers.pytorch_utils import Conv1D

from scoring.kernels import (
    GatedMLP,
    PackedLinear,
    fp32_sums_of_bf16_products,
    fuse_gated_mlps,
    has_onednn,
    linear,
    pack_projections,
    packed,
)

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


class Gated(torch.nn.Module):
    """An MLP as transformers writes it, with an activation of its own."""

    def __init__(self, activation: str, *, has_bias: bool, scale: float = 1.0) -> None:
        super().__init__()
        torch.manual_seed(11)
        self.gate_proj, self.up_proj = (torch.nn.Linear(48, 80, bias=has_bias) for _ in range(2))
        self.down_proj = torch.nn.Linear(80, 48, bias=has_bias)
        self.activation, self.scale = ACT2FN[activation], scale

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """``[..., 48]`` to the same."""
        inner: torch.Tensor = self.activation(self.gate_proj(inputs)) * self.up_proj(inputs) * self.scale
        return torch.as_tensor(self.down_proj(inner))


@needs_onednn
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@torch.no_grad()
def test_a_gated_mlp_computes_as_before_in_fewer_passes(has_bias: bool, dtype: torch.dtype) -> None:
    """Against fp64 it is no farther off than the modules by themselves, but for a hair."""
    backbone = torch.nn.Sequential(Gated("silu", has_bias=has_bias).to(dtype))
    inputs = made(3, 7, 48, seed=12).to(dtype)
    exact = Gated("silu", has_bias=has_bias).double()
    exact.load_state_dict(backbone[0].state_dict())
    expected, plain = exact(inputs.double()), backbone(inputs)

    pack_projections(backbone)
    fuse_gated_mlps(backbone)

    assert type(backbone[0]) is GatedMLP
    distances = [(found.double() - expected).norm().item() for found in (backbone(inputs), plain)]
    assert distances[0] <= 1.1 * distances[1] + 1e-6


@needs_onednn
@pytest.mark.parametrize(("activation", "scale"), [("gelu_pytorch_tanh", 1.0), ("relu", 1.0), ("silu", 1.02)])
@torch.no_grad()
def test_an_mlp_that_computes_otherwise_stays(activation: str, scale: float) -> None:
    """Its parts have the names, but the outputs differ; in bf16 by as little as two per cent."""
    for dtype in (torch.float32, torch.bfloat16):
        backbone = torch.nn.Sequential(Gated(activation, has_bias=False, scale=scale).to(dtype))
        pack_projections(backbone)
        before = backbone(made(2, 48, seed=13).to(dtype))

        fuse_gated_mlps(backbone)

        assert type(backbone[0]) is Gated
        assert torch.equal(backbone(made(2, 48, seed=13).to(dtype)), before)


@needs_onednn
@torch.no_grad()
def test_sums_of_bf16_products_are_fp32_and_the_setting_ends_with_the_block() -> None:
    """bf16 numbers lose nothing; afterwards fp32 numbers are multiplied as such, after an error too."""
    inputs, weight = made(64, 576, seed=14), made(320, 576, seed=15)
    narrow_inputs, narrow_weight = inputs.bfloat16().float(), weight.bfloat16().float()

    with fp32_sums_of_bf16_products():
        product = linear(narrow_inputs, packed(narrow_weight))
    with pytest.raises(ZeroDivisionError), fp32_sums_of_bf16_products():
        _ = 1 / 0

    assert (product - narrow_inputs.double() @ narrow_weight.double().t()).abs().max().item() < 1e-4
    after = linear(inputs, packed(weight))
    assert (after - inputs.double() @ weight.double().t()).abs().max().item() < 1e-4
