"""Pass 1: every record is read once, and a key of a few dozen bytes is kept of it."""

from __future__ import annotations

from collections import Counter
from typing import BinaryIO

import pyarrow as pa

from sharding.identity import load_key
from sharding.jobs import BlockJob
from sharding.phi_ledger import PhiCounts, phi_of_records, sum_by_department
from sharding.reading import read_block
from sharding.records import key_schema, to_keys, to_records
from sharding.scratch import reusable, write_receipt
from sharding.scratch_documents import Rejects, ScanReceipt


def scan_block(job: BlockJob) -> int:
    """Write a block's key table and its receipt, unless an earlier try has; returns the block's number."""
    path = job.scratch.keys(job.number)
    if reusable(job.scratch, path, ScanReceipt):
        return job.number
    settings, key = job.whole_settings(), load_key(job.key_path)
    rejects: Counter[tuple[str | None, str]] = Counter()
    departments: dict[str, str | None] = {}
    roles_seen: set[str] = set()
    unresolved: Counter[str] = Counter()
    phi: list[dict[str, PhiCounts]] = []
    num_records = 0

    def write(file: BinaryIO) -> None:
        nonlocal num_records
        with pa.ipc.new_file(file, key_schema(job.settings)) as writer:
            for rows in read_block(job):
                records = to_records(rows.table, key, settings)
                writer.write_table(to_keys(records, job.settings))
                if settings.phi_scan:
                    phi.append(phi_of_records(records))
                num_records += records.table.num_rows
                rejects.update(records.rejected)
                rejects.update({(None, reason): count for reason, count in rows.rejected.items()})
                departments.update(records.departments)
                unresolved.update(rows.unresolved + records.unresolved)
                roles_seen.update(rows.roles_seen)

    seal = job.scratch.publish(path, write)
    job.file.check_unchanged()
    ordered = sorted(rejects.items(), key=lambda item: (item[0][0] or "", item[0][1]))
    receipt = ScanReceipt(
        seal=seal,
        num_records=num_records,
        rejects=[Rejects(department=place[0], reason=place[1], count=count) for place, count in ordered],
        departments=departments,
        roles_seen=sorted(roles_seen),
        unresolved=dict(sorted(unresolved.items())),
        phi=sum_by_department(phi),
    )
    write_receipt(job.scratch, path, receipt)
    return job.number
