"""fp32 matrix products on CPUs by oneDNN instead of MKL.

torch computes fp32 products with MKL, which keeps its AVX-512 kernels for Intel's processors; oneDNN chooses by
instruction set alone. On an AMD EPYC it was 1.2 to 1.5 times as fast (``benchmarks/scoring_throughput.py``). bf16
products are oneDNN's already.

Legend: N positions, D inputs, M outputs.
"""

from __future__ import annotations

import functools
import platform

import torch
from torch import Tensor


@functools.cache
def has_onednn() -> bool:
    """Whether this torch can be asked for oneDNN's fp32 products, and this processor gains by it."""
    is_x86 = platform.machine().lower() in {"x86_64", "amd64"}
    return is_x86 and torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def linear(inputs_ND: Tensor, weight_MD: Tensor, bias_M: Tensor | None = None) -> Tensor:
    """``inputs @ weight.T + bias``, without gradients; leading dimensions of the inputs may be any.

    Both are contiguous: oneDNN's slow reference kernels take what is not.
    """
    if inputs_ND.device.type == "cpu" and inputs_ND.dtype == weight_MD.dtype == torch.float32 and has_onednn():
        product: Tensor = torch.ops.mkldnn._linear_pointwise(
            inputs_ND.contiguous(), weight_MD.contiguous(), bias_M, "none", [], ""
        )
        return product
    return torch.nn.functional.linear(inputs_ND, weight_MD, bias_M)


class OneDnnLinear(torch.nn.Module):
    """What ``torch.nn.Linear`` computes, by ``linear``."""

    def __init__(self, weight_MD: Tensor, bias_M: Tensor | None) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(weight_MD.contiguous(), requires_grad=False)
        self.bias = None if bias_M is None else torch.nn.Parameter(bias_M, requires_grad=False)

    def forward(self, inputs: Tensor) -> Tensor:
        """``[..., D]`` to ``[..., M]``."""
        return linear(inputs, self.weight, self.bias)


PROJECTIONS = (torch.nn.Linear, OneDnnLinear)


def use_onednn(backbone: torch.nn.Module) -> None:
    """Replace the fp32 projections of a backbone on the CPU; subclasses, which may compute otherwise, stay."""
    from transformers.pytorch_utils import Conv1D

    for parent in list(backbone.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is torch.nn.Linear:
                setattr(parent, name, OneDnnLinear(child.weight.detach(), child.bias))
            elif type(child) is Conv1D:  # GPT-2's, whose weight is [D, M]
                setattr(parent, name, OneDnnLinear(child.weight.detach().t(), child.bias))
