"""Scoring speed against a plain transformers loop and against this machine's matmul limit, side by side in one run.

The peer is what people write first: right-padded batches of 8 sorted by length, full logits, ``cross_entropy``. Both
score the same notes with the same weights, dtype, threads and window; each runs in a process of its own, in turns, and
is timed from the first forward pass to the last loss, tokenisation included and loading left out. The limit is the time
of the model's matrix products alone, at 1,024 rows in the backbone's dtype and with an fp32 head.

    python benchmarks/scoring_throughput.py --model DIR_OR_GGUF --notes NOTES.parquet --text transcription
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

MAX_LENGTH = 2048
PEER_BATCH = 8
ROWS = 1024
PRODUCTS = 20
GOALS = {"fp32": 1.5, "mixed": 2.5, "bf16": 2.5}


def main() -> None:
    """Measure and print; one line a contender, then the ratios."""
    options = _options()
    if options.worker:
        print(json.dumps(_worker(options)))
        return
    for precision in options.precision:
        seconds: dict[str, list[float]] = {"ours": [], "peer": []}
        for _ in range(options.repeats):
            for contender, times in seconds.items():
                outcome = _in_a_process(options, precision, contender)
                times.append(outcome["seconds"])
                rate = outcome["num_tokens"] / outcome["seconds"]
                perplexity = math.exp(outcome["loss_nats"] / outcome["num_tokens"])
                print(
                    f"{precision:5s} {contender}: {outcome['num_tokens']:,} tokens in {outcome['seconds']:.1f} s, "
                    f"{rate:,.0f} tokens/s, perplexity {perplexity:.4f}{outcome['detail']}",
                    flush=True,
                )
        ours, peer = (statistics.median(seconds[contender]) for contender in ("ours", "peer"))
        floor = _in_a_process(options, precision, "limit")["seconds"] * outcome["num_tokens"]
        print(
            f"{precision:5s} ratio to the plain loop: {peer / ours:.2f}x (goal {GOALS[precision]}x); matrix products "
            f"alone would take {floor:.1f} s: {100 * floor / ours:.0f} % of ours, {peer / floor:.2f}x the plain loop",
            flush=True,
        )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--notes", type=Path, required=True, help="Parquet file with one note a row")
    parser.add_argument("--text", default="text", help="column of the notes")
    parser.add_argument("--records", type=int, default=200)
    parser.add_argument("--precision", nargs="+", default=["fp32", "mixed", "bf16"], choices=list(GOALS))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--worker", choices=["ours", "peer", "limit"], help=argparse.SUPPRESS)
    return parser.parse_args()


def _in_a_process(options: argparse.Namespace, precision: str, contender: str) -> dict[str, Any]:
    command = [sys.executable, __file__, "--worker", contender, "--precision", precision]
    for name in ("model", "notes", "text", "records", "threads"):
        command += [f"--{name}", str(getattr(options, name))]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    outcome: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return outcome


def _worker(options: argparse.Namespace) -> dict[str, Any]:
    import torch

    from scoring.checkpoints import locate
    from scoring.models import load_encoder, load_model

    torch.set_num_threads(options.threads)
    checkpoint, device, precision = locate(options.model, None), torch.device("cpu"), options.precision[0]
    encoder = load_encoder(checkpoint, policy="auto")
    texts = _notes(options, encoder)
    if options.worker == "peer":
        return _peer(texts, encoder, _plain_model(checkpoint, precision), precision)
    model = load_model(checkpoint, precision=precision, device=device)
    contenders: dict[str, Callable[..., dict[str, Any]]] = {"ours": _ours, "limit": _limit}
    return contenders[options.worker](texts, encoder, model, options.threads)


def _plain_model(checkpoint: Any, precision: str) -> Any:
    """The model as transformers loads and computes it, with nothing of ours."""
    import torch
    from transformers import AutoModelForCausalLM

    is_file = checkpoint.path.is_file()
    return AutoModelForCausalLM.from_pretrained(
        checkpoint.path.parent if is_file else checkpoint.path,
        dtype=torch.bfloat16 if precision == "bf16" else torch.float32,
        **({"gguf_file": checkpoint.path.name} if is_file else {}),
    ).eval()


def _notes(options: argparse.Namespace, encoder: Any) -> list[str]:
    """The first distinct notes that fit one window, so that the peer cuts nothing off."""
    import pyarrow.parquet as pq

    found: list[str] = []
    for text in dict.fromkeys(pq.read_table(options.notes, columns=[options.text])[options.text].to_pylist()):
        if text and len(encoder.encode([text])[0].positions) <= MAX_LENGTH:
            found.append(text)
        if len(found) == options.records:
            break
    return found


def _ours(texts: list[str], encoder: Any, model: Any, num_threads: int) -> dict[str, Any]:
    from schemas.partials import BlockKey
    from scoring.config import TILE_TOKENS
    from scoring.devices import set_up
    from scoring.engine import Windowing, score_blocks
    from scoring.forward import make_tile_function
    from scoring.tiles import Row, make_menu

    set_up(model.head.weight_VD.device, num_threads)
    menu = make_menu(MAX_LENGTH, tokens=TILE_TOKENS, one_row=model.has_experts)
    compute = make_tile_function(model, menu)
    shapes: list[tuple[int, int]] = []

    def counted(length: int, rows: Iterable[Row]) -> Any:
        shapes.append((menu.rows_of(length) * length, sum(len(row.inputs) for row in rows)))
        return compute(length, list(rows))

    blocks = [
        (BlockKey("d-000000000000-00000", start // 16), texts[start : start + 16]) for start in range(0, len(texts), 16)
    ]
    with model.computing():
        started = time.perf_counter()
        results = [
            result
            for _, block in score_blocks(
                blocks, encoder=encoder, windowing=Windowing(MAX_LENGTH, MAX_LENGTH), menu=menu, compute=counted
            )
            for result in block
        ]
        seconds = time.perf_counter() - started
    fill = sum(used for _, used in shapes) / sum(size for size, _ in shapes)
    return {
        "seconds": seconds,
        "num_tokens": sum(result.num_tokens for result in results),
        "loss_nats": math.fsum(result.loss_nats for result in results),
        "detail": f", {len(shapes)} tiles {100 * fill:.1f} % full",
    }


def _peer(texts: list[str], encoder: Any, model: Any, precision: str) -> dict[str, Any]:
    import torch
    from torch.nn.functional import cross_entropy

    loss_nats, num_tokens = 0.0, 0
    with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "mixed"):
        started = time.perf_counter()
        encoded = sorted((item.positions for item in encoder.encode(texts)), key=len)
        for start in range(0, len(encoded), PEER_BATCH):
            batch = encoded[start : start + PEER_BATCH]
            width = max(map(len, batch))
            tokens_BT = torch.zeros((len(batch), width), dtype=torch.int64)
            mask_BT = torch.zeros((len(batch), width), dtype=torch.int64)
            for index, ids in enumerate(batch):
                tokens_BT[index, : len(ids)] = torch.from_numpy(ids)
                mask_BT[index, : len(ids)] = 1
            logits_BTV = model(input_ids=tokens_BT, attention_mask=mask_BT).logits
            labels_BT = tokens_BT.masked_fill(mask_BT == 0, -100)[:, 1:]
            losses_N = cross_entropy(
                logits_BTV[:, :-1].flatten(0, 1), labels_BT.flatten(), ignore_index=-100, reduction="none"
            )
            loss_nats += float(losses_N.double().sum())
            num_tokens += int((labels_BT != -100).sum())
        seconds = time.perf_counter() - started
    return {"seconds": seconds, "num_tokens": num_tokens, "loss_nats": loss_nats, "detail": ""}


def _limit(_texts: list[str], _encoder: Any, model: Any, num_threads: int) -> dict[str, Any]:
    """Seconds a token for the matrix products alone, at the best rate that this process sees for each shape."""
    import torch

    from scoring.devices import set_up
    from scoring.kernels import PackedLinear

    set_up(torch.device("cpu"), num_threads)
    dtype = torch.float32 if model.precision == "fp32" else torch.bfloat16
    head = model.model.get_output_embeddings()
    shapes = [
        (*reversed(module.weight.shape), torch.float32 if module is head else dtype)
        for module in model.model.modules()
        if isinstance(module, torch.nn.Linear | PackedLinear)
    ]
    seconds = {shape: _seconds_of_product(*shape) for shape in set(shapes)}
    return {"seconds": sum(seconds[shape] for shape in shapes) / ROWS}


def _seconds_of_product(num_inputs: int, num_outputs: int, dtype: Any) -> float:
    import torch

    from scoring.kernels import linear, packed

    rows, weight = torch.randn(ROWS, num_inputs).to(dtype), torch.randn(num_outputs, num_inputs).to(dtype)
    weight = packed(weight)
    times = []
    for _ in range(PRODUCTS):
        started = time.perf_counter()
        linear(rows, weight)
        times.append(time.perf_counter() - started)
    return min(times)


if __name__ == "__main__":
    main()
