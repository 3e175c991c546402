"""Causal attention on CPUs by blocks of queries, as plain matrix products.

torch's CPU kernel takes 32 queries at a time for up to 768, and works at a third of the machine's speed. Here the heads
that share keys bring 64 queries each, and meet the keys up to their own end in one product, so hardly any masked score
is computed.
Scores and softmax are fp32 or wider, as in that kernel. Measured by ``benchmarks/scoring_throughput.py``.

Legend: B rows, H heads, K heads of keys, G heads that share keys (H = K * G), T tokens, D head size, Q queries of a
block, S keys that they may see.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from transformers import PreTrainedModel

NAME = "exactppl_blocked"
QUERY_BLOCK = 64
MAX_LENGTH = 1024


def use_blocked_attention(model: PreTrainedModel) -> None:
    """Let a model of transformers that computes by torch's kernel compute by this one wherever that is the same thing.

    What is not plain causal attention over all earlier tokens goes to torch's kernel as before.
    """
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    AttentionInterface.register(NAME, _attention)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    model.set_attn_implementation(NAME)


def blocked_attention(query_BHTD: Tensor, key_BKTD: Tensor, value_BKTD: Tensor, *, scale: float) -> Tensor:
    """Causal attention.

    Args:
        query_BHTD: Any float dtype.
        key_BKTD: Head ``h`` of the queries looks at head ``h // G`` of the keys.
        value_BKTD: As the keys.
        scale: Of the scores.

    Returns:
        ``[B, T, H, D]`` in the dtype of the queries.
    """
    num_rows, num_heads, length, size = query_BHTD.shape
    num_shared = num_heads // key_BKTD.shape[1]
    num_products = num_rows * key_BKTD.shape[1]
    query_PGTD = query_BHTD.reshape(num_products, num_shared, length, size)
    wide = torch.promote_types(query_BHTD.dtype, torch.float32)
    key_PTD = key_BKTD.reshape(num_products, length, size).to(wide)
    value_PTD = value_BKTD.reshape(num_products, length, value_BKTD.shape[-1])
    out_BTKGD = query_BHTD.new_empty((num_rows, length, key_BKTD.shape[1], num_shared, value_PTD.shape[-1]))
    for start in range(0, length, QUERY_BLOCK):
        stop = min(start + QUERY_BLOCK, length)
        block_PQD = query_PGTD[:, :, start:stop].reshape(num_products, -1, size).to(wide)
        scores_PQS = torch.bmm(block_PQD * scale, key_PTD[:, :stop].transpose(1, 2))
        own_PGQQ = scores_PQS.view(num_products, num_shared, stop - start, stop)[..., start:]
        own_PGQQ.add_(_mask(stop - start, scores_PQS.device))
        weights_PQS = torch.softmax(scores_PQS, dim=-1).to(value_PTD.dtype)
        block_PQD = torch.bmm(weights_PQS, value_PTD[:, :stop])
        shaped = block_PQD.view(num_rows, key_BKTD.shape[1], num_shared, stop - start, -1)
        out_BTKGD[:, start:stop] = shaped.permute(0, 3, 1, 2, 4)
    return out_BTKGD.flatten(2, 3)


@functools.cache
def _mask(size: int, device: torch.device) -> Tensor:
    return torch.full((size, size), -torch.inf, device=device).triu(1)


def _attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **options: Any,
) -> tuple[Tensor, None]:
    """The interface of transformers' ``AttentionInterface``."""
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    known = {"dropout": 0.0, "is_causal": None, "output_attentions": None, "position_bias": None, "softcap": None}
    is_plain = (
        attention_mask is None
        and getattr(module, "is_causal", True)
        and query.shape[2] == key.shape[2] <= MAX_LENGTH
        and all(options.get(name, value) in (value, None, False) for name, value in known.items())
    )
    if not is_plain:
        found: tuple[Tensor, None] = sdpa_attention_forward(module, query, key, value, attention_mask, **options)
        return found
    scale = options.get("scaling")
    # Autocast would round the scores to bf16 before the softmax.
    with torch.autocast(query.device.type, enabled=False):
        out = blocked_attention(query, key, value, scale=query.shape[-1] ** -0.5 if scale is None else scale)
    return out, None
