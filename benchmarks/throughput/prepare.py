"""What all contenders share: the notes of the race, and a folder with the model that every peer can load.

The first distinct notes that fit one window are taken. transformers cannot save what it loaded from GGUF, so the
dequantised fp32 weights, the configuration without its quantisation, and our tokenizer are written one by one.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from schemas.errors import DataError, UsageError

MOST_POSITIONS = 2048
READ_ROWS = 256


def main() -> None:
    """Prepare what the JSON object on the command line asks for, and leave what was found in ``prepared.json``."""
    from schemas.errors import PipelineError

    wanted = json.loads(sys.argv[1])
    try:
        found = prepared(wanted, Path(wanted["work"]))
    except PipelineError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(error.exit_code)
    (Path(wanted["work"]) / "prepared.json").write_text(json.dumps(found), encoding="utf-8")


def prepared(wanted: dict[str, Any], work: Path) -> dict[str, Any]:
    """Write ``notes.parquet``, ``notes.json`` and, of a GGUF file, the folder ``model``.

    Raises:
        UsageError: a model or column is not there, or the tokenizer has no token to put before a note.
        DataError: no note fits.
    """
    from scoring.checkpoints import locate
    from scoring.models import load_encoder

    checkpoint = locate(Path(wanted["model"]), None)
    encoder = load_encoder(checkpoint, policy="auto")
    if encoder.prefix_id is None:
        raise UsageError("tokenizer: neither BOS nor EOS, and the harness needs a token before a note; use another")
    folder = export(checkpoint, encoder, work / "model") if checkpoint.kind == "gguf" else checkpoint.path
    max_length = wanted["max_length"] or _limit_of(folder)
    rows = chosen(_rows(wanted), encoder, max_length=max_length, num_records=wanted["records"])
    _write(rows, work)
    return {
        "folder": str(folder.resolve()),
        "max_length": max_length,
        "prefix_id": encoder.prefix_id,
        "num_notes": len(rows),
        "num_tokens": sum(num_tokens for _, _, num_tokens in rows),
    }


def chosen(
    rows: Iterator[tuple[str, str]], encoder: Any, *, max_length: int, num_records: int
) -> list[tuple[str, str, int]]:
    """(text, department, tokens) of the first distinct notes of one window, longest first.

    Raises:
        DataError: there is none.
    """
    found: dict[str, tuple[str, int]] = {}
    for text, department in rows:
        if text in found or not text.strip():
            continue
        num_tokens = encoder.encode([text])[0].num_tokens
        if 0 < num_tokens < max_length:
            found[text] = (department, num_tokens)
        if len(found) == num_records:
            break
    if not found:
        raise DataError(f"notes: none of 1 to {max_length - 1} tokens; name another column or raise --max-length")
    return sorted(((text, *rest) for text, rest in found.items()), key=lambda row: (-row[2], row[0]))


def export(checkpoint: Any, encoder: Any, folder: Path) -> Path:
    """Write a GGUF file's dequantised weights and its tokenizer as a Hugging Face folder."""
    import torch
    from safetensors.torch import save_file

    folder.mkdir(exist_ok=True)
    model = _loaded(checkpoint.path)
    config = {key: value for key, value in model.config.to_dict().items() if key != "quantization_config"}
    config |= {"architectures": [type(model).__name__], "dtype": "float32"}
    tied = bool(config.get("tie_word_embeddings"))
    weights = {
        name: tensor.to(torch.float32).contiguous()
        for name, tensor in model.state_dict().items()
        if not (tied and name == "lm_head.weight")
    }
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config, default=str), encoding="utf-8")
    encoder.tokenizer.save(str(folder / "tokenizer.json"))
    token = encoder.tokenizer.id_to_token(encoder.prefix_id)
    described = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": token, "eos_token": token}
    (folder / "tokenizer_config.json").write_text(json.dumps(described), encoding="utf-8")
    return folder


def _loaded(path: Path) -> Any:
    """The model as transformers reads it from GGUF, in fp32."""
    import torch
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32)


def _limit_of(folder: Path) -> int:
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(folder, local_files_only=True).get_text_config()
    return min(MOST_POSITIONS, getattr(config, "max_position_embeddings", None) or MOST_POSITIONS)


def _rows(wanted: dict[str, Any]) -> Iterator[tuple[str, str]]:
    import pyarrow.parquet as pq

    columns = [wanted["text"], wanted["department"]]
    with pq.ParquetFile(wanted["notes"]) as file:
        missing = [name for name in (wanted["id"], *columns) if name not in file.schema_arrow.names]
        if missing:
            raise UsageError(f"notes: no column {', '.join(missing)}; set --id, --text and --department")
        for batch in file.iter_batches(batch_size=READ_ROWS, columns=columns):
            for text, department in zip(*(batch.column(name).to_pylist() for name in columns), strict=True):
                if text is not None:
                    yield str(text), str(department or "unknown")


def _write(rows: list[tuple[str, str, int]], work: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    texts, departments = [row[0] for row in rows], [row[1] for row in rows]
    (work / "notes.json").write_text(json.dumps(texts), encoding="utf-8")
    numbers = [str(number) for number in range(len(rows))]
    pq.write_table(pa.table({"note_id": numbers, "text": texts, "department": departments}), work / "notes.parquet")


if __name__ == "__main__":
    main()
