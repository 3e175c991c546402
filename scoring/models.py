"""Loading a local causal language model as a backbone and a head."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator, Sequence
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
from scoring.kernels import fuse_gated_mlps, has_onednn, pack_projections
from scoring.losses import Head, make_head
from scoring.precision import DTYPES, copied, products_in, require_computable, require_precision
from scoring.tokens import Encoder, make_encoder

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

    from schemas.precision import Precision
    from scoring.config import PrefixPolicy

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
        with products_in(self.precision, self.head.weight_VD.device):
            return self.backbone(tokens_BT)

    def backbone(self, tokens_BT: Tensor) -> Tensor:
        """As ``hidden``, with the products of the surrounding context."""
        output = self.model.base_model(input_ids=tokens_BT, use_cache=False)
        return torch.as_tensor(output.last_hidden_state)

    @contextlib.contextmanager
    def computing(self) -> Iterator[None]:
        """The context of all forward passes of a run.

        Autocast keeps its bf16 weights as long as any autocast context is entered, so this one is entered once; those
        of ``hidden`` inside it, of whatever precision, lose nothing.
        """
        with torch.no_grad(), products_in(self.precision, self.head.weight_VD.device):
            yield


def load_model(checkpoint: Checkpoint, *, precision: Precision, device: torch.device) -> LoadedModel:
    """As ``load_models``, for one precision."""
    return load_models(checkpoint, [precision], device=device)[precision]


def load_models(
    checkpoint: Checkpoint, precisions: Sequence[Precision], *, device: torch.device
) -> dict[Precision, LoadedModel]:
    """Load weights once, from local files only, never running code from the checkpoint, and derive each precision.

    Precisions of one type share the weights; those of another have a copy, rounded from the widest.

    Raises:
        UsageError: transformers cannot load it, its weights do not fit its architecture, or this device lacks a
            precision.
        TemporaryError: out of memory.
    """
    for precision in precisions:
        require_precision(precision, device)
    dtypes = {DTYPES[precision] for precision in precisions}
    # Types are rounded from a wider one only: bf16 and fp16 hold none of each other's numbers.
    dtype = max(dtypes if len(dtypes) == 1 else {*dtypes, torch.float32}, key=lambda dtype: dtype.itemsize)
    model = _guarded(checkpoint, lambda: _from_pretrained(checkpoint, dtype).to(device).eval())
    if device.type == "cpu" and model.config._attn_implementation == "sdpa":
        use_blocked_attention(model)
    embeddings = model.get_output_embeddings()
    if embeddings is None:
        raise UsageError(f"model {label(checkpoint.path)}: has no output head; a causal language model is needed")
    if len(precisions) == 1:
        return {precisions[0]: _loaded(model, precisions[0])}
    models: dict[Precision, PreTrainedModel] = _guarded(checkpoint, lambda: _copies(model, precisions))
    heads = {DTYPES[precision]: _head(own) for precision, own in models.items()}
    return {precision: _loaded(own, precision, heads[DTYPES[precision]]) for precision, own in models.items()}


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


def _copies(model: PreTrainedModel, precisions: Sequence[Precision]) -> dict[Precision, PreTrainedModel]:
    """A model for each precision; those of one type have the same weights, and modules of their own."""
    shared = {dtype: copied(model, dtype) for dtype in {DTYPES[precision] for precision in precisions}}
    return {precision: copied(shared[DTYPES[precision]], DTYPES[precision]) for precision in precisions}


def _head(model: PreTrainedModel) -> Head:
    return make_head(model.get_output_embeddings(), model.config.get_text_config())


def _loaded(model: PreTrainedModel, precision: Precision, head: Head | None = None) -> LoadedModel:
    config = model.config.get_text_config()
    loaded = LoadedModel(
        model=model,
        head=head or _head(model),
        precision=precision,
        max_positions=getattr(config, "max_position_embeddings", None),
        attention=str(config._attn_implementation),
        has_experts=has_experts(config),
        num_parameters=sum(parameter.numel() for parameter in model.parameters()),
    )
    # In autocast torch casts a projection by itself; experts read their weights past the modules.
    on_cpu = loaded.head.weight_VD.device.type == "cpu"
    if precision != "mixed" and on_cpu and not loaded.has_experts and has_onednn():
        pack_projections(model.base_model)
        fuse_gated_mlps(model.base_model)
    require_computable(loaded.hidden, precision, loaded.head.weight_VD.device)
    return loaded


def has_experts(config: PreTrainedConfig) -> bool:
    """Whether a model is a mixture of experts; some families say so in a part of their configuration (DBRX)."""
    from transformers import PreTrainedConfig

    parts = [config, *(part for part in vars(config).values() if isinstance(part, PreTrainedConfig))]
    return any(getattr(part, name, None) for part in parts for name in EXPERT_COUNTS)


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
