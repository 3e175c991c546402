"""Tiny GGUF files with the same weights as a Hugging Face folder, as the format asks.

Names and the order of rotary rows: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md; llama's query and key
rows are interleaved there, where transformers holds the two halves of a head one after the other.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.models import MAX_POSITIONS, SEED, VOCAB_SIZE, make_tokenizer

NUM_LAYERS, HIDDEN_SIZE, INNER_SIZE, NUM_HEADS, NUM_KEY_HEADS = 2, 64, 96, 4, 2
ROTARY_BASE, NORM_EPSILON = 10_000.0, 1e-5
NORMAL_TOKEN, CONTROL_TOKEN = 1, 3
LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def tensor_names() -> dict[str, str]:
    """GGUF tensor names, and what transformers calls the same weights."""
    names = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
    for layer in range(NUM_LAYERS):
        names |= {f"blk.{layer}.{ours}": f"model.layers.{layer}.{theirs}" for ours, theirs in LAYER_NAMES.items()}
    return {f"{ours}.weight": f"{theirs}.weight" for ours, theirs in names.items()}


def write_pair(gguf_path: Path, folder: Path, *, quantization: str = "F32", rule: str = "smollm") -> None:
    """Write a random Llama as a GGUF file and, with exactly the numbers that it holds, as a folder with tokenizer."""
    import torch
    from gguf import GGMLQuantizationType
    from gguf.quants import dequantize, quantize
    from transformers import LlamaForCausalLM

    kind = GGMLQuantizationType[quantization]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        model = LlamaForCausalLM(_config())
    weights = {name: weight.float().numpy() for name, weight in model.state_dict().items()}
    stored: dict[str, tuple[NDArray[Any], Any]] = {}
    for name, theirs in tensor_names().items():
        weight = _interleaved(name, weights[theirs])
        is_matrix = weight.ndim == 2
        data = quantize(weight, kind) if is_matrix else weight
        stored[name] = (data, kind if is_matrix else GGMLQuantizationType.F32)
        held = dequantize(data, kind) if is_matrix else weight
        weights[theirs] = _halved(name, held.reshape(weight.shape))
    model.load_state_dict({name: torch.from_numpy(np.ascontiguousarray(weight)) for name, weight in weights.items()})
    model.save_pretrained(folder)
    make_tokenizer(folder)
    write_gguf(gguf_path, tokenizer_fields(folder, rule=rule), stored)


def tokenizer_fields(folder: Path, *, rule: str) -> dict[str, Any]:
    """The tokenizer section for the byte-pair tokenizer of a folder."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    tokens = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().get)
    merges = json_of(tokenizer)["model"]["merges"]
    return {
        "model": "gpt2",
        "pre": rule,
        "token_list": tokens,
        "token_types": [CONTROL_TOKEN if token in ("<s>", "</s>") else NORMAL_TOKEN for token in tokens],
        "token_merges": [" ".join(merge) for merge in merges],
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
    }


def json_of(tokenizer: Any) -> dict[str, Any]:
    """What the fast tokenizer would write to tokenizer.json."""
    import json

    content: dict[str, Any] = json.loads(tokenizer.backend_tokenizer.to_str())
    return content


def write_gguf(path: Path, fields: dict[str, Any], tensors: dict[str, tuple[NDArray[Any], Any]] | None = None) -> Path:
    """Write a GGUF file of a llama; ``fields`` is the tokenizer section by the names of the writer's methods."""
    from gguf import GGUFWriter

    writer = GGUFWriter(path, "llama")
    writer.add_block_count(NUM_LAYERS)
    writer.add_context_length(MAX_POSITIONS)
    writer.add_embedding_length(HIDDEN_SIZE)
    writer.add_feed_forward_length(INNER_SIZE)
    writer.add_head_count(NUM_HEADS)
    writer.add_head_count_kv(NUM_KEY_HEADS)
    writer.add_layer_norm_rms_eps(NORM_EPSILON)
    writer.add_rope_freq_base(ROTARY_BASE)
    writer.add_rope_dimension_count(HIDDEN_SIZE // NUM_HEADS)
    writer.add_vocab_size(VOCAB_SIZE)
    for name, value in fields.items():
        method = name if name.startswith("token_") or name.endswith("_id") else f"tokenizer_{name}"
        getattr(writer, f"add_{method}")(value)
    for name, (data, kind) in (tensors or {}).items():
        writer.add_tensor(name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _config() -> Any:
    from transformers import LlamaConfig

    return LlamaConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=HIDDEN_SIZE,
        intermediate_size=INNER_SIZE,
        num_hidden_layers=NUM_LAYERS,
        num_attention_heads=NUM_HEADS,
        num_key_value_heads=NUM_KEY_HEADS,
        max_position_embeddings=MAX_POSITIONS,
        rms_norm_eps=NORM_EPSILON,
        initializer_range=0.2,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )


def _interleaved(name: str, weight: NDArray[Any]) -> NDArray[Any]:
    """Rotary rows as GGUF wants them: the two halves of each head become pairs of one row from either."""
    heads = _rotary_heads(name)
    if not heads:
        return weight
    return weight.reshape(heads, 2, -1, weight.shape[1]).swapaxes(1, 2).reshape(weight.shape)


def _halved(name: str, weight: NDArray[Any]) -> NDArray[Any]:
    """The inverse of ``_interleaved``."""
    heads = _rotary_heads(name)
    if not heads:
        return weight
    return weight.reshape(heads, -1, 2, weight.shape[1]).swapaxes(1, 2).reshape(weight.shape)


def _rotary_heads(name: str) -> int:
    part = name.split(".")[-2]
    return {"attn_q": NUM_HEADS, "attn_k": NUM_KEY_HEADS}.get(part, 0)
