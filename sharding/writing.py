"""Whose fault it is that something cannot be written: of the place that was named, or of a moment that passes."""

from __future__ import annotations

import os
from pathlib import Path

from schemas.errors import TemporaryError, UsageError
from schemas.seals import TEMPORARY_ERRNOS, label


def unwritable(path: Path, error: OSError) -> TemporaryError | UsageError:
    """What to raise: a full or failing disk may be well later; a closed or read-only place never will by itself."""
    reason = os.strerror(error.errno or 0)
    if error.errno in TEMPORARY_ERRNOS:
        return TemporaryError(f"{label(path)}: {reason}; free the space or mend the disk, then run the command again")
    return UsageError(f"{label(path)}: {reason}; name a folder that can be written to, or mend its permissions")
