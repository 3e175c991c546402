"""Token losses from hidden states, without ever holding the logits of a whole tile.

Legend: D hidden size, V vocabulary, N scored positions of a tile, C positions of a chunk, S entries of a slice,
K slices.

The head runs in fp32 on chunks of one size for each tile shape (the last one filled with zeros) and slices of
``HEAD_SLICE`` vocabulary entries, so its kernels see the same shapes whatever the tile holds, ``[C, S]`` is the largest
buffer there is, and it stays in the cache. Log-sum-exp is put together from the slices' (largest, sum) pairs in
fp64, always in the same order.

Where weights and hidden states are bf16 numbers, a processor's bf16 units take their products exactly, as fp32 units
would, and add them up in fp32; so the head's logits are fp32 there too, at the speed of bf16.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from scoring.kernels import fp32_sums_of_bf16_products, linear, packed

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

HEAD_CHUNK = 512
HEAD_SLICE = 4096


@dataclass(frozen=True)
class Head:
    """The output projection and what the model does to its logits.

    Attributes:
        weight_VD: fp32.
        bias_V: fp32, or none.
        multiplier: Logits are multiplied by it first (Cohere's ``logit_scale``).
        divisor: Logits are divided by it first (Granite's ``logits_scaling``).
        softcap: ``softcap * tanh(logits / softcap)`` (Gemma 2's ``final_logit_softcapping``).
        is_bf16: Each weight is a bf16 number.
    """

    weight_VD: Tensor  # noqa: N815 - shape letters
    bias_V: Tensor | None = None  # noqa: N815 - shape letters
    multiplier: float | None = None
    divisor: float | None = None
    softcap: float | None = None
    is_bf16: bool = False

    @cached_property
    def slices(self) -> tuple[Tensor, ...]:
        """The weight by ``HEAD_SLICE`` entries, laid out for fp32 products."""
        return tuple(map(packed, torch.split(self.weight_VD, HEAD_SLICE)))

    @cached_property
    def bf16_slices(self) -> tuple[Tensor, ...]:
        """As ``slices``, laid out for products of bf16 numbers."""
        with fp32_sums_of_bf16_products():
            return tuple(map(packed, torch.split(self.weight_VD, HEAD_SLICE)))


def make_head(projection: torch.nn.Module, config: PreTrainedConfig) -> Head:
    """Read the head of a model; the self-test proves the reading against ``model(...).logits``."""
    stored = dict(projection.named_parameters(recurse=False))
    parameters = {
        # fp32, and fp64 where the weights are.
        name: parameter.detach().to(torch.promote_types(parameter.dtype, torch.float32))
        for name, parameter in stored.items()
    }
    divides = str(config.model_type).startswith("granite")
    return Head(
        weight_VD=parameters["weight"],
        bias_V=parameters.get("bias"),
        multiplier=getattr(config, "logit_scale", None),
        divisor=getattr(config, "logits_scaling", None) if divides else None,
        softcap=getattr(config, "final_logit_softcapping", None),
        is_bf16=stored["weight"].dtype == torch.bfloat16,
    )


def chunk_of(num_positions: int) -> int:
    """The chunk for a tile of so many positions: the fewest equal chunks of at most ``HEAD_CHUNK``.

    It follows from the tile's shape and not from what the tile holds, and a full tile fills its chunks.
    """
    num_chunks = -(-num_positions // HEAD_CHUNK)
    return -(-num_positions // num_chunks)


def token_losses(hidden_ND: Tensor, head: Head, targets_N: Tensor, *, chunk: int = HEAD_CHUNK) -> Tensor:
    """Negative log-likelihood of each target token.

    Args:
        hidden_ND: Backbone output at the scored positions, any float dtype.
        head: fp32 output projection on the same device.
        targets_N: int64 ids of the tokens that follow.
        chunk: Positions that the head takes at a time.

    Returns:
        ``nll_N`` in nats, float64, computed in fp32; NaN or infinite where the logits were.
    """
    num_positions = hidden_ND.shape[0]
    parts = []
    is_exact_in_bf16 = head.is_bf16 and hidden_ND.dtype == torch.bfloat16 and hidden_ND.device.type == "cpu"
    products = fp32_sums_of_bf16_products() if is_exact_in_bf16 else contextlib.nullcontext()
    slices = head.bf16_slices if is_exact_in_bf16 else head.slices
    with torch.autocast(hidden_ND.device.type, enabled=False), products:
        for start in range(0, num_positions, chunk):
            stop = min(start + chunk, num_positions)
            parts.append(_chunk_losses(hidden_ND[start:stop], head, slices, targets_N[start:stop], chunk))
    return torch.cat(parts) if parts else torch.empty(0, dtype=torch.float64)


def _chunk_losses(hidden_ND: Tensor, head: Head, slices: tuple[Tensor, ...], targets_N: Tensor, chunk: int) -> Tensor:
    num_positions = hidden_ND.shape[0]
    hidden_CD = hidden_ND.new_zeros((chunk, hidden_ND.shape[1]), dtype=head.weight_VD.dtype)
    hidden_CD[:num_positions] = hidden_ND
    targets_C1 = targets_N.new_zeros((chunk, 1))
    targets_C1[:num_positions, 0] = targets_N
    target_logits_C1 = hidden_CD.new_zeros((chunk, 1))
    largest, sums = [], []
    for number, weight_SD in enumerate(slices):
        first, size = number * HEAD_SLICE, weight_SD.shape[0]
        bias_S = None if head.bias_V is None else head.bias_V[first : first + size]
        logits_CS = linear(hidden_CD, weight_SD, bias_S)
        _transform(logits_CS, head)
        index_C1 = targets_C1 - first
        inside_C1 = (index_C1 >= 0) & (index_C1 < size)
        found_C1 = logits_CS.gather(1, index_C1.clamp(0, size - 1))
        target_logits_C1 = torch.where(inside_C1, found_C1, target_logits_C1)
        # In place, below the slice's largest logit, so that exp never overflows and one term is exactly 1.
        largest.append(logits_CS.amax(dim=1))
        sums.append(logits_CS.sub_(largest[-1][:, None]).exp_().sum(dim=1))
    log_sums_C = _log_sum(_fp64(torch.stack(largest, dim=1)), _fp64(torch.stack(sums, dim=1)))
    return (log_sums_C - _fp64(target_logits_C1[:, 0]))[:num_positions]


def _log_sum(largest_CK: Tensor, sums_CK: Tensor) -> Tensor:
    """``log Σ exp(logit)`` from K slices; infinite logits give NaN or infinity, never a plausible number."""
    peak_C1 = largest_CK.amax(dim=1, keepdim=True)
    return (sums_CK * (largest_CK - peak_C1).exp()).sum(dim=1).log() + peak_C1[:, 0]


def _fp64(values: Tensor) -> Tensor:
    """Widened where the device can; MPS has no fp64, so there on the CPU."""
    return values.cpu().double() if values.device.type == "mps" else values.double()


def _transform(logits_CS: Tensor, head: Head) -> None:
    if head.multiplier is not None:
        logits_CS.mul_(head.multiplier)
    if head.divisor is not None:
        logits_CS.div_(head.divisor)
    if head.softcap is not None:
        logits_CS.div_(head.softcap).tanh_().mul_(head.softcap)
