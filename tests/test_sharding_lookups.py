"""Lookup tables are made in bounded memory and are what they would be if all rows were in memory at once."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.errors import IntegrityError
from sharding.inputs import SourceFile
from sharding.lookup_rows import RowRuns, RunSizes
from sharding.lookups import LookupJob, SideFile, make_lookups, open_lookups
from sharding.permit import grant
from sharding.scratch import SUBFOLDERS, Scratch
from sharding.sources import mimic3, mimic4, omop
from sharding.sources.families import FileKind, TableFamily
from sharding.sources.keyed import KEY, hash_of
from tests.builds import csv_bytes

SIZES = st.builds(RunSizes, st.integers(50, 400), st.integers(1, 400), st.integers(1, 5))
TIMES = ("", "2150-01-02 03:00:00", "2150-01-02 05:00:00", "2150-01-03", "x")
IDS = ("", "1", "2", "02", "3.0")
POOLS = {
    **dict.fromkeys(("transfertime", "intime", "outtime"), TIMES),
    **dict.fromkeys(("curr_service", "careunit", "curr_careunit", "care_site_name", "concept_name"), ("", "A", "Ward")),
    **dict.fromkeys(("icd_code", "icd9_code"), ("I10", "A419", "4019", "x")),
    "eventtype": ("", "ED", "discharge"),
    "gender": ("", "M", "F"),
    "dob": ("", "2101-02-03", "2101"),
    "icd_version": ("9", "10"),
}
FAMILIES = (mimic3.ADAPTER, mimic4.ADAPTER, omop.ADAPTER)
Cells = list[tuple[str, ...]]

# Services and diagnoses of MIMIC-IV, 2 million rows, of which peak memory was 850 MiB when all were in memory at once.
NUM_STAYS = 400_000
MAX_GROWTH_MIB = 420
MAKE = """
import sys
from pathlib import Path
from tests.test_sharding_lookups import looked_up, SideFile
from sharding.inputs import SourceFile
from sharding.sources import mimic4
from dataclasses import replace

def peak_mib():
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) // 1024

folder = Path(sys.argv[1])
sides = []
for use in ("services", "diagnoses_icd"):
    path = folder / f"{use}.csv"
    columns = path.open().readline().strip().split(",")
    sides.append(SideFile(replace(SourceFile.found(path, "csv"), use=use), path, {name: name for name in columns}))
before = peak_mib()
tables = looked_up(folder / "scratch", mimic4.ADAPTER, sides)
print(tables["services"].num_rows, tables["chapters"].num_rows, tables["owners"].num_rows, peak_mib() - before)
"""


def scratch_at(folder: Path) -> Scratch:
    """Scratch in which tasks may write."""
    scratch = Scratch(folder)
    for name in SUBFOLDERS:
        (folder / name).mkdir(parents=True, exist_ok=True)
    grant(folder, scratch.word)
    return scratch


def looked_up(
    folder: Path, family: TableFamily, sides: list[SideFile], **options: int | RunSizes
) -> dict[str, pa.Table]:
    """The lookup tables that are made of side files, on the disk."""
    job = LookupJob(family.name, sides, scratch_at(folder), **{"block_bytes": 16 << 20, **options})
    made = make_lookups(job)
    assert not list(folder.rglob("*.run"))
    return open_lookups(job.scratch, list(made.tables))


def columns_of(kind: FileKind) -> tuple[str, ...]:
    """All columns that a side table is used with."""
    return (*kind.required, *kind.optional)


@st.composite
def exports(draw: st.DrawFn) -> tuple[TableFamily, dict[str, Cells]]:
    """A family, and some rows of each of its side tables that repeat and contradict each other."""
    family = draw(st.sampled_from(FAMILIES))
    kinds = [kind for kind in family.kinds if kind.stem is not None]
    pools = {kind.use: [st.sampled_from(POOLS.get(name, IDS)) for name in columns_of(kind)] for kind in kinds}
    return family, {use: draw(st.lists(st.tuples(*cells), max_size=12)) for use, cells in pools.items()}


@settings(max_examples=20)  # each makes up to eleven tables, and a run of a few rows is a file that is synced
@given(exports(), SIZES, st.integers(1, 200), st.randoms())
def test_tables_hang_on_no_order_nor_cut_of_the_rows(
    tmp_path_factory: pytest.TempPathFactory,
    export: tuple[TableFamily, dict[str, Cells]],
    sizes: RunSizes,
    block_bytes: int,
    chance: random.Random,
) -> None:
    """Shuffled rows in several files, read in blocks, sorted in runs and finished in shares of any size."""
    family, tables = export
    folder = tmp_path_factory.mktemp("sides")
    columns = {kind.use: columns_of(kind) for kind in family.kinds}
    sides = []
    for use, rows in tables.items():
        shuffled, num_files = chance.sample(rows, len(rows)), chance.randint(1, 3)
        for number in range(num_files):
            path = folder / f"{use}_{number}.csv"
            path.write_bytes(csv_bytes(shuffled[number::num_files], columns[use]))
            file = replace(SourceFile.found(path, "csv"), use=use)
            sides.append(SideFile(file, path, {name: name for name in columns[use]}))

    found = looked_up(folder / "scratch", family, sides, sizes=sizes, block_bytes=block_bytes)

    strings = {use: pa.schema([(name, pa.large_string()) for name in names]) for use, names in columns.items()}
    whole = {
        use: pa.Table.from_pylist([dict(zip(columns[use], row, strict=True)) for row in rows], strings[use])
        for use, rows in tables.items()
    }
    assert found == family.lookups(whole)


@given(st.lists(st.lists(st.text("ab", max_size=3), max_size=9), max_size=4), SIZES)
def test_shares_are_all_rows_by_ascending_hash(
    tmp_path_factory: pytest.TempPathFactory, added: list[list[str]], sizes: RunSizes
) -> None:
    """Nothing is lost, no key is in two shares, and shares one after the other are sorted as one table is."""
    scratch = scratch_at(tmp_path_factory.mktemp("scratch"))
    empty = pl.DataFrame(schema={KEY: pl.String})

    with RowRuns(scratch, "keys", empty=empty, sizes=sizes) as runs:
        for keys in added:
            runs.add(pl.DataFrame({KEY: keys}, schema=empty.schema))
        shares = [share[KEY].unique().to_list() for share in runs.shares()]

    told = {key for keys in added for key in keys}
    assert sorted(key for share in shares for key in share) == sorted(told)
    hashes = [sorted(map(hash_of, share)) for share in shares]
    assert [one for share in hashes for one in share] == sorted(map(hash_of, told))


def test_a_damaged_run_is_not_used(tmp_path: Path) -> None:
    """One bit anywhere in a run is found before a row of it counts, and the runs are removed all the same."""
    scratch = scratch_at(tmp_path)
    empty = pl.DataFrame(schema={KEY: pl.String})

    with RowRuns(scratch, "keys", empty=empty, sizes=RunSizes(run_bytes=1)) as runs:
        runs.add(pl.DataFrame({KEY: ["a", "b"]}))
        path = next(tmp_path.rglob("*.run"))
        content = path.read_bytes()
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        with pytest.raises(IntegrityError):
            list(runs.shares())

    assert not path.exists()


def test_runs_of_a_killed_client_are_removed(tmp_path: Path) -> None:
    """And not those of another task of the same client, which may still be at work."""
    scratch = scratch_at(tmp_path)
    empty = pl.DataFrame(schema={KEY: pl.String})
    with RowRuns(scratch, "units", empty=empty, sizes=RunSizes(run_bytes=1)) as runs:
        runs.add(pl.DataFrame({KEY: ["a"]}))
        own = next(tmp_path.rglob("*.run"))
        stale = own.with_name(own.name.replace(scratch.word[:8], "0" * 8))
        stale.write_bytes(own.read_bytes())

        make_lookups(LookupJob("mimic4", [], scratch, 1))

        assert own.exists()
        assert not stale.exists()


@pytest.mark.slow
def test_memory_does_not_grow_with_side_tables(tmp_path: Path) -> None:
    """Two million rows of services and diagnoses stay far below what they take in memory at once."""
    stays = [(str(10_000_000 + stay // 2), str(20_000_000 + stay)) for stay in range(NUM_STAYS)]
    times = [f"21{year:02d}-0{month}-11 0{hour}:00:00" for year in range(50) for month in (1, 5) for hour in (2, 7)]
    services = ((*stay, times[(number + late) % 200], "CMED") for number, stay in enumerate(stays) for late in (0, 7))
    diagnoses = ((*stay, str(rank), "I10", "10") for stay in stays for rank in (1, 2, 3))
    _write(tmp_path / "services.csv", "subject_id,hadm_id,transfertime,curr_service", services)
    _write(tmp_path / "diagnoses_icd.csv", "subject_id,hadm_id,seq_num,icd_code,icd_version", diagnoses)

    command = [sys.executable, "-c", MAKE, str(tmp_path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=Path(__file__).parents[1])

    *num_rows, growth_mib = map(int, done.stdout.split())
    assert num_rows == [2 * NUM_STAYS, NUM_STAYS, 2 * NUM_STAYS]
    assert growth_mib < MAX_GROWTH_MIB


def _write(path: Path, header: str, rows: Iterable[tuple[str, ...]]) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write(f"{header}\n")
        file.writelines(f"{','.join(row)}\n" for row in rows)
