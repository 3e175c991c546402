"""A model whose rows feel their neighbours, as on a device whose kernels are not invariant to the batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, LlamaModel

from tests.models import SEED, make_tokenizer


class MixingConfig(LlamaConfig):
    """Llama's, under a name of its own."""

    model_type = "mixing_llama"


class MixingModel(LlamaModel):
    """A Llama that adds to each position a little of the same position of all rows of the batch."""

    config_class = MixingConfig

    def forward(self, input_ids: torch.Tensor, **options: Any) -> Any:
        """Hidden states of a batch; causal, and the same each time."""
        embeddings_BTD = self.embed_tokens(input_ids)
        mixed_BTD = embeddings_BTD + 1e-3 * embeddings_BTD.mean(dim=0, keepdim=True)
        return super().forward(**(options | {"inputs_embeds": mixed_BTD}))


class MixingForCausalLM(LlamaForCausalLM):
    """The same with a head."""

    config_class = MixingConfig

    def __init__(self, config: MixingConfig) -> None:
        super().__init__(config)
        self.model = MixingModel(config)
        self.post_init()


AutoConfig.register("mixing_llama", MixingConfig, exist_ok=True)
AutoModelForCausalLM.register(MixingConfig, MixingForCausalLM, exist_ok=True)


def make_mixing_model(folder: Path) -> Path:
    """Write such a model with random weights, and a tokenizer; it loads in processes that import this module."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        config = MixingConfig(
            vocab_size=384,
            hidden_size=48,
            intermediate_size=96,
            num_hidden_layers=2,
            num_attention_heads=4,
            max_position_embeddings=256,
            initializer_range=0.2,
            bos_token_id=None,
            eos_token_id=None,
            pad_token_id=None,
        )
        MixingForCausalLM(config).save_pretrained(folder)
    return make_tokenizer(folder, adds_bos=True)
