"""Tiny random-weight models of every shape we score, made on the spot as ordinary Hugging Face folders.

Weights are drawn wide (``INITIALIZER_RANGE``), so that a wrong mask, window, soft cap or neighbour moves the loss.
Each model also carries a trap that a careless reader falls into: GPT-2 has a generation default of 20 tokens and a
tokenizer limit of 20, Qwen pads its vocabulary beyond the tokenizer's, Gemma2 caps hard and looks back 16 tokens only.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

SEED = 20_260_101
VOCAB_SIZE = 384
MAX_POSITIONS = 256
INITIALIZER_RANGE = 0.2
GENERATION_LIMIT = 20

SENTENCES = (
    "Patient seen in clinic, no chest pain, blood pressure 120/80 mmHg.",
    "History of diabetes mellitus type 2; metformin 500 mg twice daily.",
    "Discharged in stable condition; follow up with cardiology in 2 weeks.",
    "The lungs are clear to auscultation bilaterally. Heart sounds normal.",
    "病人主诉咳嗽三天，无发热，建议复查胸片。",
    "Paciente con fiebre y tos; se indica paracetamol cada 8 horas.",
)


def make_model(kind: str, folder: Path) -> Path:
    """Write a seeded random model and its tokenizer.

    Args:
        kind: One of ``MODEL_KINDS``.
        folder: Made when absent.

    Returns:
        The folder: config, one safetensors file, a generation config, and the tokenizer that the kind usually has.
    """
    import torch
    from transformers import AutoModelForCausalLM

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        model = AutoModelForCausalLM.from_config(MODEL_KINDS[kind](), dtype=torch.float32)
        _widen_vectors(model)
    if kind == "gpt2":
        model.generation_config.max_length = GENERATION_LIMIT
    model.save_pretrained(folder)
    return make_tokenizer(folder, **TOKENIZERS[kind])


def make_tokenizer(
    folder: Path,
    *,
    bos: str | None = "<s>",
    eos: str | None = "</s>",
    adds_bos: bool = False,
    model_max_length: int | None = None,
) -> Path:
    """Train a byte-level BPE tokenizer on synthetic notes and write it, over an earlier one.

    Args:
        folder: Made when absent.
        bos: BOS token, or none.
        eos: EOS token, or none; may equal ``bos``, as in GPT-2.
        adds_bos: The post-processor puts BOS in front, as Llama 3's and Gemma's do.
        model_max_length: The tokenizer's own limit, which must not truncate anything.

    Returns:
        The folder. The vocabulary has at most ``VOCAB_SIZE`` entries; every byte string can be encoded.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    specials = list(dict.fromkeys(token for token in (bos, eos) if token))
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=specials,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(SENTENCES * 4, trainer)
    if adds_bos:
        template = processors.TemplateProcessing(
            single=f"{bos} $A", pair=f"{bos} $A {bos} $B", special_tokens=[(bos, backend.token_to_id(bos))]
        )
        backend.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template])
    else:
        backend.post_processor = processors.ByteLevel(trim_offsets=False)
    limit = {} if model_max_length is None else {"model_max_length": model_max_length}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, bos_token=bos, eos_token=eos, **limit)
    tokenizer.save_pretrained(folder)
    return folder


def _widen_vectors(model: Any) -> None:
    """Draw biases and norm weights too: at their defaults of 0 and 1 a reader that forgets one would go unnoticed."""
    import torch

    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * INITIALIZER_RANGE)


def _shape(**extra: Any) -> dict[str, Any]:
    shape = {
        "vocab_size": VOCAB_SIZE,
        "hidden_size": 48,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": MAX_POSITIONS,
        "initializer_range": INITIALIZER_RANGE,
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
    }
    return shape | extra


def _llama() -> PreTrainedConfig:
    from transformers import LlamaConfig

    return LlamaConfig(**_shape(num_key_value_heads=2))


def _mistral() -> PreTrainedConfig:
    """Looks back over 16 tokens only, by a mask that torch's kernel takes."""
    from transformers import MistralConfig

    return MistralConfig(**_shape(num_key_value_heads=2, sliding_window=16))


def _gpt2() -> PreTrainedConfig:
    from transformers import GPT2Config

    return GPT2Config(
        vocab_size=VOCAB_SIZE,
        n_embd=48,
        n_layer=2,
        n_head=4,
        n_positions=MAX_POSITIONS,
        initializer_range=INITIALIZER_RANGE,
        bos_token_id=None,
        eos_token_id=None,
    )


def _qwen2() -> PreTrainedConfig:
    from transformers import Qwen2Config

    return Qwen2Config(**_shape(vocab_size=VOCAB_SIZE + 16, num_key_value_heads=2, tie_word_embeddings=True))


def _qwen3() -> PreTrainedConfig:
    from transformers import Qwen3Config

    return Qwen3Config(**_shape(vocab_size=VOCAB_SIZE + 16, num_key_value_heads=2, head_dim=16))


def _gemma2() -> PreTrainedConfig:
    from transformers import Gemma2Config

    return Gemma2Config(
        **_shape(num_key_value_heads=2, head_dim=12),
        query_pre_attn_scalar=12,
        sliding_window=16,
        final_logit_softcapping=3.0,
        attn_logit_softcapping=2.0,
    )


def _gpt_neox() -> PreTrainedConfig:
    from transformers import GPTNeoXConfig

    return GPTNeoXConfig(**_shape())


def _mixtral() -> PreTrainedConfig:
    from transformers import MixtralConfig

    return MixtralConfig(**_shape(num_key_value_heads=2, num_local_experts=4, num_experts_per_tok=2))


def _granite() -> PreTrainedConfig:
    from transformers import GraniteConfig

    return GraniteConfig(
        **_shape(num_key_value_heads=2),
        logits_scaling=4.0,
        embedding_multiplier=2.0,
        residual_multiplier=0.5,
        attention_multiplier=0.3,
    )


MODEL_KINDS: dict[str, Callable[[], PreTrainedConfig]] = {
    "llama": _llama,
    "gpt2": _gpt2,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "gemma2": _gemma2,
    "gpt_neox": _gpt_neox,
    "mixtral": _mixtral,
    "granite": _granite,
    "mistral": _mistral,
}
_END_OF_TEXT = "<|endoftext|>"
TOKENIZERS: dict[str, dict[str, Any]] = {
    "llama": {"adds_bos": True},
    "gpt2": {"bos": _END_OF_TEXT, "eos": _END_OF_TEXT, "model_max_length": GENERATION_LIMIT},
    "qwen2": {"bos": None, "eos": _END_OF_TEXT},
    "qwen3": {"bos": None, "eos": _END_OF_TEXT},
    "gemma2": {"bos": "<bos>", "eos": "<eos>", "adds_bos": True},
    "gpt_neox": {"bos": _END_OF_TEXT, "eos": _END_OF_TEXT},
    "mixtral": {"adds_bos": True},
    "granite": {"bos": _END_OF_TEXT, "eos": _END_OF_TEXT},
    "mistral": {"adds_bos": True},
}
