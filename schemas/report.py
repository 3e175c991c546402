"""The report of a run: the truth that HTML, Markdown and Parquet are rendered from.

Figures, ledger, checks and content digests are equal for equal records, whatever files, ranks or order they came in;
what tells where they came from stands in ``provenance`` and nowhere else. An undefined or infinite figure is a status
with a reason, so no number in the document is a placeholder.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from schemas.documents import Document, Value
from schemas.ledgers import BuildLedger
from schemas.patterns import SHA256
from schemas.seals import Seal

REPORT_FILE = "report.json"


class Number(Value):
    """A figure that has a value."""

    status: Literal["ok"] = "ok"
    value: float


class NoNumber(Value):
    """A figure that has none, and why."""

    status: Literal["infinite", "undefined", "suppressed"]
    reason: str


Metric = Annotated[Number | NoNumber, Field(discriminator="status")]


class ExactLoss(Value):
    """``mantissa * 2**exponent`` nats, see ``schemas.tally.ExactSumJSON``."""

    mantissa: str
    exponent: int


class Suppressed(Value):
    """What is hidden because few records or patients stand behind it, or because it would give such a figure away.

    It tells no more than that: neither a number, nor which of the two reasons it is.
    """

    status: Literal["suppressed"] = "suppressed"


class Figures(Value):
    """What is reported of a set of records; counts are of scored records unless they say otherwise."""

    status: Literal["ok"] = "ok"
    num_records: int = Field(ge=0)
    num_skipped: int = Field(ge=0)
    num_patients: int = Field(ge=0)
    num_records_without_patient: int = Field(ge=0)
    num_tokens: int = Field(ge=0)
    num_words: int = Field(ge=0)
    num_bytes: int = Field(ge=0)
    loss_nats_exact: ExactLoss
    loss_nats: Metric
    nll_per_token: Metric
    token_perplexity: Metric
    word_perplexity: Metric
    byte_perplexity: Metric
    bits_per_byte: Metric


Shown = Annotated[Figures | Suppressed, Field(discriminator="status")]


class StratumValue(Value):
    """One column's value; null is a value of its own, ``label`` is how people see it."""

    column: str
    value: str | None
    label: str


class Stratum(Value):
    """One cell of a crossing."""

    values: list[StratumValue]
    figures: Shown


class MacroAverage(Value):
    """Unweighted means over the published strata that have scored tokens: each counts the same, large or small."""

    num_strata: int = Field(ge=0)
    num_strata_without_tokens: int = Field(ge=0)
    num_strata_suppressed: int = Field(ge=0)
    nll_per_token: Metric
    token_perplexity: Metric


class MicroAverage(Value):
    """From the sums over all strata: every token counts the same. Equal to the whole."""

    nll_per_token: Metric
    token_perplexity: Metric


class Crossing(Value):
    """All strata of one or more columns."""

    columns: list[str] = Field(min_length=1)
    micro: MicroAverage
    macro: MacroAverage
    strata: list[Stratum]


class PartFigures(Value):
    """What is reported of a part of the loss."""

    status: Literal["ok"] = "ok"
    num_tokens: int = Field(ge=0)
    share_of_tokens: Metric
    loss_nats_exact: ExactLoss
    share_of_loss: Metric
    nll_per_token: Metric


class Part(Value):
    """A class of tokens, or a band of positions."""

    name: str
    figures: Annotated[PartFigures | Suppressed, Field(discriminator="status")]


class LossSplit(Value):
    """The loss of the whole, split by class of token or by position; the parts add up to it."""

    by: Literal["class", "position"]
    parts: list[Part]


class RunLedger(Value):
    """sharded = scored + skipped, each by reason, + beyond the limit of a limited run."""

    num_sharded: int = Field(ge=0)
    num_scored: int = Field(ge=0)
    skipped: dict[str, int]
    num_beyond_limit: int = Field(ge=0)


class Ledger(Value):
    """Every record through all three stages."""

    build: BuildLedger
    run: RunLedger
    num_reported: int = Field(ge=0)
    status: Literal["ok"] = "ok"


class PrecisionDrift(Value):
    """How far a reduced precision moves token perplexity against fp32, in a sample of its records.

    ``drift``, and ``low`` and ``high`` of its 95 % interval, are exp(difference of the mean NLLs) - 1, see
    ``schemas.drift``. The verdict is on the size of the drift against ``limit``.
    """

    band: str
    num_records: int | Suppressed
    num_tokens: int | Suppressed
    drift: Metric
    low: Metric
    high: Metric
    limit: float
    verdict: Literal["within", "above", "undefined"]


class Check(Value):
    """Something that was verified, and how many of it."""

    check: str
    count: int | Suppressed


class Definition(Value):
    """What a term of the report means."""

    term: str
    formula: str | None
    meaning: str


class Content(Value):
    """Digests of the records and of their scores, free of file layout and provenance."""

    build_content_digest: str = Field(pattern=SHA256)
    build_multiset_digest: str = Field(pattern=r"^[0-9a-f]{32}$")
    scores_digest: str = Field(pattern=SHA256)


class Provenance(Value):
    """Where the figures came from."""

    build_id: str
    run_id: str
    exactppl_version: str
    num_inputs: int = Field(ge=0)
    inputs_digest: str = Field(pattern=SHA256)
    config: dict[str, Any]
    config_digest: str = Field(pattern=SHA256)
    fingerprint: dict[str, Any]
    seals: dict[str, Seal]
    shards_digest: str = Field(pattern=SHA256)
    partials_digest: str = Field(pattern=SHA256)


class Report(Document):
    """A whole report; ``precisions`` counts the scored records by the precision of their computation.

    Where the whole is suppressed, so are the ledger and all counts; where any stratum is, so are the counts of several
    precisions, since records of unlike lengths are computed in unlike ones.
    """

    kind = "exactppl.report"

    title: str
    model: str
    min_cell: int = Field(ge=0)
    precisions: dict[str, int | Suppressed]
    drift: list[PrecisionDrift]
    marks: list[str]
    whole: Shown
    crossings: list[Crossing]
    splits: list[LossSplit] = Field(default_factory=list)
    ledger: Annotated[Ledger | Suppressed, Field(discriminator="status")]
    checks: list[Check]
    method: list[Definition]
    fingerprint: dict[str, Any]
    selftest: dict[str, Any]
    content: Content
    provenance: Provenance
