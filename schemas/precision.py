"""In which precision a record is computed: by its own length alone, so that no neighbour and no rank can change it.

A policy is written ``fp32:512,mixed``: records of up to 512 positions in fp32, longer ones in bf16 autocast.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from pydantic import Field

from schemas.documents import Value

Precision = Literal["fp32", "fp64", "tf32", "mixed", "bf16", "fp16"]
REDUCED = frozenset({"tf32", "mixed", "bf16", "fp16"})
_DRAW_BYTES = 8


class Band(Value):
    """Records of one range of lengths.

    Attributes:
        compute: Their precision.
        up_to: Their most positions, prefix included; None for the last band, which is open.
    """

    compute: Precision
    up_to: int | None = Field(default=None, ge=1)


@dataclass(frozen=True, slots=True)
class PrecisionPolicy:
    """All bands, ascending, and the share of the records of reduced bands that are computed in fp32 too."""

    bands: tuple[Band, ...]
    check: float = 0.0

    def band_of(self, num_positions: int) -> int:
        """The number of the band of a record with so many positions, prefix included."""
        limits = (band.up_to for band in self.bands)
        return next(number for number, up_to in enumerate(limits) if up_to is None or num_positions <= up_to)

    def is_checked(self, number: int) -> bool:
        """Whether records of a band are sampled."""
        return self.check > 0 and self.bands[number].compute in REDUCED

    @property
    def precisions(self) -> list[Precision]:
        """Every precision that is computed in, once, in the order of the bands; that of the check last."""
        checks: list[Precision] = ["fp32"] if self.checked_bands else []
        return list(dict.fromkeys([*(band.compute for band in self.bands), *checks]))

    @property
    def checked_bands(self) -> list[int]:
        """Numbers of the bands that are sampled."""
        return [number for number in range(len(self.bands)) if self.is_checked(number)]


def band_items(text: str) -> list[dict[str, Any]]:
    """``fp32:512,mixed`` as the fields of its bands; whether they make sense is not looked at."""
    parts = [part.strip().partition(":") for part in text.split(",")]
    return [{"compute": name.strip()} | ({"up_to": limit.strip()} if colon else {}) for name, colon, limit in parts]


def require_order(bands: Sequence[Band]) -> None:
    """Bands ascend and the last one alone is open.

    Raises:
        ValueError: names every fault.
    """
    limits = [band.up_to for band in bands]
    faults = [] if limits else ["no band; name a precision"]
    if limits and limits[-1] is not None:
        faults.append(f"the last band ends at {limits[-1]}; let it have no up_to")
    if num_open := limits[:-1].count(None):
        faults.append(f"{num_open} bands before the last one are open; give each an up_to")
    closed = [limit for limit in limits if limit is not None]
    faults += [
        f"{later} follows {earlier}; let up_to ascend" for earlier, later in pairwise(closed) if later <= earlier
    ]
    if faults:
        raise ValueError("; ".join(faults))


def merged(bands: Sequence[Band]) -> tuple[Band, ...]:
    """Ordered bands, of which no two neighbours have the same precision: one way to say each policy."""
    kept = [band for band, after in pairwise(bands) if band.compute != after.compute]
    return (*kept, bands[-1])


def bands_text(bands: Sequence[Band]) -> str:
    """The policy as it is written; the inverse of ``band_items``."""
    return ",".join(band.compute if band.up_to is None else f"{band.compute}:{band.up_to}" for band in bands)


def in_fp32(bands: Sequence[Band], numbers: Collection[int]) -> tuple[Band, ...]:
    """The policy with the bands of these numbers in fp32."""
    changed = [Band(compute="fp32", up_to=band.up_to) if at in numbers else band for at, band in enumerate(bands)]
    return merged(changed)


def policy_of(fingerprint: Mapping[str, Any]) -> PrecisionPolicy:
    """The policy of a run; without bands where the fingerprint tells of none.

    Raises:
        ValueError: the fingerprint holds no policy that makes sense.
    """
    compute = fingerprint.get("compute", {})
    if "precision" not in compute:
        return PrecisionPolicy(())
    bands = [Band.model_validate(item) for item in band_items(str(compute["precision"]))]
    require_order(bands)
    return PrecisionPolicy(tuple(bands), check=float(compute.get("precision_check") or 0.0))


def is_sampled(record_id: bytes, share: float) -> bool:
    """Whether a record is in the sample of this share: by its id alone, and a larger sample holds a smaller one."""
    digest = hashlib.blake2b(record_id, digest_size=_DRAW_BYTES, person=b"precision-check").digest()
    return int.from_bytes(digest, "big") < int(share * 2 ** (8 * _DRAW_BYTES))
