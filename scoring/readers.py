"""Which ranks may read which departments: every node comes with its own keyring, and gets only what that opens."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from schemas.errors import AccessDeniedError
from schemas.folders import Build
from schemas.partials import PartialFile
from scoring.blocks import Audited
from scoring.sync import ControlPlane

# Ranks that may read a department, by its code.
Readers = Mapping[str, Sequence[int]]


def agree_on_readers(build: Build, plane: ControlPlane) -> Readers:
    """Each rank tries its keys, before any byte of a shard is read, and tells the others what they open."""
    mine = [code for code in build.codes if build.may_score(code)]
    granted = plane.gather("grants", mine)
    return {code: [rank for rank, codes in enumerate(granted) if code in codes] for code in build.codes}


def share_of(found: Sequence[PartialFile], rank: int, readers: Readers) -> list[PartialFile]:
    """The partials of earlier launches that a rank verifies; those that no rank can open stay as they are."""
    share = []
    for number, partial in enumerate(found):
        ranks = readers[partial.key.department]
        if ranks and ranks[number % len(ranks)] == rank:
            share.append(partial)
    return share


def require_readers(readers: Readers, codes: Collection[str], *, audited: Audited) -> None:
    """Every department was read by some rank; each that was not is noted.

    Raises:
        AccessDeniedError: lists the others by code.
    """
    lacking = sorted(code for code in codes if not readers[code])
    for code in lacking:
        audited("refuse", code, "denied")
    if lacking:
        raise AccessDeniedError(
            f"{len(lacking)} departments lack a principal who may score them: {', '.join(lacking)}; what is scored is "
            "kept; run again with ranks whose keyrings have them, or have them granted"
        )
