"""The peer that people write first: right-padded batches sorted by length, full logits, ``cross_entropy``.

Legend: B notes of a batch, T positions, V vocabulary.
"""

from __future__ import annotations

import json
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.throughput.values import Outcome, Task, read_task, write_outcome


def main() -> None:
    """Measure the task that is named on the command line."""
    task = read_task(Path(sys.argv[1]))
    write_outcome(measured(task), Path(task.outcome))


def measured(task: Task) -> Outcome:
    """Load the model as transformers does, compute one batch, then all notes by the clock."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.set_num_threads(task.threads)
    texts: list[str] = json.loads(Path(task.notes).read_text(encoding="utf-8"))
    dtype = torch.bfloat16 if task.precision == "bf16" else torch.float32
    model = AutoModelForCausalLM.from_pretrained(task.model, dtype=dtype, local_files_only=True).eval()
    tokenizer = AutoTokenizer.from_pretrained(task.model, local_files_only=True)
    middle = len(texts) // 2
    with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16, enabled=task.precision == "mixed"):
        _losses(texts[middle : middle + task.batch_size], tokenizer, model, task)
        started = time.monotonic()
        found = _losses(texts, tokenizer, model, task)
        stopped = time.monotonic()
    return Outcome(
        seconds=stopped - started,
        num_tokens=sum(num_tokens for _, num_tokens in found),
        started=started,
        stopped=stopped,
        losses_nats=[loss for loss, _ in found],
        tokens=[num_tokens for _, num_tokens in found],
        versions={name: version(name) for name in ("torch", "transformers")},
    )


def _losses(texts: list[str], tokenizer: Any, model: Any, task: Task) -> list[tuple[float, int]]:
    """Loss in nats and number of tokens of each note, in the order of the notes."""
    import torch
    from torch.nn.functional import cross_entropy

    encoded = [[task.prefix_id, *ids] for ids in tokenizer(texts, add_special_tokens=False)["input_ids"]]
    order = sorted(range(len(encoded)), key=lambda index: len(encoded[index]))
    found = [(0.0, 0)] * len(encoded)
    for start in range(0, len(order), task.batch_size):
        batch = order[start : start + task.batch_size]
        width = max(len(encoded[index]) for index in batch)
        tokens_BT = torch.zeros((len(batch), width), dtype=torch.int64)
        mask_BT = torch.zeros((len(batch), width), dtype=torch.int64)
        for row, index in enumerate(batch):
            tokens_BT[row, : len(encoded[index])] = torch.tensor(encoded[index])
            mask_BT[row, : len(encoded[index])] = 1
        logits_BTV = model(input_ids=tokens_BT, attention_mask=mask_BT).logits
        labels_BT = tokens_BT.masked_fill(mask_BT == 0, -100)[:, 1:]
        flat = logits_BTV[:, :-1].flatten(0, 1)
        losses_BT = cross_entropy(flat, labels_BT.flatten(), ignore_index=-100, reduction="none").view(labels_BT.shape)
        sums = losses_BT.double().sum(dim=1).tolist()
        for row, index in enumerate(batch):
            found[index] = (sums[row], len(encoded[index]) - 1)
    return found


if __name__ == "__main__":
    main()
