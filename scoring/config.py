"""The settings of a scoring run; every one that changes a number is part of the fingerprint."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ByteSize, Field, field_validator, model_validator

from schemas.precision import Band, PrecisionPolicy, band_items, merged, require_order
from schemas.settings import Settings

PrefixPolicy = Literal["auto", "bos", "eos", "none"]
Device = Literal["auto", "cpu", "cuda", "mps"]
Pin = Literal["auto", "off"]
Context = Literal["none", "encounter"]

# Bounds of sense: beyond them a machine runs out of threads or memory before anyone can say why.
MAX_THREADS = 1024
TILE_TOKENS = 512
RESERVED_BYTES = 96 << 20
MAX_TILE_TOKENS = 1 << 22
POSITION_BANDS = (32, 128, 512, 2048)
MAX_LEXICONS = 64
MAX_BANDS = 64


def _as_items(value: Any) -> Any:
    return band_items(value) if isinstance(value, str) else value


def _as_share(value: Any) -> Any:
    """``0.5%`` as 0.005; what is no percentage is left to be judged as it is."""
    if not isinstance(value, str) or not value.rstrip().endswith("%"):
        return value
    try:
        return float(Decimal(value.strip().removesuffix("%").strip()) / 100)
    except InvalidOperation:
        return value


Share = Annotated[float, BeforeValidator(_as_share)]
Bands = Annotated[tuple[Band, ...], BeforeValidator(_as_items)]


class ScoringSettings(Settings):
    """Section ``[scoring]`` of the TOML file; variables ``PPL_SCORING_*``.

    Attributes:
        model: Hugging Face folder with safetensors, or a GGUF file.
        tokenizer: Folder with the tokenizer, when not the model's own.
        max_length: Positions of one window, prefix included; the model's own limit when absent.
        stride: Step from one window to the next, in tokens; ``max_length`` when absent, so windows do not overlap.
        prefix: Which token stands before a record and is never scored; ``auto`` is BOS, else EOS, else none.
        context: ``encounter`` puts the earlier notes of its encounter before a record, unscored (``scoring.context``).
        precision: One for all records, or bands by a record's positions, prefix included, context not:
            ``fp32:512,mixed``, or tables with ``up_to`` and ``compute``. ``mixed`` is a bf16 autocast backbone,
            ``tf32`` a backbone of such products (CUDA); ``bf16`` and ``fp16`` have weights of that type, all four an
            fp32 head; ``fp64`` is fp64 throughout, where the model's own code does not say otherwise.
        precision_check: Share of the records of bands in ``tf32``, ``mixed``, ``bf16`` or ``fp16`` that are computed
            in fp32 too, as ``0.5%`` or ``0.005``; by their ids alone.
        max_drift: Relative difference of token perplexity against fp32 above which a band fails the check.
        on_drift: ``fail`` then, or score such bands in ``fp32``.
        device: ``auto`` takes CUDA, then MPS, then the CPU.
        threads_per_rank: Compute threads of one rank; the cores shared out when absent. Part of the fingerprint.
        pin: ``auto`` binds the ranks of a node to cores of their own where that does no harm; no number depends on it.
        tile_tokens: Tokens of a forward pass; a tile of T-token rows has ``max(1, tile_tokens // T)`` rows.
        memory_budget: Bytes that a rank may take beside the weights, 96 MiB of them for texts, queues and partials;
            while there is no result, tile_tokens are halved until measured tiles keep within the rest.
        tile_rows: 1 puts each row in a tile of its own, for devices where neighbours change a row's bits.
        strict: Refuse a device on which neighbours change a row's bits; otherwise tiles are fixed within each block
            there, and every output says so.
        max_quarantined: Share of records with a NaN or infinite loss above which the run fails.
        timeout: Seconds without a sign of life after which a rank is called lost.
        dedup: Compute equal token sequences of a department once; no bit depends on it.
        cache: Folder of losses of earlier runs, which are taken where all that they depend on is the same.
        token_classes: Split each record's loss by class of token and by position band, in further columns of partials.
        lexicon: Files of terms, one a line, each a class of tokens; ``NAME=FILE`` where there are several.
        units: TOML list of units of measurement; ``scoring/units.toml`` when absent.
        position_bands: Positions at which the bands after the first begin, ascending.
        limit_blocks: Score only the first blocks, in the order of shard and block; marked in every output.
    """

    model: Path
    tokenizer: Path | None = None
    max_length: int | None = Field(default=None, ge=2, le=MAX_TILE_TOKENS)
    stride: int | None = Field(default=None, ge=1, le=MAX_TILE_TOKENS)
    prefix: PrefixPolicy = "auto"
    context: Context = "none"
    precision: Bands = (Band(compute="fp32"),)
    precision_check: Share = Field(default=0.0, ge=0, le=1)
    max_drift: Share = Field(default=0.003, ge=0)
    on_drift: Literal["fail", "fp32"] = "fail"
    device: Device = "auto"
    threads_per_rank: int | None = Field(default=None, ge=1, le=MAX_THREADS)
    pin: Pin = "auto"
    tile_tokens: int = Field(default=TILE_TOKENS, ge=16, le=MAX_TILE_TOKENS)
    memory_budget: ByteSize | None = Field(default=None, gt=RESERVED_BYTES)
    tile_rows: Literal["auto", "1"] = "auto"
    strict: bool = False
    max_quarantined: float = Field(default=0.001, ge=0, le=1)
    timeout: float = Field(default=300, gt=0)
    dedup: bool = True
    cache: Path | None = None
    token_classes: bool = False
    lexicon: tuple[str, ...] = Field(default=(), max_length=MAX_LEXICONS)
    units: Path | None = None
    position_bands: tuple[int, ...] = Field(default=POSITION_BANDS, max_length=MAX_BANDS)
    limit_blocks: int | None = Field(default=None, ge=1)

    @field_validator("precision")
    @classmethod
    def _ordered(cls, bands: tuple[Band, ...]) -> tuple[Band, ...]:
        require_order(bands)
        return merged(bands)

    @property
    def policy(self) -> PrecisionPolicy:
        """In which precision which record is computed."""
        return PrecisionPolicy(self.precision, check=self.precision_check)

    @model_validator(mode="after")
    def _cache_needs_dedup(self) -> ScoringSettings:
        if self.cache is not None and not self.dedup:
            raise ValueError("cache needs dedup: what is taken from it is not computed again either")
        return self

    @field_validator("position_bands", mode="before")
    @classmethod
    def _separated_by_commas(cls, value: Any) -> Any:
        return value.split(",") if isinstance(value, str) else value

    @field_validator("position_bands")
    @classmethod
    def _bands_ascend(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if any(low >= high for low, high in pairwise((0, *value))):
            raise ValueError("position_bands must be positive and ascend, as in 32,128,512,2048")
        return value

    @model_validator(mode="after")
    def _classes_are_on(self) -> ScoringSettings:
        if not self.token_classes and (self.lexicon or self.units or self.position_bands != POSITION_BANDS):
            raise ValueError("lexicon, units and position_bands belong to token_classes; set it too")
        return self

    @model_validator(mode="after")
    def _stride_fits(self) -> ScoringSettings:
        if self.stride and self.max_length and self.stride > self.max_length:
            raise ValueError(f"stride {self.stride} is over max_length {self.max_length}: tokens would be lost")
        return self
