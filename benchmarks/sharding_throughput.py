"""Sharding speed against Polars' partitioned sink and Dask's own shuffle, side by side in one run on the same notes.

Each contender runs in a process tree of its own, in turns. Counted are CPU seconds (user and system, of all processes
of the tree, interpreter start included), wall seconds, and the peak resident memory of the largest process. MB are 10^6
bytes of note text.

What the contenders do is not the same. Ours hashes every record twice, finds duplicates, counts rejects, balances case
mixes, seals, flushes and reads back every file. Polars' sink and Dask's shuffle only put each department's rows into
Parquet files. Dask's P2P shuffle needs dask.dataframe, hence pandas, which this project does not have; so its other
shuffle is measured: ``dask.bag``'s ``groupby(shuffle="disk")`` on worker processes, and one Parquet file a group.

    python benchmarks/sharding_throughput.py --work FOLDER --records 1000000
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[1]
NUM_DEPARTMENTS = 8
SEED = 7
SECONDS_BETWEEN_LOOKS = 0.25
MB = 1e6
GIB = 1 << 30
CONTENDERS = ("ours-parquet", "ours-csv", "polars", "dask")
MAPPING = ["--id", "note_id", "--text", "text", "--department", "department", "--patient", "patient_id"]
FEATURES = ["--feature", "age_band=age_band", "--feature", "note_type=note_type"]
MOST_TIMES_POLARS = 2.0
LEAST_MB_PER_SECOND = {"ours-parquet": 60.0, "ours-csv": 40.0}
MOST_GIB = 1.0


@dataclass(frozen=True)
class Cost:
    """What a process tree took."""

    cpu_seconds: float
    wall_seconds: float
    peak_bytes: int


def main() -> None:
    """Measure and print; one line a contender, then the ratios."""
    options = _options()
    if options.worker:
        {"polars": _polars, "dask": _dask}[options.worker](options.notes, options.out, options.workers)
        return
    notes, text_bytes = _notes(options.work, options.records)
    print(f"{options.records:,} notes, {text_bytes / MB:,.0f} MB of text, {options.workers} workers", flush=True)
    costs: dict[str, list[Cost]] = {name: [] for name in options.contenders}
    for _ in range(options.repeats):
        for name, found in costs.items():
            found.append(_cost_of(name, notes, options))
            _print_cost(name, found[-1], text_bytes)
    _print_ratios({name: _median(found) for name, found in costs.items()}, text_bytes)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--work", type=Path, default=Path("bench"), help="folder for notes, which are kept, and outputs"
    )
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--contenders", nargs="+", default=list(CONTENDERS), choices=CONTENDERS)
    parser.add_argument("--worker", choices=["polars", "dask"], help=argparse.SUPPRESS)
    parser.add_argument("--notes", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def _notes(work: Path, num_records: int) -> tuple[dict[str, Path], int]:
    """The same notes as Parquet and as CSV, made once, and the bytes of their text."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    paths = {suffix: work / f"notes-{num_records}.{suffix}" for suffix in ("parquet", "csv")}
    work.mkdir(parents=True, exist_ok=True)
    for path in paths.values():
        if not path.exists():
            sample = ["--records", str(num_records), "--departments", str(NUM_DEPARTMENTS), "--seed", str(SEED)]
            command = [sys.executable, "-m", "sharding", "sample", str(path.absolute()), *sample]
            subprocess.run(command, cwd=ROOT, check=True, stdout=sys.stderr)
    with pq.ParquetFile(paths["parquet"]) as file:
        lengths = [
            pc.sum(pc.binary_length(batch.column("text"))).as_py() for batch in file.iter_batches(columns=["text"])
        ]
    return paths, sum(length or 0 for length in lengths)


def _cost_of(name: str, notes: dict[str, Path], options: argparse.Namespace) -> Cost:
    """Run one contender with its input in the page cache and nothing of earlier runs on the disk."""
    source = notes["csv" if name == "ours-csv" else "parquet"].absolute()
    out = (options.work / f"out-{name}").absolute()
    shutil.rmtree(out, ignore_errors=True)
    with source.open("rb") as file:
        while file.read(1 << 24):
            pass
    if name.startswith("ours"):
        command = ["-m", "sharding", "build", str(source), "--out", str(out), *MAPPING, *FEATURES]
        command += ["--workers", str(options.workers)]
    else:
        command = [__file__, "--worker", name, "--notes", str(source), "--out", str(out)]
        command += ["--workers", str(options.workers)]
    try:
        return _measured([sys.executable, *command], {"POLARS_MAX_THREADS": str(options.workers)})
    finally:
        shutil.rmtree(out, ignore_errors=True)


def _measured(command: list[str], environment: dict[str, str]) -> Cost:
    """Run a command and add up what all processes of its tree took.

    The kernel hands the CPU time of a process that was waited for to its parent; one that was not is known from the
    last look at it. The larger of the two sums is taken.
    """
    started = time.perf_counter()
    process = subprocess.Popen(
        command, cwd=ROOT, env={**os.environ, **environment}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    seen: dict[int, float] = {}
    peaks: dict[int, int] = {}
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            break
        _look(process.pid, seen, peaks)
        time.sleep(SECONDS_BETWEEN_LOOKS)
    process.returncode = os.waitstatus_to_exitcode(status)
    errors = process.stderr.read().decode() if process.stderr else ""
    if process.returncode:
        sys.exit(f"{command[1:3]} ended with {process.returncode}: {errors[-2000:]}")
    return Cost(
        cpu_seconds=max(usage.ru_utime + usage.ru_stime, sum(seen.values())),
        wall_seconds=time.perf_counter() - started,
        # Not ``ru_maxrss``: what this process itself held when it started the other counts there too.
        peak_bytes=max(peaks.values()),
    )


def _look(root: int, seen: dict[int, float], peaks: dict[int, int]) -> None:
    """Note CPU seconds and peak memory of every process of a tree, as far as they are still there."""
    try:
        tree = [psutil.Process(root), *psutil.Process(root).children(recursive=True)]
    except psutil.Error:
        return
    for process in tree:
        try:
            times = process.cpu_times()
            status = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii", errors="replace")
        except (psutil.Error, OSError):
            continue
        seen[process.pid] = times.user + times.system
        high = [int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM:")]
        peaks[process.pid] = max([peaks.get(process.pid, 0), *high])  # one that has ended has none any more


def _polars(notes: Path, out: Path, _workers: int) -> None:
    """Each department's rows into Parquet files of a folder, streamed."""
    import warnings

    import polars as pl

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the sink is called unstable
        pl.scan_parquet(notes).sink_parquet(pl.PartitionBy(out, key="department", include_key=True), mkdir=True)
    if not any(out.rglob("*.parquet")):
        sys.exit("polars wrote nothing")


def _dask(notes: Path, out: Path, num_workers: int) -> None:
    """Each department's rows into a Parquet file, by the shuffle of ``dask.bag``."""
    import dask
    import dask.bag
    import pyarrow.parquet as pq

    with pq.ParquetFile(notes) as file:
        num_groups = file.num_row_groups
    out.mkdir(parents=True)
    (out / "partd").mkdir()
    with dask.config.set(scheduler="processes", num_workers=num_workers, temporary_directory=str(out / "partd")):
        rows = dask.bag.from_sequence([(notes, index) for index in range(num_groups)], npartitions=num_groups)
        grouped = rows.map_partitions(_read_groups).groupby(_department, npartitions=num_workers, shuffle="disk")
        num_written = sum(grouped.map(_write_group, out=out).compute())
    with pq.ParquetFile(notes) as file:
        if num_written != file.metadata.num_rows:
            sys.exit(f"dask wrote {num_written} of {file.metadata.num_rows} rows")


def _read_groups(parts: list[tuple[Path, int]]) -> list[dict[str, str | None]]:
    import pyarrow.parquet as pq

    rows: list[dict[str, str | None]] = []
    for path, index in parts:
        with pq.ParquetFile(path) as file:
            rows += file.read_row_group(index).to_pylist()
    return rows


def _department(row: dict[str, str | None]) -> str | None:
    return row["department"]


def _write_group(group: tuple[str, list[dict[str, str | None]]], out: Path) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    name, rows = group
    table = pa.Table.from_pylist(rows, schema=pa.schema([(column, pa.large_string()) for column in rows[0]]))
    pq.write_table(table, out / f"{name.encode().hex()}.parquet", compression="zstd")
    return int(table.num_rows)


def _median(costs: list[Cost]) -> Cost:
    return Cost(
        cpu_seconds=statistics.median(cost.cpu_seconds for cost in costs),
        wall_seconds=statistics.median(cost.wall_seconds for cost in costs),
        peak_bytes=max(cost.peak_bytes for cost in costs),
    )


def _print_cost(name: str, cost: Cost, text_bytes: int) -> None:
    rate = text_bytes / MB / cost.cpu_seconds
    print(
        f"{name:13s} {cost.cpu_seconds:8.1f} CPU s, {cost.wall_seconds:8.1f} s, {rate:7.1f} MB/s per core, "
        f"largest process {cost.peak_bytes / GIB:.2f} GiB",
        flush=True,
    )


def _print_ratios(costs: dict[str, Cost], text_bytes: int) -> None:
    ours = costs.get("ours-parquet")
    if ours and "polars" in costs:
        ratio = ours.cpu_seconds / costs["polars"].cpu_seconds
        print(f"CPU seconds to Polars' bare sink: {ratio:.2f}x (goal at most {MOST_TIMES_POLARS}x)")
    if ours and "dask" in costs:
        ratio = ours.cpu_seconds / costs["dask"].cpu_seconds
        print(f"CPU seconds to Dask's bag shuffle and write: {ratio:.2f}x (goal below 1)")
    for name, least in LEAST_MB_PER_SECOND.items():
        if name in costs:
            rate = text_bytes / MB / costs[name].cpu_seconds
            peak = costs[name].peak_bytes / GIB
            print(
                f"{name}: {rate:.1f} MB/s per core (goal at least {least:.0f}), "
                f"largest process {peak:.2f} GiB (goal at most {MOST_GIB:.0f})"
            )


if __name__ == "__main__":
    main()
