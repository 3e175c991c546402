"""What a build holds depends on the records and the settings, and on nothing else."""

from __future__ import annotations

import pickle
import random
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from schemas.folders import Build, open_build
from schemas.shard_files import read_shard
from schemas.verification import verify_build
from sharding.blocks import block_jobs
from sharding.build import build_corpus, survey_blocks
from sharding.cluster import ClusterOptions, connected
from sharding.preparation import prepare
from tests.builds import KEY, build, records_of, request, some_rows, write_rows

ROWS = some_rows(300)


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory, scheduler: str) -> Build:
    """A build of ``ROWS`` from one Parquet file."""
    folder = tmp_path_factory.mktemp("reference")
    source = write_rows(folder / "in.parquet", ROWS)
    return build([source], folder / "corpus", scheduler, target_tokens=2_000, block_tokens=500)


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
@pytest.mark.parametrize("block_bytes", [1_000, 1 << 20])
def test_formats_and_block_sizes_give_the_same_records(
    reference: Build, tmp_path: Path, scheduler: str, suffix: str, block_bytes: int
) -> None:
    """CSV, JSON Lines and Parquet of the same rows give equal content digests, however they are cut."""
    source = write_rows(tmp_path / f"in{suffix}", ROWS)

    made = build(
        [source], tmp_path / "corpus", scheduler, target_tokens=2_000, block_tokens=500, block_bytes=block_bytes
    )

    assert made.manifest.content_digest == reference.manifest.content_digest
    assert made.manifest.multiset_digest == reference.manifest.multiset_digest
    assert [shard.seal for shard in made.manifest.shards] == [shard.seal for shard in reference.manifest.shards]


def test_shuffled_and_split_inputs_give_the_same_records(reference: Build, tmp_path: Path, scheduler: str) -> None:
    """Only provenance differs when the same rows come in another order and in other files."""
    shuffled = random.Random(5).sample(ROWS, len(ROWS))
    sources = [
        write_rows(tmp_path / "a.csv", shuffled[:70]),
        write_rows(tmp_path / "b.jsonl", shuffled[70:200]),
        write_rows(tmp_path / "c.parquet", shuffled[200:]),
    ]

    made = build(sources, tmp_path / "corpus", scheduler, target_tokens=2_000, block_tokens=500)

    different = {"build_id", "inputs", "inputs_digest"}
    assert made.manifest.model_dump(exclude=different) == reference.manifest.model_dump(exclude=different)
    assert made.manifest.build_id != reference.manifest.build_id


@pytest.mark.parametrize("num_workers", [1, 3])
def test_any_number_of_workers_gives_the_same_files(reference: Build, tmp_path: Path, num_workers: int) -> None:
    """The manifest, whose seals cover every shard's bytes, is equal for 1, 2 and 3 workers."""
    source = write_rows(tmp_path / "in.parquet", ROWS)
    wanted = request([source], tmp_path / "corpus", "", target_tokens=2_000, block_tokens=500)

    made, _ = build_corpus(
        type(wanted)(
            inputs=wanted.inputs,
            corpus=wanted.corpus,
            settings=wanted.settings,
            cluster=ClusterOptions(workers=num_workers),
            key_path=wanted.key_path,
        )
    )

    assert made.manifest == reference.manifest


def test_a_build_verifies_and_holds_every_row(reference: Build) -> None:
    """Deep verification passes, and every raw id and text is there once, unchanged."""
    checked = verify_build(reference, deep=True)

    found = [(row["raw_id"], row["text"], row["department"]) for row in records_of(reference)]
    assert found == sorted((str(row[0]), row[1], row[2]) for row in ROWS)
    assert checked["records"] == len(ROWS)
    assert not (reference.folder.parents[1] / "scratch").exists()


def test_departments_never_share_a_shard(reference: Build) -> None:
    """Every shard is one department's, and no path holds a department's name."""
    paths = [path.as_posix().lower() for path in reference.folder.rglob("*")]

    per_shard = [
        {row["department"] for row in records_of(reference) if row["record_id"] in ids}
        for ids in _ids_by_shard(reference)
    ]

    assert all(len(names) == 1 for names in per_shard)
    assert not any("cardio" in path or "oncology" in path for path in paths)


def test_a_finished_build_is_not_built_again(tmp_path: Path, scheduler: str) -> None:
    """The second run changes no file and says that nothing was to do; it also makes the build current again."""
    source = write_rows(tmp_path / "in.csv", ROWS[:20])
    wanted = request([source], tmp_path / "corpus", scheduler)
    made, is_new = build_corpus(wanted)
    before = {path: path.stat().st_mtime_ns for path in made.folder.rglob("*")}
    (tmp_path / "corpus" / "CURRENT").unlink()

    again, is_new_again = build_corpus(wanted)

    assert (is_new, is_new_again) == (True, False)
    assert {path: path.stat().st_mtime_ns for path in again.folder.rglob("*")} == before
    assert open_build(tmp_path / "corpus").manifest == made.manifest


def test_a_limit_keeps_the_same_records_whatever_the_order(tmp_path: Path, scheduler: str) -> None:
    """The first N in placement order do not depend on the order of the input, and the ledger still balances."""
    forward = write_rows(tmp_path / "a.csv", ROWS)
    backward = write_rows(tmp_path / "b.csv", ROWS[::-1])

    one = build([forward], tmp_path / "one", scheduler, limit=50)
    two = build([backward], tmp_path / "two", scheduler, limit=50)

    assert one.manifest.content_digest == two.manifest.content_digest
    assert one.manifest.limited_to == one.manifest.ledger.num_kept == 50
    assert one.manifest.ledger.rejected == {"over_limit": 250}


@pytest.mark.parametrize(
    "num_shards",
    [128, 257, *(pytest.param(number, marks=pytest.mark.slow) for number in (127, 129, 255, 256))],
)
def test_shuffles_that_lose_rows_with_many_shards(tmp_path: Path, scheduler: str, num_shards: int) -> None:
    """Around the sizes at which shuffles have lost rows, the ledger and the multiset digest balance."""
    rows = [(f"n{number}", "abc", "d", None) for number in range(2 * num_shards)]
    source = write_rows(tmp_path / "in.csv", rows)

    made = build([source], tmp_path / "corpus", scheduler, target_tokens=2, block_bytes=1_500)

    checked = verify_build(made, deep=True)
    assert checked["shards"] == num_shards
    assert checked["records"] == made.manifest.ledger.num_kept == 2 * num_shards


@pytest.mark.parametrize("encoding", ["gb18030", "utf-16", "utf-16-le"])
@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_other_encodings_give_the_same_records(tmp_path: Path, scheduler: str, encoding: str, suffix: str) -> None:
    """Text in a declared encoding makes the same shards as its UTF-8 original."""
    rows = [(f"n{number}", f"咳嗽 {number}\r\n发热", "内科", None) for number in range(40)]
    plain = write_rows(tmp_path / f"plain{suffix}", rows)
    coded = tmp_path / f"coded{suffix}"
    coded.write_bytes(plain.read_bytes().decode().encode(encoding))

    one = build([plain], tmp_path / "one", scheduler, block_bytes=500)
    two = build([coded], tmp_path / "two", scheduler, block_bytes=500, encoding=encoding)

    assert one.manifest.content_digest == two.manifest.content_digest
    assert two.manifest.ledger.num_kept == 40


def test_a_seed_moves_records_and_keeps_them_all(reference: Build, tmp_path: Path, scheduler: str) -> None:
    """Another seed gives other shards of the same multiset of records."""
    source = write_rows(tmp_path / "in.parquet", ROWS)

    made = build([source], tmp_path / "corpus", scheduler, target_tokens=2_000, block_tokens=500, seed=9)

    assert made.manifest.multiset_digest == reference.manifest.multiset_digest
    assert made.manifest.content_digest != reference.manifest.content_digest


def test_no_shard_is_empty_and_no_column_is_categorical(reference: Build) -> None:
    """Every row group has rows, and strings are large strings whose offsets do not end at 2 GiB."""
    for shard in reference.manifest.shards:
        with pq.ParquetFile(reference.shard_path(shard)) as file:
            groups = [file.metadata.row_group(index) for index in range(file.metadata.num_row_groups)]
            kinds = {str(kind) for kind in file.schema_arrow.types}

        assert groups
        assert all(group.num_rows > 0 for group in groups)
        assert kinds == {"fixed_size_binary[16]", "large_string", "int64"}


def test_a_footer_shows_no_ids_and_no_text(reference: Build) -> None:
    """Only the two number columns have minima and maxima, and the file's tail holds no id in the clear."""
    for shard in reference.manifest.shards:
        with pq.ParquetFile(reference.shard_path(shard)) as file:
            group = file.metadata.row_group(0)
            columns = [group.column(index) for index in range(group.num_columns)]

        assert {column.path_in_schema for column in columns if column.is_stats_set} == {
            "num_bytes",
            "estimated_tokens",
        }


def test_what_a_worker_is_told_holds_neither_key_nor_text(tmp_path: Path, scheduler: str) -> None:
    """Dask may log a task's arguments, so they are paths, numbers and settings only."""
    source = write_rows(tmp_path / "in.csv", ROWS[:9])
    wanted = request([source], tmp_path / "corpus", scheduler)
    prepared = prepare(wanted)
    with connected(wanted.cluster, prepared.scratch.workers()) as cluster:
        survey = survey_blocks(wanted, prepared, cluster)

    told = pickle.dumps(block_jobs(prepared, survey))

    assert KEY.encode() not in told
    assert bytes.fromhex(KEY) not in told
    assert b"note 1" not in told


def test_mtsamples_is_read_whole(shared: Path, tmp_path: Path, scheduler: str) -> None:
    """Public sample notes: Parquet with an integer id and CSV give the same records; 33 texts are null."""
    folder = shared / "data" / "mtsamples"
    columns = {"id": "note_id", "text": "transcription", "department": "medical_specialty"}

    made = [
        build([folder / name], tmp_path / name, scheduler, columns=columns, max_rejects="1%", block_bytes=1_000_003)
        for name in ("mtsamples.parquet", "mtsamples.csv")
    ]

    assert made[0].manifest.content_digest == made[1].manifest.content_digest
    ledger = made[0].manifest.ledger
    assert (ledger.num_read, ledger.rejected) == (4_999, {"null_text": 33})
    assert ledger.num_kept + sum(ledger.duplicates.values()) + 33 == 4_999


def _ids_by_shard(made: Build) -> list[set[bytes]]:
    tables = [read_shard(made, shard) for shard in made.manifest.shards]
    return [set(table.column("record_id").to_pylist()) for table in tables]
