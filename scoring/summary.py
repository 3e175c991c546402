"""The few figures that a scoring run prints when it is complete; the report has them with their proof."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from schemas.documents import read_document
from schemas.manifests import RUN_FILE, RunHeader, RunManifest
from schemas.tally import ExactSum


def summary(manifest: RunManifest, run: Path) -> dict[str, Any]:
    """Exact totals of a run and its token perplexity, or the reason why there is none."""
    totals, header = manifest.totals, read_document(run / RUN_FILE, RunHeader)
    before = [] if header.fallback is None else header.fallback.drift
    drifts = [*(found for found in before if found.verdict == "above"), *manifest.drift]
    loss = ExactSum.from_json({"mantissa": totals.loss_nats["mantissa"], "exponent": totals.loss_nats["exponent"]})
    figures: dict[str, Any] = {
        "marks": header.marks,
        "run": str(run),
        "run_id": manifest.run_id,
        "num_blocks": len(manifest.partials),
        "num_records": totals.num_records,
        "num_tokens": totals.num_tokens,
        "skipped": totals.skipped,
        "drift": [found.model_dump(mode="json") | {"text": found.text} for found in drifts],
    }
    if not totals.num_tokens:
        return figures | {"status": "undefined: no token was scored"}
    nll_per_token = loss.divided_by(totals.num_tokens)
    try:
        return figures | {"nll_per_token": nll_per_token, "token_perplexity": math.exp(nll_per_token)}
    except OverflowError:
        return figures | {"nll_per_token": nll_per_token, "status": "token perplexity is infinite"}


def summary_lines(figures: Mapping[str, Any]) -> list[str]:
    """The summary for people."""
    skipped = ", ".join(f"{count:,} {reason}" for reason, count in figures["skipped"].items() if count) or "none"
    lines = [*(f"! {mark}" for mark in figures["marks"])]
    lines += [
        f"run {figures['run_id']} is complete: {figures['num_records']:,} records, {figures['num_tokens']:,} tokens, "
        f"{figures['num_blocks']:,} blocks; skipped: {skipped}"
    ]
    if "token_perplexity" in figures:
        lines.append(f"token perplexity {figures['token_perplexity']:.6g} (from the exact total of all ranks)")
    else:
        lines.append(figures["status"])
    lines += [f"precision {found['text']}" for found in figures["drift"]]
    return [*lines, f"next: python -m aggregate report BUILD {figures['run']} --out REPORT"]
