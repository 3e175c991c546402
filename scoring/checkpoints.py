"""Finding a local checkpoint and its digests, and refusing what could run foreign code or is not all there."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from schemas.errors import UsageError
from schemas.seals import label, opened, seal_file

CONFIG_FILE = "config.json"
INDEX_FILE = "model.safetensors.index.json"
GGUF_SUFFIX = ".gguf"
PICKLES = {".bin", ".pt", ".pth", ".ckpt", ".pkl"}
SINGLE_FILE = "model.safetensors"
TOKENIZER_FILES = (
    "added_tokens.json",
    "merges.txt",
    "sentencepiece.bpe.model",
    "special_tokens_map.json",
    "spiece.model",
    "spm.model",
    "tekken.json",
    "tiktoken.model",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "vocab.json",
    "vocab.txt",
)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A local model.

    Attributes:
        kind: ``hf`` is a folder with config.json and safetensors; ``gguf`` a single file.
        path: The folder, or the file.
        weight_files: All files that the weights and the architecture depend on.
        tokenizer: Folder of the tokenizer; for GGUF without ``--tokenizer`` the GGUF file.
    """

    kind: Literal["hf", "gguf"]
    path: Path
    weight_files: tuple[Path, ...]
    tokenizer: Path

    @property
    def name(self) -> str:
        """What people call the model: the last part of its path."""
        return self.path.resolve().name.encode("utf-8", "backslashreplace").decode()

    def weight_digests(self) -> dict[str, str]:
        """SHA-256 of every file that the weights depend on, by name."""
        return _digests(self.weight_files)

    def tokenizer_digests(self) -> dict[str, str]:
        """SHA-256 of every file that the tokenizer depends on, by name."""
        if self.tokenizer.is_file():
            return _digests((self.tokenizer,))
        return _digests(tuple(path for name in TOKENIZER_FILES if (path := self.tokenizer / name).is_file()))


def locate(model: Path, tokenizer: Path | None) -> Checkpoint:
    """Look at a checkpoint without loading it.

    Raises:
        UsageError: it is remote, absent, incomplete, pickled, an adapter, or needs code of its own; with the cure.
    """
    if tokenizer is not None and not tokenizer.is_dir():
        raise UsageError(f"tokenizer {label(tokenizer)}: no such folder; name one with tokenizer.json")
    if not model.exists():
        raise UsageError(f"model {label(model)}: no such folder or file; download it first, nothing is fetched by name")
    if model.is_dir():
        return _hf_folder(model, tokenizer or model)
    if model.suffix == GGUF_SUFFIX:
        return Checkpoint(kind="gguf", path=model, weight_files=(model,), tokenizer=tokenizer or model)
    if model.suffix in PICKLES:
        raise UsageError(f"model {label(model)}: pickled weights can run code; convert them to safetensors")
    raise UsageError(f"model {label(model)}: neither a Hugging Face folder nor a {GGUF_SUFFIX} file")


def _hf_folder(folder: Path, tokenizer: Path) -> Checkpoint:
    config_path = folder / CONFIG_FILE
    if not config_path.is_file():
        adapter = (folder / "adapter_config.json").is_file()
        cure = "merge the adapter into its base model" if adapter else "name the folder that has it"
        raise UsageError(f"model {label(folder)}: no {CONFIG_FILE}; {cure}")
    config = _json(config_path)
    if "auto_map" in config:
        raise UsageError(f"model {label(folder)}: needs Python code of its own (auto_map), which is never run")
    if (folder / "adapter_config.json").is_file():
        raise UsageError(f"model {label(folder)}: holds an adapter beside the model; merge it, or remove the adapter")
    # In the order in which transformers looks, so that the files that are digested are those that are loaded.
    if (folder / SINGLE_FILE).is_file():
        weights: tuple[Path, ...] = (folder / SINGLE_FILE,)
    else:
        weights = _indexed(folder) if (folder / INDEX_FILE).is_file() else ()
    if not weights:
        pickled = any(path.suffix in PICKLES for path in folder.iterdir())
        found = "only pickled weights, which can run code" if pickled else "no weights"
        raise UsageError(f"model {label(folder)}: {found}; {SINGLE_FILE} or an index with its shards is needed")
    return Checkpoint(kind="hf", path=folder, weight_files=(config_path, *weights), tokenizer=tokenizer)


def _indexed(folder: Path) -> tuple[Path, ...]:
    weight_map = _json(folder / INDEX_FILE).get("weight_map")
    names = list(weight_map.values()) if isinstance(weight_map, dict) else []
    if not names or not all(isinstance(name, str) for name in names):
        raise UsageError(f"{label(folder / INDEX_FILE)}: no weight_map of file names; copy the checkpoint again")
    paths = [folder / name for name in sorted(set(names))]
    missing = [path.name for path in paths if path.parent != folder or not path.is_file()]
    if missing:
        raise UsageError(f"model {label(folder)}: {len(missing)} weight files are missing: {', '.join(missing[:4])}")
    return (folder / INDEX_FILE, *paths)


def _json(path: Path) -> dict[str, Any]:
    """A foreign JSON file, read as its own program reads it: Infinity is allowed."""
    with opened(path) as file:
        content = file.read()
    try:
        parsed = json.loads(content)
    except (ValueError, RecursionError):
        raise UsageError(f"{label(path)}: not valid JSON; copy the checkpoint again") from None
    return parsed if isinstance(parsed, dict) else {}


def _digests(paths: tuple[Path, ...]) -> dict[str, str]:
    return {path.name: seal_file(path).sha256 for path in paths}
