"""What a build or a plan holds, for people and for programs; by opaque code unless names are asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from schemas.balance import Balance
from schemas.folders import Build
from schemas.ledgers import BuildLedger, SideLedger
from sharding.bounds import PLAIN_PER_COMPRESSED
from sharding.departments import UNLISTED_DEPARTMENT
from sharding.phi_ledger import ANY, sum_of_phi
from sharding.sources.adapter import CONFLICTING, ENCOUNTER_FAULTS

if TYPE_CHECKING:
    from sharding.build import Planned


def describe_build(build: Build, *, with_names: bool = False) -> dict[str, Any]:
    """Totals of a build as one JSON object."""
    manifest = build.manifest
    departments = [entry.model_dump(mode="json") for entry in manifest.departments]
    if with_names:
        shown = [entry["code"] for entry in departments if build.may_see_results(entry["code"])]
        departments = [
            {**entry, "name": build.department_name(entry["code"])} if entry["code"] in shown else entry
            for entry in departments
        ]
    return {
        "build_id": manifest.build_id,
        "content_digest": manifest.content_digest,
        "multiset_digest": manifest.multiset_digest,
        "encryption": manifest.encryption,
        "limited_to": manifest.limited_to,
        "features": manifest.features,
        "num_inputs": len(manifest.inputs),
        "num_shards": len(manifest.shards),
        "num_blocks": sum(len(shard.blocks) for shard in manifest.shards),
        "estimated_tokens": sum(shard.estimated_tokens for shard in manifest.shards),
        "ledger": manifest.ledger.model_dump(mode="json"),
        "side_rows": manifest.side_rows.model_dump(mode="json"),
        "unresolved": manifest.unresolved,
        "phi_scanned": manifest.phi_scanned,
        "phi": {kind: count.model_dump() for kind, count in manifest.phi.items()},
        "balance": manifest.balance.model_dump(mode="json"),
        "departments": departments,
    }


def describe_plan(planned: Planned) -> dict[str, Any]:
    """Totals of a plan as one JSON object, and what the build may take by its inputs, and what by the plan."""
    plan = planned.plan
    departments = []
    for code, ledger in sorted(plan.departments.items()):
        own = [shard for shard in plan.shards if shard.department == code]
        tokens = sum(shard.estimated_tokens for shard in own)
        departments.append(
            {"code": code, "num_records": ledger.num_kept, "num_shards": len(own), "estimated_tokens": tokens}
        )
    return {
        "build_id": planned.build_id,
        "multiset_digest": plan.multiset_digest,
        "block_tokens": plan.block_tokens,
        "num_inputs": len(plan.num_read),
        "num_shards": len(plan.shards),
        "expected": asdict(planned.expected),
        "bound": {**asdict(planned.most), "scratch_bytes": planned.most.scratch_bytes},
        "estimated_tokens": sum(shard.estimated_tokens for shard in plan.shards),
        "ledger": plan.ledger.model_dump(mode="json"),
        "side_rows": plan.side_rows.model_dump(mode="json"),
        "unresolved": plan.unresolved,
        "phi_scanned": plan.phi_scanned,
        "phi": {kind: count.model_dump() for kind, count in sum_of_phi(plan.phi.values()).items()},
        "balance": plan.balance.model_dump(mode="json"),
        "departments": departments,
    }


def lines_of(description: dict[str, Any]) -> Iterator[str]:
    """A description as a table."""
    yield f"build {description['build_id']}"
    if description.get("limited_to"):
        yield f"limited to the first {description['limited_to']:,} records in placement order"
    yield from ledger_lines(BuildLedger.model_validate(description["ledger"]))
    yield from side_lines(SideLedger.model_validate(description["side_rows"]))
    yield from unresolved_lines(description["unresolved"])
    yield from phi_lines(description)
    yield ""
    yield f"{'department':<16}{'records':>12}{'shards':>10}{'tokens (est.)':>16}"
    for entry in description["departments"]:
        name = f"  {entry['name']}" if entry.get("name") else ("  (null)" if "name" in entry else "")
        yield (
            f"{entry['code']:<16}{entry['num_records']:>12,}{entry['num_shards']:>10,}"
            f"{entry['estimated_tokens']:>16,}{name}"
        )
    totals = (description["ledger"]["num_kept"], description["num_shards"], description["estimated_tokens"])
    yield f"{'all':<16}{totals[0]:>12,}{totals[1]:>10,}{totals[2]:>16,}"
    yield from balance_lines(Balance.model_validate(description["balance"]))
    yield from expected_lines(description.get("expected"))
    yield from bound_lines(description.get("bound"))


def expected_lines(expected: dict[str, int] | None) -> Iterator[str]:
    """What a build that was only planned is expected to take; nothing for one that is there."""
    if expected is None:
        return
    yield ""
    yield f"{'blocks (est.)':<28}{expected['num_blocks']:>16,}"
    for name, said in (("spill_bytes", "scratch"), ("shard_bytes", "shards"), ("worker_bytes", "memory of a worker")):
        yield f"{f'{said}, bytes (est.)':<28}{expected[name]:>16,}"


def bound_lines(most: dict[str, int] | None) -> Iterator[str]:
    """What a build may take by the sizes of its inputs alone, which is asked for before it begins."""
    if most is None:
        return
    yield ""
    yield "at most, by the inputs' sizes"
    parts = [("scratch_bytes", "scratch"), ("copy_bytes", "  UTF-8 copies"), ("least_copy_bytes", "    at least")]
    parts += [("lookup_bytes", "  lookup tables")]
    parts += [("key_bytes", "  keys"), ("spill_bytes", "  spilled text"), ("shard_bytes", "shards")]
    parts += [("lookup_worker_bytes", "memory for lookup tables")]
    for name, said in parts:
        yield f"{said:<28}{most[name]:>16,}"
    if most["num_compressed"]:
        taken = f"compressed inputs, taken for {PLAIN_PER_COMPRESSED} times as large"
        yield f"{taken}: {most['num_compressed']:,}"


def refusal_lines(refused: dict[str, Any]) -> Iterator[str]:
    """Why a build was refused, and the ledger of what was read."""
    yield f"build {refused['build_id']} was refused"
    yield f"{'limit passed':<28}{refused['limit']:>12}"
    yield f"{'found':<28}{refused['num_found']:>12,}"
    yield f"{'allowed':<28}{refused['num_allowed']:>12,}"
    yield from ledger_lines(BuildLedger.model_validate(refused["ledger"]))
    yield from side_lines(SideLedger.model_validate(refused["side_rows"]))
    yield from unresolved_lines(refused["unresolved"])
    yield from phi_lines(refused)


def purge_lines(result: dict[str, Any]) -> Iterator[str]:
    """What a purge removed, one line a build, and the sum."""
    verb = "would be removed" if result["status"] == "would_purge" else "removed"
    for entry in result["builds"]:
        yield f"{entry['build_id']}  {verb}, {entry['num_bytes']:,} bytes"
    yield f"{len(result['builds'])} builds {verb}, {result['num_bytes']:,} bytes in all"


def balance_lines(balance: Balance) -> Iterator[str]:
    """How even shards are, and how even ranks would be; case mixes by total variation, 0 if they are the same."""
    yield ""
    yield f"{'balance of shards':<17}{'tokens max/mean':>18}{'case mix':>12}{'chi-square':>14}{'df':>10}"
    for entry in balance.departments:
        yield (
            f"{entry.code:<17}{entry.token_max_over_mean:>18.4f}{entry.total_variation:>12.4f}"
            f"{entry.chi_square:>14.2f}{entry.degrees_of_freedom:>10,}"
        )
    yield f"{'balance of ranks':<17}{'tokens max/mean':>18}{'case mix':>12}"
    for rank in balance.ranks:
        yield f"{rank.num_ranks:<17}{rank.token_max_over_mean:>18.4f}{rank.total_variation:>12.4f}"


def ledger_lines(ledger: BuildLedger) -> Iterator[str]:
    """Ledger lines: read = kept + duplicates + rejected, one line each."""
    yield f"{'read':<28}{ledger.num_read:>12,}"
    yield f"{'kept':<28}{ledger.num_kept:>12,}"
    for kind, counts in (("duplicate", ledger.duplicates), ("rejected", ledger.rejected)):
        for reason, count in sorted(counts.items()):
            yield f"{f'{kind}: {reason}':<28}{count:>12,}"


def side_lines(side_rows: SideLedger) -> Iterator[str]:
    """Rows of side files: how many were read, and how many of them not, by reason; nothing where there are none."""
    if side_rows.num_read:
        yield f"{'rows of side files':<28}{side_rows.num_read:>12,}"
    for reason, count in sorted(side_rows.rejected.items()):
        yield f"{f'side row: {reason}':<28}{count:>12,}"


def phi_lines(description: Mapping[str, Any]) -> Iterator[str]:
    """Records with the form of an identifier, and findings, by kind; nothing if none was looked for."""
    if not description["phi_scanned"]:
        return
    found = {ANY: {"records": 0, "findings": 0}, **description["phi"]}
    for kind, count in sorted(found.items()):
        yield f"{f'identifiers: {kind}':<28}{count['records']:>12,} records{count['findings']:>12,} findings"


def unresolved_lines(unresolved: Mapping[str, int]) -> Iterator[str]:
    """Records for which something is not known, and those for which side files told something wrong, by what."""
    for name, count in sorted(unresolved.items()):
        is_itself = name in (UNLISTED_DEPARTMENT, *ENCOUNTER_FAULTS) or name.startswith(CONFLICTING)
        yield f"{name if is_itself else f'{name} unknown':<28}{count:>12,}"
