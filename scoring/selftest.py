"""Proof at start-up, on the actual device, that a record's loss does not depend on its neighbours.

Six claims are checked on random tokens: a row's losses are bitwise equal in another position among other neighbours;
the same tile has the same bits each time; a later token changes no earlier loss; the chunked head equals
``model(...).logits``; the thread count is what the fingerprint says; and not every loss is NaN. They are cheap (a few
tiles), so every run checks them. Without the first one a run can go on in tiles of fixed composition; without any of
the others its numbers would mean nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from schemas.errors import IntegrityError
from schemas.manifests import NOT_INVARIANT
from scoring.losses import token_losses
from scoring.tiles import Row, TileFunction, TileMenu

if TYPE_CHECKING:
    from scoring.models import LoadedModel

SEED = 20_240_131
# 16 rows of 64 tokens, and 5 of 176: a full tile, and one whose rows do not fill it evenly.
PROBED_LENGTHS = (64, 176)
HEAD_CHECK_LENGTH = 48
HEAD_TOLERANCE_NATS = {"fp64": 1e-6, "fp32": 1e-3, "tf32": 1e-3, "mixed": 1e-3, "bf16": 0.25, "fp16": 0.05}
EXPERTS_TOLERANCE_NATS = {"fp64": 1e-6, "fp32": 1e-3, "tf32": 0.05, "mixed": 0.25, "bf16": 0.25, "fp16": 0.05}
PASSED = "passed"


@dataclass(frozen=True, slots=True)
class SelfTest:
    """Outcome by claim: ``passed``, or what was seen instead.

    ``canary`` is the SHA-256 of the probes' losses, bit for bit: kernels choose their code by vendor, model and caches
    of the processor, which no version number tells, so equal bits are shown, not assumed. It is in the fingerprint.
    """

    tile_invariance: str
    repeatability: str
    causality: str
    head: str
    threads: str
    finite: str
    canary: str

    @property
    def is_batch_invariant(self) -> bool:
        """Whether rows of any blocks may share a tile."""
        return self.tile_invariance == PASSED

    def outcomes(self) -> dict[str, str]:
        """As it stands in run.json and the report."""
        return {
            "tile_invariance": self.tile_invariance,
            "repeatability": self.repeatability,
            "causality": self.causality,
            "chunked_head": self.head,
            "threads": self.threads,
            "finite_losses": self.finite,
        }


def run_selftest(model: LoadedModel, menu: TileMenu, compute: TileFunction, *, num_threads: int) -> SelfTest:
    """Check the six claims; call it inside ``model.computing()``."""
    lengths = sorted({menu.length_of(min(length, menu.lengths[-1])) for length in PROBED_LENGTHS})
    generator = np.random.Generator(np.random.PCG64(SEED))
    probes = [_probe(model, menu, compute, length, generator) for length in lengths]
    found = torch.get_num_threads()
    return SelfTest(
        tile_invariance=_first_failure(probe.invariance for probe in probes),
        repeatability=_first_failure(probe.repeatability for probe in probes),
        causality=_first_failure(probe.causality for probe in probes),
        head=_check_head(model, menu, generator),
        threads=PASSED if found == num_threads else f"{found} threads compute, {num_threads} were asked for",
        # Single tokens may be NaN: their records are quarantined. A model that is NaN everywhere scores nothing.
        finite=PASSED
        if any(np.isfinite(probe.losses_T).any() for probe in probes)
        else "every loss is NaN or infinite",
        canary=hashlib.sha256(b"".join(probe.losses_T.tobytes() for probe in probes)).hexdigest(),
    )


def require_passed(selftest: SelfTest, *, strict: bool, lane: str = "") -> None:
    """All claims hold; without ``strict`` all but tile invariance, for which fixed tiles can stand.

    ``lane`` is what the message calls the lane, where there are several.

    Raises:
        IntegrityError: names the first that does not, with the cure.
    """
    cures = {
        "tile_invariance": "set --tile-rows 1, or leave out --strict: tiles are fixed within each block then",
        "repeatability": "this device gives other bits each time; score on another",
        "causality": "this model cannot be scored in padded rows; score another, or report the model",
        "chunked_head": "the model changes its logits in a way that is not known here; report the model",
        "threads": "set --threads-per-rank",
        "finite_losses": "the weights are broken; copy or convert the checkpoint again",
    }
    for claim, outcome in selftest.outcomes().items():
        if outcome != PASSED and (strict or claim != "tile_invariance"):
            raise IntegrityError(f"self-test {f'{lane} {claim}'.strip()}: {outcome}; {cures[claim]}")


@dataclass(frozen=True, slots=True)
class _Probe:
    """Outcomes in one tile shape, and the losses of the probed row (nats, float64)."""

    invariance: str
    repeatability: str
    causality: str
    losses_T: NDArray[np.float64]  # noqa: N815 - shape letters


def _first_failure(outcomes: Iterable[str]) -> str:
    return next((outcome for outcome in outcomes if outcome != PASSED), PASSED)


def _probe(
    model: LoadedModel, menu: TileMenu, compute: TileFunction, length: int, generator: np.random.Generator
) -> _Probe:
    """Score one row twice, first among full neighbours, then last among short ones with a twin whose tail differs."""
    num_rows, half = menu.rows_of(length), length // 2
    probe = _random_row(model, length, generator)
    ids = np.concatenate([probe.inputs[:half], _random_row(model, length - half, generator).inputs])
    twin = Row(ids, np.append(ids[1:], probe.targets[-1:]))
    neighbours = [_random_row(model, length, generator) for _ in range(num_rows - 1)]
    first = compute(length, [probe, *neighbours])[0]
    if num_rows == 1:
        again, early = first, compute(length, [twin])[0]
    else:
        sizes = generator.integers(1, length + 1, num_rows - 2)
        early, *_, again = compute(length, [twin, *(_random_row(model, int(n), generator) for n in sizes), probe])
    repeated, is_invariant = again, _equal(first, again)
    if num_rows == 1 or not is_invariant:
        repeated = compute(length, [probe, *neighbours])[0]
    if not is_invariant:  # then only the same company shows what a later token does
        early = compute(length, [twin, *neighbours])[0]
    where = f"tile of {num_rows} × {length} tokens"
    tolerance = EXPERTS_TOLERANCE_NATS[model.precision] if model.has_experts else 0.0
    # Inputs 0 … half-1 are shared, so are the targets of all but the last of them.
    causal = np.isclose(first[: half - 1], early[: half - 1], rtol=0, atol=tolerance, equal_nan=True).all()
    return _Probe(
        invariance=PASSED if is_invariant else f"{NOT_INVARIANT}: other bits beside other rows, {where}",
        repeatability=PASSED if _equal(first, repeated) else f"other bits the second time, {where}",
        causality=PASSED if causal else f"a later token changed an earlier loss, {where}",
        losses_T=first,
    )


def _equal(one: NDArray[np.float64], other: NDArray[np.float64]) -> bool:
    """Bit for bit; a weight that is NaN for one token is that token's fault: its records are quarantined."""
    return np.array_equal(one, other, equal_nan=True)


def _random_row(model: LoadedModel, length: int, generator: np.random.Generator) -> Row:
    ids = generator.integers(0, model.head.weight_VD.shape[0], length + 1, dtype=np.int64)
    return Row(inputs=ids[:-1], targets=ids[1:])


def _check_head(model: LoadedModel, menu: TileMenu, generator: np.random.Generator) -> str:
    device, size = model.head.weight_VD.device, min(HEAD_CHECK_LENGTH, menu.lengths[-1])
    positions = torch.from_numpy(generator.integers(0, model.head.weight_VD.shape[0], (1, size + 1))).to(device)
    with torch.autocast(device.type, enabled=False):
        hidden_TD = model.backbone(positions[:, :-1])[0]
        ours = token_losses(hidden_TD, model.head, positions[0, 1:])
        logits_TV = model.model(input_ids=positions[:, :-1], use_cache=False).logits[0].double()
        theirs = torch.nn.functional.cross_entropy(logits_TV, positions[0, 1:], reduction="none")
    tolerance = HEAD_TOLERANCE_NATS[model.precision]
    if torch.isclose(ours, theirs, rtol=0, atol=tolerance, equal_nan=True).all():
        return PASSED
    return f"{float((ours - theirs).abs().max()):.2g} nats from the model's logits, {tolerance:g} allowed"
