"""The peer that people use: ``HFLM.loglikelihood_rolling`` of EleutherAI's lm-evaluation-harness 0.4.13.

Runs in the harness's own environment, so nothing of ours is imported; the task and the outcome are plain JSON.

What it does otherwise than we do, read in lm_eval/models/huggingface.py and lm_eval/utils.py of that release, and how
equal work was arranged:

- Prefix: the tokenizer's BOS, else EOS, and by default ``tok_encode`` adds special tokens too, so that a note may begin
  with two BOS of which one is scored. Here ``add_bos_token=False`` and ``prefix_token_id`` is that of our encoder.
- Special tokens: their names in a note are read as the tokens. Ours reads them as text; token counts are compared.
- Windows (``get_rolling_token_windows``, context of 1): they do not overlap, but for the last one, which is moved back
  to full length, so that its first targets get earlier context, and positions are computed twice. Only notes of one
  window are in the race: prefix and tokens are at most ``max_length``, and then both compute the same.
- Batches are cut from the windows in the order of the requests, and sorted only within a batch, so notes of any order
  pad much. Here the requests come longest first, which is the harness at its best.
- Losses: ``log_softmax`` and the sum over a note are in the dtype of the logits, bf16 in the reduced modes (three
  digits of a note's loss). ``softmax_dtype`` would mend the former at a price; it is left off, as by default.
- Mixed precision: autocast is entered for each batch, so weights are cast anew each time; that is its own way.
- Equal contexts in a batch would be computed once (``logits_cache``); the notes of the race are distinct.
"""

from __future__ import annotations

import json
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any


def main() -> None:
    """Measure the task that is named on the command line."""
    task = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    outcome = _measured(task, json.loads(Path(task["notes"]).read_text(encoding="utf-8")))
    outcome["versions"] = {name: version(name) for name in ("torch", "transformers", "lm_eval")}
    Path(task["outcome"]).write_text(json.dumps(outcome), encoding="utf-8")


def _measured(task: dict[str, Any], texts: list[str]) -> dict[str, Any]:
    import torch
    from lm_eval.models.huggingface import HFLM

    torch.set_num_threads(task["threads"])
    model = HFLM(
        pretrained=task["model"],
        device="cpu",
        dtype="bfloat16" if task["precision"] == "bf16" else "float32",
        mixed_precision_dtype="bfloat16" if task["precision"] == "mixed" else None,
        batch_size=task["batch_size"],
        max_length=task["max_length"],
        add_bos_token=False,
        prefix_token_id=task["prefix_id"],
    )
    middle = len(texts) // 2
    try:
        model.loglikelihood_rolling(_requests(texts[middle : middle + task["batch_size"]]), disable_tqdm=True)
        started = time.monotonic()
        found = model.loglikelihood_rolling(_requests(texts), disable_tqdm=True)
        stopped = time.monotonic()
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "DefaultCPUAllocator" not in str(error):
            raise
        return {"is_out_of_memory": True}
    tokens = [len(model.tok_encode(text)) for text in texts]
    return {
        "seconds": stopped - started,
        "num_tokens": sum(tokens),
        "started": started,
        "stopped": stopped,
        "losses_nats": [-loss for loss in found],
        "tokens": tokens,
    }


def _requests(texts: list[str]) -> list[Any]:
    from lm_eval.api.instance import Instance

    return [Instance("loglikelihood_rolling", {}, (text,), index) for index, text in enumerate(texts)]


if __name__ == "__main__":
    main()
