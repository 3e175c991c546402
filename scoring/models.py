"""Loading a local causal language model as a backbone and a head."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from schemas.errors import PipelineError, TemporaryError, UsageError
from schemas.seals import label
from scoring.attention import use_blocked_attention
from scoring.checkpoints import Checkpoint
from scoring.devices import is_out_of_memory
from scoring.gguf import build_tokenizer, read_vocabulary
from scoring.kernels import has_onednn, pack_projections
from scoring.losses import Head, make_head
from scoring.tokens import Encoder, make_encoder

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from scoring.config import Precision, PrefixPolicy

EXPERT_COUNTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
FALLBACK_MAX_LENGTH = 2048


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model ready to score.

    Attributes:
        model: The whole model, in evaluation mode, for the self-test's ``.logits``.
        head: fp32 output projection.
        precision: How the backbone computes.
        max_positions: Longest input the model knows, or none if it has no limit.
        attention: Name of the attention implementation.
        has_experts: Mixture of experts: a tile holds one row, since expert GEMMs take the neighbours' routing as shape.
        num_parameters: Distinct parameters.
    """

    model: PreTrainedModel
    head: Head
    precision: Precision
    max_positions: int | None
    attention: str
    has_experts: bool
    num_parameters: int

    def hidden(self, tokens_BT: Tensor) -> Tensor:
        """Backbone output ``[B, T, D]`` after the final norm, for int64 ids; causal, no padding mask, no cache."""
        output = self.model.base_model(input_ids=tokens_BT, use_cache=False)
        return torch.as_tensor(output.last_hidden_state)

    @contextlib.contextmanager
    def computing(self) -> Iterator[None]:
        """The context of all forward passes of a run; entering it once lets autocast keep its bf16 weights."""
        autocast = self.precision == "mixed"
        with torch.no_grad(), torch.autocast(self.head.weight_VD.device.type, dtype=torch.bfloat16, enabled=autocast):
            yield


def load_model(checkpoint: Checkpoint, *, precision: Precision, device: torch.device) -> LoadedModel:
    """Load weights from local files only, never running code from the checkpoint.

    Raises:
        UsageError: transformers cannot load it, or its weights do not fit its architecture.
        TemporaryError: out of memory.
    """
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    model = _guarded(checkpoint, lambda: _from_pretrained(checkpoint, dtype).to(device).eval())
    if device.type == "cpu" and model.config._attn_implementation == "sdpa":
        use_blocked_attention(model)
    config = model.config.get_text_config()
    embeddings = model.get_output_embeddings()
    if embeddings is None:
        raise UsageError(f"model {label(checkpoint.path)}: has no output head; a causal language model is needed")
    loaded = LoadedModel(
        model=model,
        head=make_head(embeddings, config),
        precision=precision,
        max_positions=getattr(config, "max_position_embeddings", None),
        attention=str(config._attn_implementation),
        has_experts=any(getattr(config, name, None) for name in EXPERT_COUNTS),
        num_parameters=sum(parameter.numel() for parameter in model.parameters()),
    )
    # In autocast torch casts a projection by itself; experts read their weights past the modules.
    if precision != "mixed" and device.type == "cpu" and not loaded.has_experts and has_onednn():
        pack_projections(model.base_model)
    return loaded


def load_encoder(checkpoint: Checkpoint, *, policy: PrefixPolicy) -> Encoder:
    """Load the tokenizer of a checkpoint.

    Raises:
        UsageError: there is none, it has no fast form, or its rule is unknown (GGUF); with the cure.
    """
    if checkpoint.tokenizer.is_file():
        vocabulary = read_vocabulary(checkpoint.tokenizer)
        tokenizer = build_tokenizer(vocabulary)
        return make_encoder(tokenizer, policy=policy, bos_id=vocabulary.bos_id, eos_id=vocabulary.eos_id)
    loaded = _guarded(checkpoint, lambda: _auto_tokenizer(checkpoint))
    backend = getattr(loaded, "backend_tokenizer", None)
    if backend is None:
        raise UsageError(f"tokenizer {label(checkpoint.tokenizer)}: has no fast form; add its tokenizer.json")
    return make_encoder(backend, policy=policy, bos_id=loaded.bos_token_id, eos_id=loaded.eos_token_id)


def check_vocabulary(encoder: Encoder, model: LoadedModel) -> None:
    """Every token id has an embedding.

    Raises:
        UsageError: the tokenizer belongs to another model.
    """
    num_embeddings = model.model.get_input_embeddings().weight.shape[0]
    num_tokens = encoder.tokenizer.get_vocab_size(with_added_tokens=True)
    if num_tokens > num_embeddings:
        raise UsageError(
            f"tokenizer: {num_tokens} tokens but the model embeds {num_embeddings}; name the model's own --tokenizer"
        )


def _from_pretrained(checkpoint: Checkpoint, dtype: torch.dtype) -> PreTrainedModel:
    from transformers import AutoModelForCausalLM

    options: dict[str, Any] = {"dtype": dtype, "local_files_only": True, "trust_remote_code": False}
    if checkpoint.kind == "gguf":
        folder, options["gguf_file"] = checkpoint.path.parent, checkpoint.path.name
    else:
        folder, options["use_safetensors"] = checkpoint.path, True
    model, info = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True, **options)
    wrong = {kind: len(info.get(kind) or ()) for kind in ("missing_keys", "mismatched_keys", "error_msgs")}
    if any(wrong.values()):
        raise UsageError(
            f"model {label(checkpoint.path)}: {wrong['missing_keys']} weights missing, "
            f"{wrong['mismatched_keys']} of another shape; copy the checkpoint again"
        )
    return model


def _auto_tokenizer(checkpoint: Checkpoint) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(checkpoint.tokenizer, local_files_only=True, trust_remote_code=False)


def _guarded(checkpoint: Checkpoint, load: Callable[[], Any]) -> Any:
    """Run a loader of transformers: no chatter on stderr, and its many exceptions become one line."""
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            return load()
    except PipelineError:
        raise
    except Exception as error:  # noqa: BLE001 - transformers and safetensors have dozens of kinds
        if is_out_of_memory(error):
            where = label(checkpoint.path)
            raise TemporaryError(f"model {where}: out of memory; run on a larger device") from None
        raise UsageError(
            f"model {label(checkpoint.path)}: transformers could not load it ({type(error).__name__}); "
            "check that the folder is complete and its architecture is known to the installed release"
        ) from None
