"""Matrix products on CPUs by oneDNN, with weights laid out beforehand.

torch computes fp32 products with MKL, which keeps its AVX-512 kernels for Intel's processors; oneDNN chooses by
instruction set alone, and takes weights that were laid out for it beforehand. On an AMD EPYC it was 1.2 to 1.5 times as
fast (``benchmarks/scoring_throughput.py``). bf16 products are oneDNN's already, and 5 to 10 % faster so laid out.

Legend: N positions, D inputs, M outputs.
"""

from __future__ import annotations

import functools
import platform

import torch
from torch import Tensor

LAID_OUT = (torch.float32, torch.bfloat16)


@functools.cache
def has_onednn() -> bool:
    """Whether this torch can be asked for oneDNN's fp32 products, and this processor gains by it."""
    is_x86 = platform.machine().lower() in {"x86_64", "amd64"}
    return is_x86 and bool(torch._C._has_mkldnn) and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def packed(weight_MD: Tensor) -> Tensor:
    """A weight laid out for ``linear``: opaque in fp32 or bf16 on a CPU that gains by it, else as it is."""
    if weight_MD.device.type != "cpu" or weight_MD.dtype not in LAID_OUT or not has_onednn():
        return weight_MD
    with torch.no_grad():
        laid_out: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight_MD.detach().contiguous(), None)
    return laid_out


def linear(inputs_ND: Tensor, packed_MD: Tensor, bias_M: Tensor | None = None) -> Tensor:
    """``inputs @ weight.T + bias``, without gradients.

    Args:
        inputs_ND: Leading dimensions may be any.
        packed_MD: From ``packed``.
        bias_M: Added if given.

    Returns:
        ``[..., M]``.
    """
    if packed_MD.layout is not torch._mkldnn:  # type: ignore[attr-defined]  # the layout has no public name
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
