"""Token losses from hidden states, without ever holding the logits of a whole tile.

Legend: B rows, T tokens, D hidden size, V vocabulary, N scored positions of a tile, C positions of a chunk.

The head runs in fp32 on chunks of exactly ``HEAD_CHUNK`` positions (the last one filled with zeros), so its kernels
see one shape only, and ``[C, V]`` is the largest buffer there is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

HEAD_CHUNK = 128


@dataclass(frozen=True, slots=True)
class Head:
    """The output projection and what the model does to its logits.

    Attributes:
        weight_VD: fp32.
        bias_V: fp32, or none.
        multiplier: Logits are multiplied by it first (Cohere's ``logit_scale``).
        divisor: Logits are divided by it first (Granite's ``logits_scaling``).
        softcap: ``softcap * tanh(logits / softcap)`` (Gemma 2's ``final_logit_softcapping``).
    """

    weight_VD: Tensor  # noqa: N815 - shape letters
    bias_V: Tensor | None = None  # noqa: N815 - shape letters
    multiplier: float | None = None
    divisor: float | None = None
    softcap: float | None = None


def make_head(projection: torch.nn.Module, config: PreTrainedConfig) -> Head:
    """Read the head of a model; the self-test proves the reading against ``model(...).logits``."""
    parameters = {name: parameter.detach().float() for name, parameter in projection.named_parameters(recurse=False)}
    divides = str(config.model_type).startswith("granite")
    return Head(
        weight_VD=parameters["weight"],
        bias_V=parameters.get("bias"),
        multiplier=getattr(config, "logit_scale", None),
        divisor=getattr(config, "logits_scaling", None) if divides else None,
        softcap=getattr(config, "final_logit_softcapping", None),
    )


def token_losses(hidden_ND: Tensor, head: Head, targets_N: Tensor) -> Tensor:
    """Negative log-likelihood of each target token.

    Args:
        hidden_ND: Backbone output at the scored positions, any float dtype.
        head: fp32 output projection on the same device.
        targets_N: int64 ids of the tokens that follow.

    Returns:
        ``nll_N`` in nats, float64, computed in fp32; NaN or infinite where the logits were.
    """
    num_positions = hidden_ND.shape[0]
    logits_CV = hidden_ND.new_empty((HEAD_CHUNK, head.weight_VD.shape[0]), dtype=torch.float32)
    nll_N = torch.empty(num_positions, dtype=torch.float64, device=hidden_ND.device)
    with torch.autocast(hidden_ND.device.type, enabled=False):
        for start in range(0, num_positions, HEAD_CHUNK):
            stop = min(start + HEAD_CHUNK, num_positions)
            nll_N[start:stop] = _chunk_losses(hidden_ND[start:stop], head, targets_N[start:stop], logits_CV)
    return nll_N


def _chunk_losses(hidden_ND: Tensor, head: Head, targets_N: Tensor, logits_CV: Tensor) -> Tensor:
    num_positions = hidden_ND.shape[0]
    hidden_CD = hidden_ND.new_zeros((HEAD_CHUNK, hidden_ND.shape[1]), dtype=torch.float32)
    hidden_CD[:num_positions] = hidden_ND
    torch.mm(hidden_CD, head.weight_VD.t(), out=logits_CV)
    _transform(logits_CV, head)
    targets_C1 = targets_N.new_zeros((HEAD_CHUNK, 1))
    targets_C1[:num_positions, 0] = targets_N
    target_logits_C1 = logits_CV.gather(1, targets_C1)
    # log-sum-exp in place: subtract the largest logit, so that exp never overflows and one term is exactly 1.
    largest_C1 = logits_CV.amax(dim=1, keepdim=True)
    sums_C1 = logits_CV.sub_(largest_C1).exp_().sum(dim=1, keepdim=True)
    nll_C = (sums_C1.double().log() + (largest_C1.double() - target_logits_C1.double()))[:, 0]
    return nll_C[:num_positions]


def _transform(logits_CV: Tensor, head: Head) -> None:
    if head.bias_V is not None:
        logits_CV.add_(head.bias_V)
    if head.multiplier is not None:
        logits_CV.mul_(head.multiplier)
    if head.divisor is not None:
        logits_CV.div_(head.divisor)
    if head.softcap is not None:
        logits_CV.div_(head.softcap).tanh_().mul_(head.softcap)
