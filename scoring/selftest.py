"""Proof at start-up, on the actual device, that a record's loss does not depend on its neighbours.

Five claims are checked on random tokens: a row's losses are bitwise equal in another position among other neighbours;
a later token changes no earlier loss; the chunked head equals ``model(...).logits``; the thread count is what the
fingerprint says; and not every loss is NaN. They are cheap (a few tiles), so every run checks them.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from schemas.errors import IntegrityError
from scoring.losses import token_losses
from scoring.tiles import Row, TileFunction, TileMenu

if TYPE_CHECKING:
    from scoring.models import LoadedModel

SEED = 20_240_131
# 16 rows of 64 tokens, and 5 of 176: a full tile, and one whose rows do not fill it evenly.
PROBED_LENGTHS = (64, 176)
HEAD_CHECK_LENGTH = 48
HEAD_TOLERANCE_NATS = {"fp32": 1e-3, "mixed": 1e-3, "bf16": 0.25}
EXPERTS_TOLERANCE_NATS = {"fp32": 1e-3, "mixed": 0.25, "bf16": 0.25}
PASSED = "passed"


@dataclass(frozen=True, slots=True)
class SelfTest:
    """Outcome by claim: ``passed``, or what was seen instead.

    ``canary`` is the SHA-256 of the probes' losses, bit for bit: kernels choose their code by vendor, model and caches
    of the processor, which no version number tells, so equal bits are shown, not assumed. It is in the fingerprint.
    """

    tile_invariance: str
    causality: str
    head: str
    threads: str
    finite: str
    canary: str

    def outcomes(self) -> dict[str, str]:
        """As it stands in run.json and the report."""
        return {
            "tile_invariance": self.tile_invariance,
            "causality": self.causality,
            "chunked_head": self.head,
            "threads": self.threads,
            "finite_losses": self.finite,
        }


def run_selftest(model: LoadedModel, menu: TileMenu, compute: TileFunction, *, num_threads: int) -> SelfTest:
    """Check the five claims; call it inside ``model.computing()``."""
    lengths = sorted({menu.length_of(min(length, menu.lengths[-1])) for length in PROBED_LENGTHS})
    generator = np.random.Generator(np.random.PCG64(SEED))
    outcomes = [_probe(model, menu, compute, length, generator) for length in lengths]
    found = torch.get_num_threads()
    return SelfTest(
        tile_invariance=next((one for one, _, _ in outcomes if one != PASSED), PASSED),
        causality=next((two for _, two, _ in outcomes if two != PASSED), PASSED),
        head=_check_head(model, menu, generator),
        threads=PASSED if found == num_threads else f"{found} threads compute, {num_threads} were asked for",
        # Single tokens may be NaN: their records are quarantined. A model that is NaN everywhere scores nothing.
        finite=PASSED
        if any(np.isfinite(losses).any() for _, _, losses in outcomes)
        else "every loss is NaN or infinite",
        canary=hashlib.sha256(b"".join(losses.tobytes() for _, _, losses in outcomes)).hexdigest(),
    )


def require_passed(selftest: SelfTest) -> None:
    """All claims hold.

    Raises:
        IntegrityError: names the first that does not, with the cure.
    """
    cures = {
        "tile_invariance": "set --tile-rows 1",
        "causality": "this model cannot be scored in padded rows; score another, or report the model",
        "chunked_head": "the model changes its logits in a way that is not known here; report the model",
        "threads": "set --threads-per-rank",
        "finite_losses": "the weights are broken; copy or convert the checkpoint again",
    }
    for claim, outcome in selftest.outcomes().items():
        if outcome != PASSED:
            raise IntegrityError(f"self-test {claim}: {outcome}; {cures[claim]}")


def _probe(
    model: LoadedModel, menu: TileMenu, compute: TileFunction, length: int, generator: np.random.Generator
) -> tuple[str, str, NDArray[np.float64]]:
    """Score one row twice, first among full neighbours, then last among short ones with a twin whose tail differs."""
    num_rows, half = menu.rows_of(length), length // 2
    probe = _random_row(model, length, generator)
    ids = np.concatenate([probe.inputs[:half], _random_row(model, length - half, generator).inputs])
    twin = Row(ids, np.append(ids[1:], probe.targets[-1:]))
    first = compute(length, [probe, *(_random_row(model, length, generator) for _ in range(num_rows - 1))])[0]
    if num_rows == 1:
        again, early = compute(length, [probe])[0], compute(length, [twin])[0]
    else:
        sizes = generator.integers(1, length + 1, num_rows - 2)
        early, *_, again = compute(length, [twin, *(_random_row(model, int(n), generator) for n in sizes), probe])
    where = f"{num_rows} × {length} tokens"
    # A weight that is NaN for one token is that token's fault: its records are quarantined, the claims still hold.
    equal = np.array_equal(first, again, equal_nan=True)
    invariant = PASSED if equal else f"other bits beside other rows, tile of {where}"
    tolerance = EXPERTS_TOLERANCE_NATS[model.precision] if model.has_experts else 0.0
    # Inputs 0 … half-1 are shared, so are the targets of all but the last of them.
    causal = np.isclose(first[: half - 1], early[: half - 1], rtol=0, atol=tolerance, equal_nan=True).all()
    causality = PASSED if causal else f"a later token changed an earlier loss, tile of {where}"
    return invariant, causality, first


def _random_row(model: LoadedModel, length: int, generator: np.random.Generator) -> Row:
    ids = generator.integers(0, model.head.weight_VD.shape[0], length + 1, dtype=np.int64)
    return Row(inputs=ids[:-1], targets=ids[1:])


def _check_head(model: LoadedModel, menu: TileMenu, generator: np.random.Generator) -> str:
    device, size = model.head.weight_VD.device, min(HEAD_CHECK_LENGTH, menu.lengths[-1])
    positions = torch.from_numpy(generator.integers(0, model.head.weight_VD.shape[0], (1, size + 1))).to(device)
    with torch.autocast(device.type, enabled=False):
        hidden_TD = model.hidden(positions[:, :-1])[0]
        ours = token_losses(hidden_TD, model.head, positions[0, 1:])
        logits_TV = model.model(input_ids=positions[:, :-1], use_cache=False).logits[0].double()
        theirs = torch.nn.functional.cross_entropy(logits_TV, positions[0, 1:], reduction="none")
    tolerance = HEAD_TOLERANCE_NATS[model.precision]
    if torch.isclose(ours, theirs, rtol=0, atol=tolerance, equal_nan=True).all():
        return PASSED
    return f"{float((ours - theirs).abs().max()):.2g} nats from the model's logits, {tolerance:g} allowed"
