"""When a reduced precision drifts too far: the same folder becomes the run that had those bands in fp32 all along.

The new header takes the old one's place in one step, and says what was found. What a kill leaves is sound on either
side of it: before, the old run, which drifts again; after, the new run, among whose partials the old ones are foreign
and thrown away by any resume.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from schemas.documents import read_document
from schemas.drift import BandDrift, Fallback
from schemas.manifests import PARTIALS_FOLDER, RUN_FILE, RunHeader
from schemas.precision import bands_text, in_fp32, policy_of
from scoring.config import ScoringSettings

logger = logging.getLogger("scoring.fallback")


def settings_after(settings: ScoringSettings, found: Sequence[BandDrift], *, asked: ScoringSettings) -> ScoringSettings:
    """The settings with the bands that drift in fp32; tiles are chosen anew, as in any run that begins."""
    bands = in_fp32(settings.precision, [item.band for item in found])
    logger.warning("the drift is over the limit; scored again in %s", bands_text(bands))
    return settings.model_copy(update={"precision": bands, "tile_tokens": asked.tile_tokens})


def fallback_of(asked: ScoringSettings, drifts: Sequence[BandDrift]) -> Fallback:
    """What the header of the new run says of the old one."""
    return Fallback(asked=bands_text(asked.precision), check=asked.precision_check, drift=list(drifts))


def resumed_bands(run: Path, settings: ScoringSettings) -> ScoringSettings:
    """A run that fell back goes on with the bands that it fell back to, where the same is asked for again."""
    if settings.on_drift != "fp32" or not (run / RUN_FILE).is_file():
        return settings
    header = read_document(run / RUN_FILE, RunHeader)
    asked = (bands_text(settings.precision), settings.precision_check)
    if header.fallback is None or (header.fallback.asked, header.fallback.check) != asked:
        return settings
    return settings.model_copy(update={"precision": policy_of(header.fingerprint).bands})


def remove_partials(run: Path) -> None:
    """Throw away what the old run has scored; for rank 0 alone, behind the new header."""
    for path in sorted((run / PARTIALS_FOLDER).glob("rank-*/*")):
        path.unlink(missing_ok=True)
