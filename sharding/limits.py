"""Whether what pass 1 found may become a build; if not, the ledger is written down all the same, beside the builds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from schemas.closed import make_closed
from schemas.documents import write_document
from schemas.errors import DataError
from schemas.ledgers import BuildLedger, PhiCount
from schemas.manifests import Refusal, RefusalLimit
from schemas.seals import label, wrapped_write
from sharding.config import ShardingSettings, allowed
from sharding.departments import UNLISTED_DEPARTMENT
from sharding.intended import INTENDED
from sharding.phi_ledger import ANY
from sharding.scratch import Scratch
from sharding.side_rows import SideRows, said_of_rejects, whole_of
from sharding.sources.adapter import DEPARTMENT
from sharding.sources.source import UNDECODABLE

OVER_LIMIT_REASON = "over_limit"


@dataclass(frozen=True, slots=True)
class Counted:
    """What pass 1 counted.

    Attributes:
        ledger: Of all records.
        sides: Of each side file.
        unresolved: Records with something unknown, by what.
        num_conflicts: Records with the id of another record and another text.
        phi: What has the form of an identifier, by kind; in departments of which records are kept.
    """

    ledger: BuildLedger
    sides: Sequence[SideRows]
    unresolved: Counter[str]
    num_conflicts: int
    phi: dict[str, PhiCount] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Breach:
    """A limit that was passed, and the words for it."""

    limit: RefusalLimit
    num_found: int
    num_allowed: int
    words: str


def check_limits(counted: Counted, settings: ShardingSettings, scratch: Scratch) -> None:
    """All limits are kept, or the ledger is written to ``CORPUS/refused/<build_id>.json``.

    Raises:
        DataError: names the first limit that was passed, and the file.
    """
    breach = next(breaches(counted, settings), None)
    if breach is None:
        return
    path = scratch.refusal()
    refusal = Refusal(
        build_id=path.stem,
        limit=breach.limit,
        num_found=breach.num_found,
        num_allowed=breach.num_allowed,
        ledger=counted.ledger,
        side_rows=whole_of(counted.sides),
        unresolved=dict(sorted(counted.unresolved.items())),
        phi_scanned=settings.phi_scan,
        phi=counted.phi,
    )
    try:
        make_closed(path.parent)
    except OSError as error:
        raise wrapped_write(path, error) from None
    write_document(path, refusal, replace=True)
    raise DataError(f"{breach.words}; the ledger is in {label(path)}")


def breaches(counted: Counted, settings: ShardingSettings) -> Iterator[Breach]:
    """The limits that were passed, in a fixed order."""
    if counted.num_conflicts and settings.on_conflict == "fail":
        words = (
            f"inputs: {counted.num_conflicts} records have the id of another record with another text; "
            "map a column that is unique per note to --id, or keep one of each with --on-conflict keep"
        )
        yield Breach("on_conflict", counted.num_conflicts, 0, words)
    yield from _rejects(counted.ledger, settings)
    yield from _side_rejects(counted.sides, settings)
    num_unlisted = counted.unresolved[UNLISTED_DEPARTMENT]
    if num_unlisted and settings.on_unknown == "fail":
        yield Breach("on_unknown", num_unlisted, 0, _unlisted(num_unlisted, counted.unresolved[DEPARTMENT]))
    yield from _phi(counted, settings)
    if not counted.ledger.num_kept:
        words = f"inputs: no record is left to write ({said(counted.ledger)}); check the inputs and the column mapping"
        yield Breach("num_kept", 0, 0, words)


def said(ledger: BuildLedger) -> str:
    """A ledger in one line."""
    reasons = [("duplicate", ledger.duplicates), ("rejected", ledger.rejected)]
    parts = [f"{count} {kind} {name}" for kind, counts in reasons for name, count in sorted(counts.items())]
    return f"{ledger.num_read} read = {ledger.num_kept} kept" + "".join(f" + {part}" for part in parts)


def _rejects(ledger: BuildLedger, settings: ShardingSettings) -> Iterator[Breach]:
    num_intended = sum(count for reason, count in ledger.rejected.items() if reason in INTENDED)
    num_rejected = sum(ledger.rejected.values()) - num_intended - ledger.rejected.get(OVER_LIMIT_REASON, 0)
    num_allowed = settings.allowed_rejects(ledger.num_read - num_intended)
    if num_rejected > num_allowed:
        cure = f"set --encoding (it is {settings.encoding}), " if ledger.rejected.get(UNDECODABLE) else ""
        words = (
            f"inputs: {num_rejected} records rejected, at most {settings.max_rejects} are allowed ({said(ledger)}); "
            f"{cure}mend the inputs, or raise --max-rejects"
        )
        yield Breach("max_rejects", num_rejected, num_allowed, words)


def _side_rejects(sides: Sequence[SideRows], settings: ShardingSettings) -> Iterator[Breach]:
    whole = whole_of(sides)
    num_rejected, num_allowed = sum(whole.rejected.values()), settings.allowed_rejects(whole.num_read)
    if num_rejected > num_allowed:
        words = said_of_rejects(sides, settings, whole=whole)
        yield Breach("max_rejects_of_side_rows", num_rejected, num_allowed, words)


def _phi(counted: Counted, settings: ShardingSettings) -> Iterator[Breach]:
    if settings.max_phi is None or ANY not in counted.phi:
        return
    num_found, ledger = counted.phi[ANY].records, counted.ledger
    num_scanned = ledger.num_kept + sum(ledger.duplicates.values()) + ledger.rejected.get(OVER_LIMIT_REASON, 0)
    num_allowed = allowed(settings.max_phi, num_scanned)
    if num_found > num_allowed:
        words = (
            f"inputs: {num_found} of {num_scanned} records hold what has the form of an identifier, at most "
            f"{settings.max_phi} are allowed; de-identify the inputs, or raise --max-phi"
        )
        yield Breach("max_phi", num_found, num_allowed, words)


def _unlisted(num_unlisted: int, num_untold: int) -> str:
    others = f" (for {num_untold} more the side files tell none, which is no failure)" if num_untold else ""
    return (
        f"inputs: {num_unlisted} records have a department that is in no entry of [departments]{others}; "
        "add its spelling, or give --on-unknown keep or unknown"
    )
