"""Attention by blocks of queries: the same as torch's own kernel, and used only where it is the same thing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM

from scoring.attention import NAME, QUERY_BLOCK, blocked_attention, use_blocked_attention

ModelOf = Callable[[str], Path]
TOLERANCES = {torch.float32: 1e-5, torch.bfloat16: 3e-2, torch.float64: 1e-12}


def heads(generator: torch.Generator, *shape: int, dtype: torch.dtype) -> torch.Tensor:
    """Random states as a model hands them over: heads are strided."""
    num_rows, num_heads, length, size = shape
    return torch.randn(num_rows, length, num_heads, size, generator=generator).to(dtype).transpose(1, 2)


@given(
    num_rows=st.integers(1, 3),
    num_keys=st.integers(1, 3),
    num_shared=st.integers(1, 3),
    length=st.integers(1, 3 * QUERY_BLOCK + 2),
    size=st.sampled_from([4, 16]),
    dtype=st.sampled_from(list(TOLERANCES)),
)
def test_it_is_causal_attention(
    num_rows: int, num_keys: int, num_shared: int, length: int, size: int, dtype: torch.dtype
) -> None:
    """For any shape, shared heads and dtype it agrees with torch's kernel in fp64."""
    generator = torch.Generator().manual_seed(length)
    query = heads(generator, num_rows, num_keys * num_shared, length, size, dtype=dtype)
    key, value = (heads(generator, num_rows, num_keys, length, size, dtype=dtype) for _ in range(2))

    found = blocked_attention(query, key, value, scale=0.3)

    expected = torch.nn.functional.scaled_dot_product_attention(
        query.double(), key.double(), value.double(), is_causal=True, scale=0.3, enable_gqa=True
    )
    assert found.dtype == dtype
    torch.testing.assert_close(found.double(), expected.transpose(1, 2), rtol=0, atol=TOLERANCES[dtype])


def test_a_later_token_changes_nothing() -> None:
    """The outputs before a token keep every bit when it is replaced."""
    generator = torch.Generator().manual_seed(1)
    query, key, value = (heads(generator, 1, 2, 150, 8, dtype=torch.float32) for _ in range(3))
    before = blocked_attention(query, key, value, scale=1.0)

    for states in (query, key, value):
        states[:, :, 100:] = 7

    assert torch.equal(blocked_attention(query, key, value, scale=1.0)[:, :100], before[:, :100])


@pytest.mark.parametrize("kind", ["llama", "gpt2", "qwen3", "gpt_neox", "mistral"])
@pytest.mark.parametrize("length", [12, 200])
def test_a_model_computes_what_it_did(kind: str, length: int, model_of: ModelOf) -> None:
    """Logits stay within fp32's rounding, also where a window or a mask keeps torch's kernel in use."""
    tokens = torch.randint(0, 300, (2, length), generator=torch.Generator().manual_seed(3))
    model = AutoModelForCausalLM.from_pretrained(model_of(kind)).eval()
    with torch.no_grad():
        before = model(input_ids=tokens, use_cache=False).logits

        use_blocked_attention(model)

        after = model(input_ids=tokens, use_cache=False).logits
    assert model.config._attn_implementation == NAME
    torch.testing.assert_close(after, before, rtol=1e-4, atol=1e-3)
