"""The report as a value: figures from verified records, and everything that says what they stand for."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from aggregate.collect import Collected
from aggregate.config import DEFAULT_MIN_CELL, ReportSettings
from aggregate.crossings import available_columns
from aggregate.drift import shown_drifts
from aggregate.figures import figures, macro, micro
from aggregate.labels import department_labels, labelled
from aggregate.method import METHOD
from aggregate.parts import loss_splits
from aggregate.runs import Run
from aggregate.strata import Cell, Key, cells, require_conserved
from aggregate.suppression import hidden_keys
from schemas.canonical import canonical_json
from schemas.folders import Build
from schemas.manifests import COMMITTED_FILE, MANIFEST_FILE, RUN_FILE
from schemas.report import Check, Content, Crossing, Figures, Ledger, Provenance, Report, RunLedger, Stratum, Suppressed
from schemas.seals import seal_file
from schemas.tally import Tally

TITLE = "Perplexity report"


def make_report(
    build: Build, run: Run, *, collected: Collected, crossings: Sequence[tuple[str, ...]], settings: ReportSettings
) -> Report:
    """Compute every figure and gather what an auditor needs beside them.

    Args:
        build: The build, verified.
        run: The run, verified.
        collected: From ``aggregate.collect.collect`` on the two.
        crossings: From ``aggregate.crossings.parse_crossings``.
        settings: What is shown.

    Raises:
        IntegrityError: a crossing does not add up to the whole.
    """
    columns = available_columns(build.manifest.features)
    hidden = hidden_keys(
        collected.records, [[columns[name] for name in names] for names in crossings], min_cell=settings.min_cell
    )
    whole = Suppressed() if hidden[0] else figures(whole_cell(collected))
    departments = department_labels(build, names=settings.department_names)
    tables = [
        make_crossing(collected, {name: columns[name] for name in names}, keys, whole=whole, departments=departments)
        for names, keys in zip(crossings, hidden[1:], strict=True)
    ]
    checks = {**collected.checks, "crossings: strata that add up to the whole, bit for bit": len(tables)}
    tied, free = split_fingerprint(build, run)
    return Report(
        title=TITLE,
        model=run.header.model_name,
        min_cell=settings.min_cell,
        precisions=shown_precisions(collected.precisions, hidden, settings.min_cell),
        drift=shown_drifts(
            collected.drift,
            collected.num_checked_patients,
            is_hidden=bool(hidden[0]),
            min_cell=settings.min_cell,
        ),
        marks=[*marks(build, run), *shown(settings)],
        whole=whole,
        crossings=tables,
        splits=loss_splits(collected, whole, min_cell=settings.min_cell),
        ledger=Suppressed() if hidden[0] else ledger(build, collected),
        checks=[Check(check=name, count=Suppressed() if hidden[0] else count) for name, count in checks.items()],
        method=list(METHOD),
        fingerprint=free,
        selftest=run.header.selftest,
        content=content(build, run),
        provenance=provenance(build, run, tied),
    )


def whole_cell(collected: Collected) -> Cell:
    """All records as one stratum; it exists even where there is no record."""
    found = cells(collected.records, ())
    require_conserved(found, collected.total, where="of no column")
    return found[0] if found else Cell((), Tally(), num_skipped=0, num_patients=0, num_without_patient=0)


def make_crossing(
    collected: Collected,
    columns: Mapping[str, str],
    hidden: Collection[Key],
    *,
    whole: Figures | Suppressed,
    departments: Mapping[str, str],
) -> Crossing:
    """All strata of one crossing, ordered by label; those with a hidden key without their figures."""
    names = list(columns)
    found = cells(collected.records, list(columns.values()))
    require_conserved(found, collected.total, where=",".join(names))
    strata = [
        Stratum(
            values=labelled(names, cell.key, departments), figures=Suppressed() if cell.key in hidden else figures(cell)
        )
        for cell in found
    ]
    strata.sort(key=lambda stratum: [(item.value is None, item.label, item.value or "") for item in stratum.values])
    average = macro([stratum.figures for stratum in strata])
    return Crossing(columns=names, micro=micro(whole), macro=average, strata=strata)


def marks(build: Build, run: Run) -> list[str]:
    """What a reader must know before any figure."""
    found = []
    if build.manifest.limited_to is not None:
        found.append(f"build limited to {build.manifest.limited_to:,} records")
    found += run.header.marks
    if build.manifest.encryption == "none":
        found.append("shards not encrypted")
    return found


def shown(settings: ReportSettings) -> list[str]:
    """What a report shows that it does not show by default."""
    found = []
    if settings.min_cell < DEFAULT_MIN_CELL:
        found = [f"small cells shown{f', from {settings.min_cell} on' if settings.min_cell > 1 else ''}"]
    return [*found, "department names shown"] if settings.department_names else found


def shown_precisions(
    counts: Mapping[str, int], hidden: Sequence[Collection[Key]], min_cell: int
) -> dict[str, int | Suppressed]:
    """How many records were computed in each precision, where that tells of no few records and of nothing hidden."""
    small = any(0 < count < min_cell for count in counts.values()) or (len(counts) > 1 and any(hidden))
    return {name: Suppressed() if small or hidden[0] else count for name, count in counts.items()}


def ledger(build: Build, collected: Collected) -> Ledger:
    """Every record from the input files to this report."""
    num_sharded = sum(shard.num_records for shard in build.manifest.shards)
    num_scored = collected.total.num_records
    return Ledger(
        build=build.manifest.ledger,
        run=RunLedger(
            num_sharded=num_sharded,
            num_scored=num_scored,
            skipped=collected.skipped,
            num_beyond_limit=num_sharded - num_scored - sum(collected.skipped.values()),
        ),
        num_reported=num_scored,
    )


def content(build: Build, run: Run) -> Content:
    """Digests that are equal for equal records and scores, however they came in."""
    scores = {f"{entry.shard_id}.{entry.block:05d}": entry.content_digest for entry in run.manifest.partials}
    return Content(
        build_content_digest=build.manifest.content_digest,
        build_multiset_digest=build.manifest.multiset_digest,
        scores_digest=_digest(scores),
    )


def provenance(build: Build, run: Run, fingerprint: dict[str, Any]) -> Provenance:
    """Where the figures came from: ids, the build's settings, and the seals of all files that do not tell the ranks."""
    manifest = build.manifest
    partials = {
        f"{entry.shard_id}.{entry.block:05d}": entry.seal.model_dump(mode="json") for entry in run.manifest.partials
    }
    return Provenance(
        build_id=manifest.build_id,
        run_id=run.header.run_id,
        exactppl_version=manifest.exactppl_version,
        num_inputs=len(manifest.inputs),
        inputs_digest=manifest.inputs_digest,
        config=manifest.config,
        config_digest=manifest.config_digest,
        fingerprint=fingerprint,
        seals={
            MANIFEST_FILE: build.commit.manifest,
            COMMITTED_FILE: seal_file(build.folder / COMMITTED_FILE),
            RUN_FILE: run.manifest.header,
        },
        shards_digest=_digest({shard.shard_id: shard.seal.model_dump(mode="json") for shard in manifest.shards}),
        partials_digest=_digest(partials),
    )


def split_fingerprint(build: Build, run: Run) -> tuple[dict[str, Any], dict[str, Any]]:
    """The run's fingerprint, as what names this very build and what would be equal for another build of the records."""
    manifest, seal = build.manifest, build.commit.manifest
    names = [manifest.build_id, manifest.config_digest, manifest.inputs_digest, seal.sha256, seal.xxh3_128]
    tied: dict[str, Any] = {}
    free: dict[str, Any] = {}
    for key, value in run.header.fingerprint.items():
        text = canonical_json(value).decode()
        (tied if any(name in text for name in names) else free)[key] = value
    return tied, free


def _digest(value: Any) -> str:
    return hashlib.sha256(canonical_json(value)).hexdigest()
