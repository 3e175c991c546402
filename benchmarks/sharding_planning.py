"""Time and memory of planning alone: duplicates, placement, blocks, balance and assignments of many keys, one process.

The key tables that pass 1 would have written are made first, by a process of its own: random ids, lognormal lengths, a
hundred departments of very unequal size, and one record in 400 that is there twice. Then ``make_plan`` runs on them in
a fresh process, from reading the keys to the sealed plan.

    python benchmarks/sharding_planning.py --work FOLDER --records 10000000
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from sharding.config import ShardingSettings

ROOT = Path(__file__).parents[1]
ROWS_PER_BLOCK = 100_000
NUM_DEPARTMENTS = 100
STRATA_PER_DEPARTMENT = 60
EVERY_REPEATED = 400
MEDIAN_TOKENS, SIGMA = 450, 0.9
NOTES_PER_PATIENT = 4
MOST_SECONDS = 60.0
MOST_GIB = 2.0
GIB = 1 << 30


def main() -> None:
    """Make the keys, plan them, and print seconds and peak memory."""
    options = _options()
    if options.step:
        print(json.dumps({"make": _make, "plan": _plan}[options.step](options)))
        return
    shutil.rmtree(options.work / "planning", ignore_errors=True)
    made = _in_a_process(options, "make")
    print(f"{options.records:,} keys in {made['num_blocks']:,} blocks, group = {options.group}", flush=True)
    found = _in_a_process(options, "plan")
    shutil.rmtree(options.work / "planning")
    print(
        f"planned {found['num_kept']:,} records onto {found['num_shards']:,} shards in {found['seconds']:.1f} s "
        f"(goal below {MOST_SECONDS:.0f} at 10 million), peak memory {found['peak_bytes'] / GIB:.2f} GiB "
        f"(goal below {MOST_GIB:.0f})"
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--work", type=Path, default=Path("bench"), help="folder for the key tables; removed afterwards"
    )
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--group", choices=["none", "patient"], default="none")
    parser.add_argument("--step", choices=["make", "plan"], help=argparse.SUPPRESS)
    return parser.parse_args()


def _in_a_process(options: argparse.Namespace, step: str) -> dict[str, Any]:
    command = [sys.executable, str(Path(__file__).absolute()), "--step", step, "--work", str(options.work.absolute())]
    command += ["--records", str(options.records), "--group", options.group]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    outcome: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return outcome


def _settings(group: str) -> ShardingSettings:
    from sharding.config import ShardingSettings

    columns = {"id": "id", "text": "text", "department": "department", "patient": "patient"}
    return ShardingSettings.model_validate({"columns": columns, "group": group})


def _scratch(work: Path) -> Any:
    from sharding.scratch import Scratch

    return Scratch(work / "planning")


def _make(options: argparse.Namespace) -> dict[str, Any]:
    """Write survey, key tables and receipts as pass 1 does."""
    import pyarrow as pa

    from schemas.documents import write_document
    from schemas.seals import publish_with, seal_bytes
    from sharding.records import key_schema
    from sharding.scratch import receipt_path
    from sharding.scratch_documents import ScanReceipt, Survey, SurveyedBlock, SurveyedFile

    settings, scratch = _settings(options.group), _scratch(options.work)
    schema = key_schema(settings)
    numbers = np.random.default_rng(1).choice(2**48, NUM_DEPARTMENTS, replace=False)
    names = {f"d-{number:012x}": f"Department {index}" for index, number in enumerate(numbers.tolist())}
    blocks: list[SurveyedBlock] = []
    for block, columns in enumerate(_columns(options.records, numbers)):
        table = pa.table([_array(columns[field.name], field.type) for field in schema], schema=schema)
        path = scratch.keys(block)

        def write(file: Any, table: pa.Table = table) -> None:
            with pa.ipc.new_file(file, schema) as writer:
                writer.write_table(table)

        seal = publish_with(path, write)
        receipt = ScanReceipt(
            seal=seal,
            num_records=table.num_rows,
            rejects=[],
            departments=names,
            roles_seen=sorted(settings.columns.by_role),
            unresolved={},
        )
        write_document(receipt_path(path), receipt, replace=True)
        blocks.append(SurveyedBlock(file=0, start=block, stop=block + 1, num_bytes=1))
    survey = Survey(files=[SurveyedFile(seal=seal_bytes(b""), utf8=None)], blocks=blocks)
    write_document(scratch.survey(), survey)
    return {"num_blocks": len(blocks)}


def _columns(num_records: int, departments: np.ndarray[Any, Any]) -> Iterator[dict[str, Any]]:
    """Keys of all records, block by block."""
    draws = np.random.default_rng(0)
    shares = 1.0 / np.arange(1, len(departments) + 1)
    for start in range(0, num_records, ROWS_PER_BLOCK):
        size = min(ROWS_PER_BLOCK, num_records - start)
        owner = draws.choice(len(departments), size, p=shares / shares.sum())
        stratum = owner * STRATA_PER_DEPARTMENT + draws.integers(0, STRATA_PER_DEPARTMENT, size)
        patient = (np.arange(start, start + size) // NOTES_PER_PATIENT).astype("<u8")
        columns = {
            "record_id": draws.integers(0, 256, (size, 16), dtype=np.uint8),
            "row_digest": draws.integers(0, 256, (size, 16), dtype=np.uint8),
            "text_hash": draws.integers(0, 2**63, size, dtype=np.uint64),
            "stratum": stratum.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15),
            "department": departments[owner].astype(np.uint64),
            "estimated_tokens": draws.lognormal(np.log(MEDIAN_TOKENS), SIGMA, size).astype(np.int64) + 1,
            "group": np.concatenate([patient[:, None], patient[:, None]], axis=1).view(np.uint8),
            "time": draws.integers(0, 2**50, size),
        }
        twice = np.arange(EVERY_REPEATED, size, EVERY_REPEATED)
        for column in columns.values():
            column[twice] = column[twice - 1]
        yield columns


def _array(values: np.ndarray[Any, Any], kind: Any) -> Any:
    import pyarrow as pa

    if values.ndim == 1:
        return pa.array(values, kind)
    return pa.FixedSizeBinaryArray.from_buffers(kind, len(values), [None, pa.py_buffer(values.tobytes())])


def _plan(options: argparse.Namespace) -> dict[str, Any]:
    from schemas.documents import read_document
    from sharding.plan import make_plan
    from sharding.scratch_documents import Survey

    scratch = _scratch(options.work)
    survey = read_document(scratch.survey(), Survey)
    started = time.perf_counter()
    plan = make_plan(survey, _settings(options.group), scratch)
    seconds = time.perf_counter() - started
    status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    peak = next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM:"))
    return {
        "seconds": seconds,
        "peak_bytes": peak,
        "num_kept": plan.ledger.num_kept,
        "num_shards": len(plan.shards),
    }


if __name__ == "__main__":
    main()
