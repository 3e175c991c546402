"""From exact sums to figures: one rounding by the division, ``exp`` last, and a reason where there is no number."""

from __future__ import annotations

import math
from collections.abc import Sequence

from aggregate.strata import Cell
from schemas.report import ExactLoss, Figures, MacroAverage, Metric, MicroAverage, NoNumber, Number, Suppressed
from schemas.tally import ExactSum

TOO_LARGE = "beyond the largest FP64 number; nll_per_token and the exact loss are kept"
HIDDEN = NoNumber(status="suppressed", reason="few records or patients")


def figures(cell: Cell) -> Figures:
    """All figures of one set of records."""
    tally = cell.tally
    return Figures(
        num_records=tally.num_records,
        num_skipped=cell.num_skipped,
        num_patients=cell.num_patients,
        num_records_without_patient=cell.num_without_patient,
        num_tokens=tally.num_tokens,
        num_words=tally.num_words,
        num_bytes=tally.num_bytes,
        loss_nats_exact=ExactLoss(**tally.loss_nats.to_json()),
        loss_nats=_finite(tally.loss_nats.to_float()),
        nll_per_token=per(tally.loss_nats, tally.num_tokens, "tokens"),
        token_perplexity=exponential(per(tally.loss_nats, tally.num_tokens, "tokens")),
        word_perplexity=exponential(per(tally.loss_nats, tally.num_words, "words")),
        byte_perplexity=exponential(per(tally.loss_nats, tally.num_bytes, "bytes")),
        bits_per_byte=in_bits(per(tally.loss_nats, tally.num_bytes, "bytes")),
    )


def per(loss_nats: ExactSum, count: int, unit: str) -> Metric:
    """Nats per token, word or byte, correctly rounded; undefined over nothing."""
    if not count:
        return NoNumber(status="undefined", reason=f"no scored {unit}")
    return _finite(loss_nats.divided_by(count))


def share(part: ExactSum, whole: ExactSum, unit: str) -> Metric:
    """Part over whole, correctly rounded; undefined where the whole is nothing."""
    if not whole.units:
        return NoNumber(status="undefined", reason=f"no {unit}")
    return Number(value=part.units / whole.units)


def exponential(nats: Metric) -> Metric:
    """A perplexity; infinite by status where FP64 cannot hold it."""
    if isinstance(nats, NoNumber):
        return nats
    try:
        return Number(value=math.exp(nats.value))
    except OverflowError:
        return NoNumber(status="infinite", reason=TOO_LARGE)


def in_bits(nats: Metric) -> Metric:
    """From nats to bits."""
    return nats if isinstance(nats, NoNumber) else Number(value=nats.value / math.log(2))


def micro(whole: Figures | Suppressed) -> MicroAverage:
    """The average in which every token counts the same."""
    if isinstance(whole, Suppressed):
        return MicroAverage(nll_per_token=HIDDEN, token_perplexity=HIDDEN)
    return MicroAverage(nll_per_token=whole.nll_per_token, token_perplexity=whole.token_perplexity)


def macro(strata: Sequence[Figures | Suppressed]) -> MacroAverage:
    """The average in which every published stratum with scored tokens counts the same."""
    published = [stratum for stratum in strata if isinstance(stratum, Figures)]
    scored = [stratum for stratum in published if stratum.num_tokens]
    return MacroAverage(
        num_strata=len(scored),
        num_strata_without_tokens=len(published) - len(scored),
        num_strata_suppressed=len(strata) - len(published),
        nll_per_token=_mean([stratum.nll_per_token for stratum in scored]),
        token_perplexity=_mean([stratum.token_perplexity for stratum in scored]),
    )


def _mean(metrics: Sequence[Metric]) -> Metric:
    values = [metric.value for metric in metrics if isinstance(metric, Number)]
    if not metrics:
        return NoNumber(status="undefined", reason="no published stratum has scored tokens")
    if len(values) < len(metrics):
        return NoNumber(status="infinite", reason=f"infinite in {len(metrics) - len(values)} of {len(metrics)} strata")
    return _finite(ExactSum.of(values).divided_by(len(values)))


def _finite(value: float) -> Metric:
    return Number(value=value) if math.isfinite(value) else NoNumber(status="infinite", reason=TOO_LARGE)
