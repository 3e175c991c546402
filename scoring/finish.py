"""The end of a run: exact totals that every rank has checked, and the document that seals all partials."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from pathlib import Path
from types import MappingProxyType

from schemas.access import Access
from schemas.audit_logs import heads_of, rank_log
from schemas.documents import write_document
from schemas.errors import DataError, IntegrityError, TemporaryError
from schemas.manifests import COMPLETE_FILE, RUN_FILE, RunManifest
from schemas.parts import PartTally, kind_of, merge_parts
from schemas.seals import seal_file
from schemas.tables import STATUS_NON_FINITE
from schemas.tally import Tally
from schemas.totals import RunTotals, part_totals
from scoring.resume import RankLedger
from scoring.sync import ControlPlane

NO_PARTS: Mapping[str, PartTally] = MappingProxyType({})


def finish(run: Path, plane: ControlPlane, ledger: RankLedger, *, run_id: str, max_quarantined: float) -> RunManifest:
    """Reduce the ranks' ledgers to what seals the run.

    Args:
        run: Run folder.
        plane: The other ranks.
        ledger: What this rank answers for.
        run_id: Of the run.
        max_quarantined: Share of records with a non-finite loss that is tolerated.

    Returns:
        The manifest, equal on every rank; ``seal_run`` writes it.

    Raises:
        DataError: too many records are quarantined; the run is left unsealed.
        IntegrityError: the reduction is not exact on some rank.
        TemporaryError: a rank was lost.
    """
    total = plane.sum_exactly(ledger.tally)
    ledgers = plane.gather("ledgers", (ledger.entries, ledger.skipped, ledger.parts))
    skipped = {status: sum(part[status] for _, part, _ in ledgers) for status in ledger.skipped}
    parts = reduce(merge_parts, (part for _, _, part in ledgers))
    _check_parts(total, parts)
    require_few_quarantined(total.num_records, skipped, max_quarantined)
    entries = [entry for part, _, _ in ledgers for entry in part]
    # One rank reads and writes: on a shared file system the others might not yet see what it has written.
    leads = plane.identity.rank == 0
    [header, *_] = plane.gather("header-seal", seal_file(run / RUN_FILE) if leads else None)
    if header is None:
        raise TemporaryError("totals: rank 0 has sent no seal of the header; run the same command again")
    return RunManifest(
        run_id=run_id,
        header=header,
        totals=run_totals(total, skipped, parts),
        partials=sorted(entries, key=lambda entry: (entry.shard_id, entry.block)),
        num_ranks=plane.identity.num_ranks,
    )


def seal_run(run: Path, manifest: RunManifest, access: Access | None) -> None:
    """Write the run's last file, behind its signature if there is a key to sign with."""
    path = run / COMPLETE_FILE
    if access is not None:
        rank_log(run, 0, access).append("score", manifest.run_id, "done")
        manifest = manifest.model_copy(update={"audit": heads_of(run)})
        access.publish_beside(path, manifest)
    else:
        write_document(path, manifest, replace=True)


def run_totals(total: Tally, skipped: dict[str, int], parts: Mapping[str, PartTally] = NO_PARTS) -> RunTotals:
    """A tally, the skipped records and the parts of the losses as they stand in the document."""
    return RunTotals(
        loss_nats=dict(total.loss_nats.to_json()),
        num_tokens=total.num_tokens,
        num_words=total.num_words,
        num_bytes=total.num_bytes,
        num_records=total.num_records,
        skipped=skipped,
        parts=part_totals(parts),
    )


def _check_parts(total: Tally, parts: Mapping[str, PartTally]) -> None:
    for kind in dict.fromkeys(map(kind_of, parts)):
        of_kind = reduce(PartTally.merge, (part for name, part in parts.items() if kind_of(name) == kind))
        if (of_kind.loss_nats, of_kind.num_tokens) != (total.loss_nats, total.num_tokens):
            raise IntegrityError(f"totals: parts by {kind} do not add up to the whole; report this as a bug")


def require_few_quarantined(num_scored: int, skipped: Mapping[str, int], max_quarantined: float) -> None:
    """The share of records with a non-finite loss is tolerated.

    Raises:
        DataError: it is not.
    """
    num_quarantined = skipped.get(STATUS_NON_FINITE, 0)
    num_records = num_scored + sum(skipped.values())
    if num_quarantined > max_quarantined * num_records:
        raise DataError(
            f"{num_quarantined} of {num_records} records have a NaN or infinite loss, at most {max_quarantined:g} of "
            f"them may; their ids stand in the partials with status {STATUS_NON_FINITE}; check the model, or raise "
            "--max-quarantined"
        )
