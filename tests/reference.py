"""An independent reference scorer, slow and plain: what every fast path must agree with.

One row, no padding, fp32, full logits from ``model(...).logits``, log-softmax in fp64, ``math.fsum`` over tokens. It
imports none of the four packages.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any


def reference_nll(
    model_folder: Path, text: str, *, prefix: bool = True, max_length: int, stride: int
) -> tuple[float, int]:
    """Loss of a text under a model.

    Args:
        model_folder: A Hugging Face folder.
        text: Special-token strings in it are ordinary text; nothing is truncated.
        prefix: Put the tokenizer's BOS in front, else its EOS, else nothing; or never anything when false.
        max_length: Input positions of a window.
        stride: Step from one window to the next, 1 to ``max_length``.

    Returns:
        The loss in nats and the number of scored tokens.
    """
    losses = reference_losses(model_folder, text, prefix=prefix, max_length=max_length, stride=stride)
    return math.fsum(losses), len(losses)


def reference_losses(
    model_folder: Path, text: str, *, prefix: bool = True, max_length: int, stride: int
) -> list[float]:
    """As ``reference_nll``, one loss in nats per scored token, in order."""
    sequence = sequence_of(model_folder, text, prefix=prefix)
    return _windowed(model_folder, sequence, max_length=max_length, stride=stride)


def encounter_losses(
    model_folder: Path, notes: Sequence[str], *, prefix: bool = True, max_length: int, stride: int
) -> list[float]:
    """As ``reference_losses``, of the last note of an encounter: the others stand before it as far as there is room."""
    own = sequence_of(model_folder, notes[-1], prefix=prefix)
    tokens = sequence_of(model_folder, notes[-1], prefix=False)
    told: list[int] = []
    for note in notes[:-1]:
        earlier = sequence_of(model_folder, note, prefix=False)
        told += [*earlier, *sequence_of(model_folder, "\n", prefix=False)] if earlier else []
    room = max(0, max_length - (len(own) - 1))
    told = told[max(0, len(told) - room) :]
    sequence = [*own[: len(own) - len(tokens)], *told, *tokens]
    return _windowed(model_folder, sequence, max_length=max_length, stride=stride)[len(told) :]


def _windowed(model_folder: Path, sequence: list[int], *, max_length: int, stride: int) -> list[float]:
    if not 1 <= stride <= max_length:
        raise ValueError("the stride must be 1 to max_length")
    losses: list[float] = []
    start = 0
    while len(losses) < len(sequence) - 1:
        # Input positions start … end-1 predict start+1 … end; those up to len(losses) were counted before.
        end = min(start + max_length, len(sequence) - 1)
        window = window_losses(model_folder, sequence[start : end + 1])
        losses.extend(window[len(losses) - start :])
        start += stride
    return losses


def sequence_of(model_folder: Path, text: str, *, prefix: bool) -> list[int]:
    """Token ids of prefix and text."""
    tokenizer = _tokenizer(model_folder)
    # transformers' own call resets this flag from ``split_special_tokens``, so the backend is asked directly.
    backend = tokenizer.backend_tokenizer
    backend.encode_special_tokens = True
    backend.no_truncation()
    backend.no_padding()
    tokens = list(backend.encode(text, add_special_tokens=False).ids)
    ids = (tokenizer.bos_token_id, tokenizer.eos_token_id)
    chosen = next((token for token in ids if token is not None), None)
    return [chosen, *tokens] if prefix and chosen is not None else tokens


def window_losses(model_folder: Path, sequence: list[int]) -> list[float]:
    """Loss in nats of each token but the first, by one forward pass."""
    import torch

    with torch.inference_mode():
        logits_1TV = _model(model_folder)(torch.tensor([sequence[:-1]]), use_cache=False).logits
    log_probabilities_TV = torch.log_softmax(logits_1TV[0].double(), dim=-1)
    targets_T1 = torch.tensor(sequence[1:])[:, None]
    return [-value for value in log_probabilities_TV.gather(1, targets_T1)[:, 0].tolist()]


@lru_cache(maxsize=16)
def _model(model_folder: Path) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(
        model_folder, dtype=torch.float32, attn_implementation="eager", local_files_only=True
    )
    return model.eval()


def _tokenizer(model_folder: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(model_folder, local_files_only=True)
