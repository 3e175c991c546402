"""What reduced precisions do to the perplexity: recomputed from the partials, held against what the run claims."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from aggregate.runs import Run
from schemas.drift import BandDrift, DriftSums, add_sums, drifts_of
from schemas.errors import IntegrityError
from schemas.precision import PrecisionPolicy, policy_of
from schemas.report import Metric, NoNumber, Number, PrecisionDrift, Suppressed

CLAIMS = ("band", "precision", "up_to", "sums", "verdict")


def policy_of_run(run: Run) -> PrecisionPolicy:
    """In which precision the run computed which record.

    Raises:
        IntegrityError: its fingerprint tells of none that makes sense.
    """
    try:
        return policy_of(run.header.fingerprint)
    except ValueError:
        raise IntegrityError(f"{run.where}: the fingerprint's precision has no meaning; score again") from None


def verified_drift(run: Run, policy: PrecisionPolicy, parts: Iterable[dict[int, DriftSums]]) -> list[BandDrift]:
    """The drift of each checked band from the sums of all partials.

    Raises:
        IntegrityError: the run claims another one.
    """
    limits = [item.limit for item in run.manifest.drift]
    found = drifts_of(add_sums(list(parts)), policy, limit=limits[0] if limits else 0.0)
    # Sums and verdicts are claims; exp and square roots may differ by a bit between machines, so they are made anew.
    claimed, own = ([item.model_dump(include=set(CLAIMS)) for item in items] for items in (run.manifest.drift, found))
    if claimed != own or len(set(limits)) > 1:
        raise IntegrityError(
            f"{run.where}: the drift of reduced precisions differs from that of the partials; run scoring again"
        )
    return found


def checked_patients(partial: pa.Table, policy: PrecisionPolicy) -> dict[int, frozenset[bytes]]:
    """The known patients of the checked records of a partial, by band."""
    checked = partial.filter(pc.is_valid(partial.column("check_loss_nats")))
    found: dict[int, set[bytes]] = {}
    for patient, num_tokens in zip(
        checked.column("patient_id").to_pylist(), checked.column("num_tokens").to_pylist(), strict=True
    ):
        found.setdefault(policy.band_of(num_tokens + 1), set()).update([patient] if patient is not None else [])
    return {band: frozenset(patients) for band, patients in found.items()}


def count_patients(parts: Iterable[dict[int, frozenset[bytes]]]) -> dict[int, int]:
    """How many patients the partials have together, by band."""
    total: dict[int, set[bytes]] = {}
    for part in parts:
        for band, patients in part.items():
            total.setdefault(band, set()).update(patients)
    return {band: len(patients) for band, patients in total.items()}


def shown_drifts(
    drifts: Sequence[BandDrift], num_patients: Mapping[int, int], *, is_hidden: bool, min_cell: int
) -> list[PrecisionDrift]:
    """The drift of each band as the report has it, where enough records and known patients stand behind it."""
    fewest = [min(item.sums["num_records"], num_patients.get(item.band, 0)) for item in drifts]
    return [
        _shown(item, is_hidden=is_hidden or (item.sums["num_records"] > 0 and few < min_cell))
        for item, few in zip(drifts, fewest, strict=True)
    ]


def _shown(item: BandDrift, *, is_hidden: bool) -> PrecisionDrift:
    num_records, num_tokens = item.sums["num_records"], item.sums["num_tokens"]
    return PrecisionDrift(
        band=item.name,
        num_records=Suppressed() if is_hidden else num_records,
        num_tokens=Suppressed() if is_hidden else num_tokens,
        drift=_metric(item.drift, is_hidden=is_hidden, num_records=num_records, least=1),
        low=_metric(item.low, is_hidden=is_hidden, num_records=num_records, least=2),
        high=_metric(item.high, is_hidden=is_hidden, num_records=num_records, least=2),
        limit=item.limit,
        verdict=item.verdict,
    )


def _metric(value: float | None, *, is_hidden: bool, num_records: int, least: int) -> Metric:
    if is_hidden:
        return NoNumber(status="suppressed", reason="few records or patients in the sample")
    if num_records < least:
        return NoNumber(status="undefined", reason=f"fewer than {least} records in the sample")
    return NoNumber(status="infinite", reason="larger than any FP64 number") if value is None else Number(value=value)
