"""Matrix products on CPUs by oneDNN, with weights laid out beforehand.

torch computes fp32 products with MKL, which keeps its AVX-512 kernels for Intel's processors; oneDNN chooses by
instruction set alone, and takes weights that were laid out for it beforehand. On an AMD EPYC it was 1.2 to 1.5 times as
fast (``benchmarks/scoring_throughput.py``). bf16 products are oneDNN's already, and 5 to 10 % faster so laid out.

Legend: N positions, D inputs, M outputs.
"""

from __future__ import annotations

import contextlib
import functools
import platform
from collections.abc import Iterator

import torch
from torch import Tensor

LAID_OUT = (torch.float32, torch.bfloat16)
PROBE_LENGTH = 16
PROBE_TOLERANCE = 1e-4


@functools.cache
def has_onednn() -> bool:
    """Whether this torch can be asked for oneDNN's fp32 products, and this processor gains by it."""
    is_x86 = platform.machine().lower() in {"x86_64", "amd64"}
    return is_x86 and bool(torch._C._has_mkldnn) and hasattr(torch.ops.mkldnn, "_linear_pointwise")


@contextlib.contextmanager
def fp32_sums_of_bf16_products() -> Iterator[None]:
    """OneDNN may round the fp32 inputs of products to bf16 inside the block; sums and results stay fp32.

    Inputs that are bf16 numbers lose nothing by it. The setting is the process's: no other thread may multiply.
    """
    matmul = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]  # set there when torch is imported
    before = matmul.fp32_precision
    matmul.fp32_precision = "bf16"
    try:
        yield
    finally:
        matmul.fp32_precision = before


def packed(weight_MD: Tensor) -> Tensor:
    """A weight laid out for ``linear``: opaque in fp32 or bf16 on a CPU that gains by it, else as it is."""
    if weight_MD.device.type != "cpu" or weight_MD.dtype not in LAID_OUT or not has_onednn():
        return weight_MD
    with torch.no_grad():
        laid_out: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight_MD.detach().contiguous(), None)
    return laid_out


def is_laid_out(weight_MD: Tensor) -> bool:
    """Whether oneDNN takes the products of a weight from ``packed``."""
    return weight_MD.layout is torch._mkldnn  # type: ignore[attr-defined]  # the layout has no public name


def linear(inputs_ND: Tensor, packed_MD: Tensor, bias_M: Tensor | None = None) -> Tensor:
    """``inputs @ weight.T + bias``, without gradients.

    Args:
        inputs_ND: Leading dimensions may be any.
        packed_MD: From ``packed``.
        bias_M: Added if given.

    Returns:
        ``[..., M]``.
    """
    if not is_laid_out(packed_MD):
        return torch.nn.functional.linear(inputs_ND, packed_MD, bias_M)
    # Of what is not contiguous oneDNN's slow reference kernels would take care.
    product: Tensor = torch.ops.mkldnn._linear_pointwise(inputs_ND.contiguous(), packed_MD, bias_M, "none", [], "")
    return product


class PackedLinear(torch.nn.Module):
    """What ``torch.nn.Linear`` computes, by ``linear``."""

    def __init__(self, weight_MD: Tensor, bias_M: Tensor | None) -> None:
        super().__init__()
        self.packed_MD = packed(weight_MD)
        self.bias = None if bias_M is None else bias_M.detach()

    @property
    def weight(self) -> Tensor:
        """``[M, D]`` in the plain layout, for code that looks at it."""
        return self.packed_MD.to_dense()

    def forward(self, inputs: Tensor) -> Tensor:
        """``[..., D]`` to ``[..., M]``."""
        return linear(inputs, self.packed_MD, self.bias)


class GatedMLP(torch.nn.Module):
    """``down(silu(gate(x)) * up(x))``, activation and product taken by oneDNN while it writes the projections' results.

    In bf16 it rounds once less than the modules by themselves.
    """

    def __init__(self, gate: PackedLinear, up: PackedLinear, down: PackedLinear) -> None:
        super().__init__()
        self.gate_proj, self.up_proj, self.down_proj = gate, up, down

    def forward(self, inputs: Tensor) -> Tensor:
        """``[..., D]`` to ``[..., D]``."""
        flat_ND = inputs.flatten(0, -2).contiguous()
        gate, up = self.gate_proj, self.up_proj
        # oneDNN's name of SiLU is swish.
        gates_NM = torch.ops.mkldnn._linear_pointwise(flat_ND, gate.packed_MD, gate.bias, "swish", [], "")
        inner_NM = torch.ops.mkldnn._linear_pointwise.binary(flat_ND, gates_NM, up.packed_MD, up.bias, "mul")
        outputs_ND: Tensor = self.down_proj(inner_NM)
        return outputs_ND.view(inputs.shape)


def fuse_gated_mlps(backbone: torch.nn.Module) -> None:
    """Replace the gated MLPs of a packed backbone, where they compute what ``GatedMLP`` does.

    A module that has the parts may still use them otherwise, so each is asked, with random numbers.
    """
    for parent in list(backbone.modules()):
        for name, child in list(parent.named_children()):
            parts = [getattr(child, part, None) for part in ("gate_proj", "up_proj", "down_proj")]
            projections = [part for part in parts if isinstance(part, PackedLinear) and is_laid_out(part.packed_MD)]
            if len(projections) == len(parts):
                fused = GatedMLP(*projections)
                if _is_same(child, fused):
                    setattr(parent, name, fused)


def _is_same(child: torch.nn.Module, fused: GatedMLP) -> bool:
    size, dtype = fused.gate_proj.packed_MD.shape[1], fused.gate_proj.packed_MD.dtype
    probe_BTD = torch.randn((1, PROBE_LENGTH, size), generator=torch.Generator().manual_seed(0)).to(dtype)
    with torch.no_grad():
        found, expected = fused(probe_BTD), child(probe_BTD)
    if not isinstance(expected, Tensor) or expected.shape != found.shape:
        return False
    distance = torch.linalg.vector_norm((found - expected).double())
    # Roundings alone come to 0.3 % in bf16 and 1e-6 in fp32; another activation or factor is off by per cents.
    tolerance = max(PROBE_TOLERANCE, torch.finfo(dtype).eps)
    return bool(distance <= tolerance * torch.linalg.vector_norm(expected.double()))


def pack_projections(backbone: torch.nn.Module) -> None:
    """Replace the projections of a backbone on the CPU; subclasses, which may compute otherwise, stay."""
    from transformers.pytorch_utils import Conv1D

    for parent in list(backbone.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is torch.nn.Linear:
                setattr(parent, name, PackedLinear(child.weight, child.bias))
            elif type(child) is Conv1D:  # GPT-2's, whose weight is [D, M]
                weight_DM, bias_M = child.parameters()
                setattr(parent, name, PackedLinear(weight_DM.detach().t(), bias_M))
