"""What a run's numbers depend on, and the id that follows from it.

Two runs with one fingerprint have the same bits, however many ranks made them; a partial of another fingerprint is
never reused. World size, node names and paths are not in it.
"""

from __future__ import annotations

import hashlib
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from schemas.canonical import canonical_json
from schemas.folders import Build
from schemas.manifests import COMPOSITION_ANY, COMPOSITION_PER_BLOCK
from schemas.parts import FINGERPRINT_KEY
from schemas.precision import bands_text
from schemas.version import VERSION
from scoring.checkpoints import Checkpoint, locate
from scoring.config import ScoringSettings
from scoring.context import separator_ids
from scoring.losses import HEAD_CHUNK, HEAD_SLICE
from scoring.method import Windowing
from scoring.split import open_split, split_part
from scoring.tiles import TileMenu
from scoring.tokens import Encoder

if TYPE_CHECKING:
    from scoring.lanes import LaneTests
    from scoring.models import LoadedModel

# Raised with each change of this program by which some loss gets other bits: an old cache or a half-done run would mix.
NUMERICS = 2
LIBRARIES = ("numpy", "pyarrow", "safetensors", "tokenizers", "torch", "transformers")
GGUF_LIBRARIES = ("accelerate", "gguf")


def build_part(build: Build, limit_blocks: int | None) -> dict[str, Any]:
    """The build by id and digest, the policy under which it was made, and how much of it is scored."""
    return {
        "build_id": build.manifest.build_id,
        "limit_blocks": limit_blocks,
        "manifest_sha256": build.commit.manifest.sha256,
        "policy_digest": build.manifest.policy_digest,
    }


def library_versions(checkpoint: Checkpoint) -> dict[str, str]:
    """This program's version, and those of the libraries that load, compute and write."""
    names = (*LIBRARIES, *(GGUF_LIBRARIES if checkpoint.kind == "gguf" else ()))
    return {"exactppl": VERSION, **{name: version(name) for name in names}}


def model_part(checkpoint: Checkpoint, model: LoadedModel) -> dict[str, Any]:
    """Weights by digest, and how they are held."""
    return {
        "architecture": type(model.model).__name__,
        "attention": model.attention,
        "files_sha256": checkpoint.weight_digests(),
        "format": checkpoint.kind,
        "num_parameters": model.num_parameters,
        "quantization": _quantization(checkpoint, model),
    }


def _quantization(checkpoint: Checkpoint, model: LoadedModel) -> str:
    """How the stored weights are coded, in whatever precision they are computed then."""
    config = getattr(model.model.config, "quantization_config", None)
    if checkpoint.kind == "gguf":
        return "gguf, dequantised at load"
    if config is None:
        return "none"
    method = config.get("quant_method") if isinstance(config, dict) else getattr(config, "quant_method", None)
    return str(getattr(method, "value", method))


def tokenizer_part(checkpoint: Checkpoint, encoder: Encoder, settings: ScoringSettings) -> dict[str, Any]:
    """Tokenizer by digest, the prefix rule with the token that it chose, and the ids between notes of a context."""
    return {
        "files_sha256": checkpoint.tokenizer_digests(),
        "note_separator_ids": None if settings.context == "none" else separator_ids(encoder),
        "prefix_policy": settings.prefix,
        "prefix_token_id": encoder.prefix_id,
        "special_tokens_in_text": "read as text",
        "state_sha256": hashlib.sha256(encoder.tokenizer.to_str().encode()).hexdigest(),
    }


def compute_part(
    windowing: Windowing, menu: TileMenu, settings: ScoringSettings, selftest: LaneTests
) -> dict[str, Any]:
    """Shapes, company and precision of the forward passes."""
    return {
        "composition": COMPOSITION_ANY if selftest.is_batch_invariant else COMPOSITION_PER_BLOCK,
        "context": settings.context,
        "head_chunk": HEAD_CHUNK,
        "head_slice": HEAD_SLICE,
        "max_length": windowing.max_length,
        "numerics": NUMERICS,
        "precision": bands_text(settings.precision),
        **check_part(settings),
        "stride": windowing.stride,
        "tile_lengths": list(menu.lengths),
        "tile_rows": "1" if menu.one_row else "auto",
        "tile_tokens": menu.tokens,
    }


def check_part(settings: ScoringSettings) -> dict[str, float]:
    """The share that is computed in fp32 too, if there is anything to check."""
    return {"precision_check": settings.precision_check} if settings.policy.checked_bands else {}


def run_id_of(fingerprint: dict[str, Any]) -> str:
    """``r-`` and 16 hex digits of the SHA-256 of the canonical fingerprint."""
    return "r-" + hashlib.sha256(canonical_json(fingerprint)).hexdigest()[:16]


def differing_parts(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Dotted names of the entries, two levels deep, in which two fingerprints differ."""
    names: list[str] = []
    for part in sorted(one.keys() | other.keys()):
        left, right = one.get(part, {}), other.get(part, {})
        keys = sorted(left.keys() | right.keys())
        names.extend(f"{part}.{key}" for key in keys if left.get(key) != right.get(key))
    return names


def differing_requests(found: dict[str, Any], settings: ScoringSettings, build: Build) -> list[str]:
    """What these settings ask for otherwise than a finished run has it, told without loading the model."""
    checkpoint, split = locate(settings.model, settings.tokenizer), open_split(settings)
    compute, device, tokenizer = found["compute"], found["device"], found["tokenizer"]
    agrees = {
        "build": found["build"] == build_part(build, settings.limit_blocks),
        "context": settings.context == compute.get("context", "none"),
        "device": settings.device == "auto" or device["class"].startswith(settings.device),
        "libraries": found["libraries"] == library_versions(checkpoint),
        "max_length": settings.max_length in (None, compute["max_length"]),
        "model": found["model"]["files_sha256"] == checkpoint.weight_digests(),
        "numerics": compute.get("numerics") == NUMERICS,
        "precision": bands_text(settings.precision) == compute["precision"],
        "precision_check": check_part(settings).get("precision_check") == compute.get("precision_check"),
        "prefix": settings.prefix == tokenizer["prefix_policy"],
        "strict": not settings.strict or compute.get("composition") == COMPOSITION_ANY,
        "stride": settings.stride in (None, compute["stride"]),
        "threads_per_rank": device["threads_per_rank"]
        in (None, settings.threads_per_rank or device["threads_per_rank"]),
        "tile_rows": settings.tile_rows in ("auto", compute["tile_rows"]),
        "tile_tokens": settings.tile_tokens == compute["tile_tokens"],
        "token_classes": found.get(FINGERPRINT_KEY) == (None if split is None else split_part(split)),
        "tokenizer": tokenizer["files_sha256"] == checkpoint.tokenizer_digests(),
    }
    return [name for name, holds in agrees.items() if not holds]
