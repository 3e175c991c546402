"""The machine's limit: the model's own matrix products alone, at the engine's tile size, by the fastest kernel here.

A token takes ``F = 2 Σ inputs × outputs`` FLOP over all projections of the backbone and the head. That is the forward
part of the model FLOPs of PaLM (Chowdhery et al. 2022, https://arxiv.org/abs/2204.02311, appendix B) without its
attention term, which only grows with the length; lookups count nothing. The peak is ``P = F / seconds`` of these
products in the mode's dtype: fp32, bf16, or in ``mixed`` bf16 with the head in fp32. Model-FLOPs utilisation is
``tokens/s × F / P``, with the tokens that are scored: padding, attention and norms all count against it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.throughput.values import Outcome, Precision, Task, read_task, write_outcome
from schemas.errors import UsageError

PRODUCTS = 20
Shape = tuple[int, int]


def main() -> None:
    """Measure the task that is named on the command line."""
    task = read_task(Path(sys.argv[1]))
    write_outcome(measured(task), Path(task.outcome))


def measured(task: Task) -> Outcome:
    """Seconds of all products for one tile; ``num_tokens`` are the tile's, and ``figures`` hold F and P."""
    import torch

    from scoring.config import TILE_TOKENS
    from scoring.devices import set_up

    set_up(torch.device("cpu"), task.threads)
    shapes, head = projections(Path(task.model))
    wanted = [(shape, _dtype(task.precision, is_head=False)) for shape in shapes]
    wanted.append((head, _dtype(task.precision, is_head=True)))
    best = {each: _seconds_of_product(*each, rows=TILE_TOKENS) for each in set(wanted)}
    seconds = sum(best[each] for each in wanted)
    flops = flops_per_token([*shapes, head])
    return Outcome(
        seconds=seconds,
        num_tokens=TILE_TOKENS,
        versions={name: version(name) for name in ("torch", "transformers")},
        figures={"flops_per_token": flops, "peak_flops": flops * TILE_TOKENS / seconds},
    )


def projections(folder: Path) -> tuple[list[Shape], Shape]:
    """(inputs, outputs) of every projection of the backbone, and of the head; no weight is loaded.

    Raises:
        UsageError: the model is a mixture of experts, whose tokens do not take all products.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.pytorch_utils import Conv1D

    from scoring.models import EXPERT_COUNTS

    config = AutoConfig.from_pretrained(folder, local_files_only=True)
    if any(getattr(config.get_text_config(), name, None) for name in EXPERT_COUNTS):
        raise UsageError("limit: products of a mixture of experts are not known beforehand; leave the limit out")
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    head = model.get_output_embeddings()
    shapes: list[Shape] = []
    for module in model.modules():
        if isinstance(module, torch.nn.Linear) and module is not head:
            shapes.append((module.in_features, module.out_features))
        elif isinstance(module, Conv1D):
            shapes.append((module.weight.shape[0], module.weight.shape[1]))
    return shapes, (head.in_features, head.out_features)


def flops_per_token(shapes: list[Shape]) -> float:
    """F: two FLOP for each entry of each projection."""
    return 2.0 * sum(num_inputs * num_outputs for num_inputs, num_outputs in shapes)


def _dtype(precision: Precision, *, is_head: bool) -> Any:
    import torch

    return torch.float32 if precision == "fp32" or (precision == "mixed" and is_head) else torch.bfloat16


def _seconds_of_product(shape: Shape, dtype: Any, *, rows: int) -> float:
    """The best time of either kernel: torch's own, and that on weights laid out beforehand."""
    import torch

    from scoring.kernels import linear, packed

    num_inputs, num_outputs = shape
    inputs_ND, weight_MD = torch.randn(rows, num_inputs).to(dtype), torch.randn(num_outputs, num_inputs).to(dtype)
    laid_out = packed(weight_MD)
    plain = _best(lambda: torch.nn.functional.linear(inputs_ND, weight_MD))
    return min(plain, _best(lambda: linear(inputs_ND, laid_out)))


def _best(product: Callable[[], Any]) -> float:
    import torch

    times = []
    with torch.no_grad():
        for _ in range(PRODUCTS):
            started = time.perf_counter()
            product()
            times.append(time.perf_counter() - started)
    return min(times)


if __name__ == "__main__":
    main()
