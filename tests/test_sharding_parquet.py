"""Parquet files are read in pieces, however their writer cut them into row groups."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

NUM_ROWS = 160_000
TEXT_BYTES = 600
# Of a file of 96 MB in one row group, 8,192 rows at a time with 10 MB of text.
MAX_GROWTH_MIB = 90
READ = """
import sys
from pathlib import Path
from sharding.sources.parquet import ParquetSource
from sharding.sources.source import Span

def peak_mib():
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) // 1024

before = peak_mib()
parts = ParquetSource().read(Path(sys.argv[1]), Span(0, 1, 1), columns={"text": "text"})
print(sum(rows.table.num_rows for rows in parts), peak_mib() - before)
"""


def test_memory_does_not_grow_with_a_row_group(tmp_path: Path) -> None:
    """A file of one row group, which no compression makes smaller, is never in memory as a whole."""
    source = random.Random(7)
    texts = [source.randbytes(TEXT_BYTES).hex() for _ in range(NUM_ROWS)]
    path = tmp_path / "one_group.parquet"
    pq.write_table(pa.table({"text": texts}), path, row_group_size=NUM_ROWS, compression="zstd", use_dictionary=False)

    command = [sys.executable, "-c", READ, str(path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=Path(__file__).parents[1])

    num_rows, growth_mib = map(int, done.stdout.split())
    assert num_rows == NUM_ROWS
    assert growth_mib < MAX_GROWTH_MIB
