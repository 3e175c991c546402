"""Everything a rank computes with, loaded and proven once, and the fingerprint that follows from it."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from schemas.errors import UsageError
from schemas.folders import Build
from schemas.parts import FINGERPRINT_KEY, parts_in
from schemas.precision import PrecisionPolicy, policy_of
from scoring.assignment import RankIdentity
from scoring.budget import Budget
from scoring.checkpoints import Checkpoint, locate
from scoring.config import RESERVED_BYTES, ScoringSettings
from scoring.context import EncounterContext
from scoring.devices import choose_device, default_threads, device_class, set_up
from scoring.fingerprint import build_part, compute_part, library_versions, model_part, run_id_of, tokenizer_part
from scoring.forward import make_tile_function
from scoring.lanes import LaneTests
from scoring.method import Lane, Method, Windowing
from scoring.models import FALLBACK_MAX_LENGTH, LoadedModel, check_vocabulary, load_encoder, load_models
from scoring.peaks import MemoryLimit
from scoring.selftest import run_selftest
from scoring.split import Split, open_split, split_part
from scoring.tiles import TileFunction, TileMenu, make_menu
from scoring.tokens import Encoder

AS_ASKED = Budget()

logger = logging.getLogger("scoring.session")


@dataclass(frozen=True, slots=True)
class Session:
    """A loaded model with all that scoring needs; its lanes compute only inside ``open_session``."""

    checkpoint: Checkpoint
    encoder: Encoder
    windowing: Windowing
    lanes: tuple[Lane, ...]
    check: Lane | None
    split: Split | None
    selftest: LaneTests
    fingerprint: dict[str, Any]

    @property
    def method(self) -> Method:
        """How token ids become losses."""
        is_per_block = not self.selftest.is_batch_invariant
        return Method(self.windowing, self.lanes, is_per_block=is_per_block, check=self.check, split=self.split)

    @property
    def parts(self) -> list[str]:
        """What losses are split into."""
        return parts_in(self.fingerprint)

    @property
    def context(self) -> EncounterContext | None:
        """Encodes records behind earlier notes; None where each is scored by itself."""
        has_context = self.fingerprint["compute"]["context"] == "encounter"
        return EncounterContext(self.encoder, self.windowing.max_length) if has_context else None

    @property
    def policy(self) -> PrecisionPolicy:
        """In which precision which record is computed, and which in fp32 too."""
        return policy_of(self.fingerprint)

    @property
    def menu(self) -> TileMenu:
        """Tile shapes, the same in every lane."""
        return self.lanes[0].menu

    @property
    def run_id(self) -> str:
        """The id that follows from the fingerprint."""
        return run_id_of(self.fingerprint)


@contextmanager
def open_session(
    settings: ScoringSettings, build: Build | None, *, identity: RankIdentity, budget: Budget = AS_ASKED
) -> Iterator[Session]:
    """Load model and tokenizer, set the device up, and prove the claims of the self-test.

    Args:
        settings: Of the run.
        build: What will be scored; none for a bare self-test.
        identity: Of this rank: it decides the GPU and the share of the cores.
        budget: Whether tiles may be smaller than asked for.

    Raises:
        UsageError: something does not fit together.
        IntegrityError: the self-test failed.
    """
    checkpoint = locate(settings.model, settings.tokenizer)
    device = choose_device(settings.device, local_rank=identity.local_rank)
    num_threads = settings.threads_per_rank or default_threads(identity.num_local_ranks)
    set_up(device, num_threads)
    split = open_split(settings)
    encoder = load_encoder(checkpoint, policy=settings.prefix)
    encoder = replace(encoder, classes=None if split is None else split.classes)
    models = load_models(checkpoint, settings.policy.precisions, device=device)
    model = next(iter(models.values()))
    check_vocabulary(encoder, model)
    windowing = choose_windowing(settings, model)
    one_row = settings.tile_rows == "1" or model.has_experts
    asked = make_menu(windowing.max_length, tokens=settings.tile_tokens, one_row=one_row)
    with ExitStack() as stack:
        for each in models.values():
            stack.enter_context(each.computing())
        limit = MemoryLimit(settings.memory_budget - RESERVED_BYTES, device) if settings.memory_budget else None
        menu = budget.fitting(
            asked, lambda menu: _in_turn([make_tile_function(each, menu) for each in models.values()]), limit
        )
        computes = {precision: make_tile_function(each, menu) for precision, each in models.items()}
        selftest = LaneTests(
            {
                precision: run_selftest(each, menu, computes[precision], num_threads=num_threads)
                for precision, each in models.items()
            }
        )
        selftest.require_passed(strict=settings.strict)
        if not selftest.is_batch_invariant:
            logger.warning("not batch-invariant on this device; tiles are fixed within each block")
        fingerprint = {
            "build": {} if build is None else build_part(build, settings.limit_blocks),
            "compute": compute_part(windowing, menu, settings, selftest),
            "device": {
                "canary_sha256": selftest.canary,
                "class": device_class(device),
                # Threads share out the sums of a CPU's kernels; on other devices they compute nothing.
                "threads_per_rank": num_threads if device.type == "cpu" else None,
            },
            "libraries": library_versions(checkpoint),
            "model": model_part(checkpoint, model),
            "tokenizer": tokenizer_part(checkpoint, encoder, settings),
            **({} if split is None else {FINGERPRINT_KEY: split_part(split)}),
        }
        lanes = [Lane(menu, computes[band.compute], band.compute, band.up_to) for band in settings.precision]
        check = Lane(menu, computes["fp32"]) if settings.policy.checked_bands else None
        yield Session(checkpoint, encoder, windowing, tuple(lanes), check, split, selftest, fingerprint)


def choose_windowing(settings: ScoringSettings, model: LoadedModel) -> Windowing:
    """Window length and step from the settings and the model's own limit.

    Raises:
        UsageError: the windows are longer than the model's positions, or the step would lose tokens.
    """
    max_length = settings.max_length or model.max_positions or FALLBACK_MAX_LENGTH
    if model.max_positions and max_length > model.max_positions:
        raise UsageError(f"max_length {max_length}: the model has {model.max_positions} positions; lower --max-length")
    stride = settings.stride or max_length
    if stride > max_length:
        raise UsageError(f"stride {stride} is over max_length {max_length}: tokens would be lost; lower --stride")
    return Windowing(max_length=max_length, stride=stride)


def _in_turn(computes: Sequence[TileFunction]) -> TileFunction:
    """Each tile in every precision; gives the losses of the last."""
    return lambda length, rows: [compute(length, rows) for compute in computes][-1]
