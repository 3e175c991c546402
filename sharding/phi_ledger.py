"""Counts of identifiers by kind, added up over blocks and departments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow.compute as pc

from schemas.ledgers import PhiCount
from sharding.phi import Found, count_identifiers
from sharding.records import Records

ANY = "any"

PhiCounts = dict[str, PhiCount]


def phi_of_records(records: Records) -> dict[str, PhiCounts]:
    """Counts by department code; of all readable records, since duplicates are not known yet."""
    counts: dict[str, PhiCounts] = {}
    texts = records.table.column("text")
    for index, code in enumerate(records.codes.dictionary.to_pylist()):
        own = texts.filter(pc.equal(records.codes.indices, index))
        found = count_identifiers(text.as_py() for text in own)
        if found.num_any:
            counts[code] = _counts(found)
    return counts


def sum_of_phi(parts: Iterable[Mapping[str, PhiCount]]) -> PhiCounts:
    """Counts of all parts, by kind."""
    total: PhiCounts = {}
    for part in parts:
        for kind, count in part.items():
            so_far = total.get(kind, PhiCount(findings=0, records=0))
            total[kind] = PhiCount(findings=so_far.findings + count.findings, records=so_far.records + count.records)
    return dict(sorted(total.items()))


def sum_by_department(parts: Iterable[Mapping[str, PhiCounts]]) -> dict[str, PhiCounts]:
    """Counts of all parts, by department code and kind."""
    lots: dict[str, list[PhiCounts]] = {}
    for part in parts:
        for code, counts in part.items():
            lots.setdefault(code, []).append(counts)
    return {code: sum_of_phi(lots[code]) for code in sorted(lots)}


def _counts(found: Found) -> PhiCounts:
    kinds = {kind: PhiCount(findings=found.findings[kind], records=found.records[kind]) for kind in found.records}
    return {**kinds, ANY: PhiCount(findings=found.findings.total(), records=found.num_any)}
