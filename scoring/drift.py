"""What the ranks find of the drift of reduced precisions, and what follows from it."""

from __future__ import annotations

from collections.abc import Sequence

from schemas.drift import BandDrift, add_sums, drifts_of
from schemas.errors import DataError
from scoring.resume import RankLedger
from scoring.sync import ControlPlane


def agree_on_drift(plane: ControlPlane, ledger: RankLedger, *, limit: float) -> list[BandDrift]:
    """The drift of every checked band over all ranks, equal on each of them."""
    return drifts_of(add_sums(plane.gather("drifts", ledger.drift)), ledger.policy, limit=limit)


def drifted(drifts: Sequence[BandDrift], limit: float) -> list[BandDrift]:
    """Those beyond a limit."""
    return [found for found in drifts if found.verdict != "undefined" and not _is_within(found.drift, limit)]


def require_small_drift(drifts: Sequence[BandDrift], *, limit: float) -> None:
    """No band drifts beyond the limit.

    Raises:
        DataError: names those that do.
    """
    if found := drifted(drifts, limit):
        raise DataError(
            f"precision check: {'; '.join(item.text for item in found)}; use --on-drift fp32, another --precision in a "
            "new run folder, or a higher --max-drift"
        )


def _is_within(drift: float | None, limit: float) -> bool:
    return drift is not None and abs(drift) <= limit
