"""Real transcribed notes with a real tiny model: the same report for any ranks, workers, order, split and kill.

Needs the public samples in ``../shared``; ``test_end_to_end`` holds the same laws on synthetic notes. The quick tests
score every hundredth note, the slow ones all 4,999.
"""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from schemas.folders import open_build
from schemas.partials import list_partials
from tests import pipelines
from tests.launches import score_here
from tests.pipelines import Notes

OPTIONS = ("--id", "note_id", "--text", "transcription", "--department", "medical_specialty")
BY = ("department", "length_band")
NUM_RECORDS, NUM_NULL_TEXTS, NUM_DEPARTMENTS = 4999, 33, 40
ONE_IN = 100
MAX_LENGTH = 128  # attention of short windows is four times as fast as the model's full 512
SHORT = ("--max-length", str(MAX_LENGTH))


@pytest.fixture(scope="session")
def mtsamples(shared: Path) -> Path:
    """All notes, as Parquet."""
    return shared / "data" / "mtsamples" / "mtsamples.parquet"


@pytest.fixture(scope="session")
def stories260k(shared: Path) -> Path:
    """A Llama of 260,000 parameters."""
    return shared / "models" / "stories260k-hf"


@pytest.fixture(scope="module")
def some(mtsamples: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every hundredth note."""
    table = pq.read_table(mtsamples)
    path = tmp_path_factory.mktemp("some") / "notes.parquet"
    pq.write_table(table.take(list(range(0, table.num_rows, ONE_IN))), path, row_group_size=100)
    return path


@pytest.fixture(scope="module")
def whole(mtsamples: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build of all notes."""
    return pipelines.build(Notes((mtsamples,), OPTIONS), tmp_path_factory.mktemp("whole") / "corpus")


def test_every_note_is_accounted_for(whole: Path) -> None:
    """4,999 are read; the 33 without a text are rejected by that reason, all others kept."""
    manifest = open_build(whole).manifest

    assert manifest.ledger.num_read == NUM_RECORDS
    assert manifest.ledger.rejected == {"null_text": NUM_NULL_TEXTS}
    assert manifest.ledger.num_kept + sum(manifest.ledger.duplicates.values()) == NUM_RECORDS - NUM_NULL_TEXTS
    assert len(manifest.departments) == NUM_DEPARTMENTS


def test_workers_order_files_and_format_leave_all_content_digests(mtsamples: Path, whole: Path, tmp_path: Path) -> None:
    """Three workers, shuffled rows in three files of two formats: the same shards."""
    table = pq.read_table(mtsamples)
    shuffled = table.take([(index * 2003 + 17) % table.num_rows for index in range(table.num_rows)])
    parts = tuple(tmp_path / name for name in ("a.parquet", "b.parquet", "c.csv"))
    pq.write_table(shuffled.slice(0, 1000), parts[0], row_group_size=300)
    pq.write_table(shuffled.slice(1000, 2000), parts[1])
    _write_csv(shuffled.slice(3000), parts[2])

    other = pipelines.build(Notes(parts, OPTIONS), tmp_path / "corpus", workers=3)

    assert _contents(other) == _contents(whole)
    assert open_build(other).manifest.ledger == open_build(whole).manifest.ledger


@pytest.mark.slow
def test_ranks_and_a_kill_leave_every_byte_of_the_report(some: Path, stories260k: Path, tmp_path: Path) -> None:
    """One rank, and two killed ranks that three resumed: equal files."""
    corpus = pipelines.build(Notes((some,), OPTIONS), tmp_path / "corpus", workers=2)
    score_here(corpus, tmp_path / "one", stories260k, max_length=MAX_LENGTH)

    left = pipelines.score_until_killed(corpus, stories260k, tmp_path / "killed", *SHORT, ranks=2, after=5)
    pipelines.score(corpus, stories260k, tmp_path / "killed", *SHORT, ranks=3)

    assert left < len(list_partials(tmp_path / "killed"))
    assert _report(corpus, tmp_path / "killed", tmp_path) == _report(corpus, tmp_path / "one", tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_all_notes_give_one_report_for_1_2_3_and_5_ranks(whole: Path, stories260k: Path, tmp_path: Path) -> None:
    """Every file of the report of all notes is byte-identical for four world sizes and a resume with a fifth."""
    runs = [pipelines.score(whole, stories260k, tmp_path / str(ranks), *SHORT, ranks=ranks) for ranks in (1, 2, 3, 5)]
    left = pipelines.score_until_killed(whole, stories260k, tmp_path / "killed", *SHORT, ranks=2, after=100)
    runs.append(pipelines.score(whole, stories260k, tmp_path / "killed", *SHORT, ranks=4))

    reports = [_report(whole, run, tmp_path) for run in runs]

    assert left >= 100
    assert all(report == reports[0] for report in reports)
    ledger = json.loads(reports[0]["report.json"])["body"]["ledger"]
    assert ledger["run"]["num_scored"] + sum(ledger["run"]["skipped"].values()) == NUM_RECORDS - NUM_NULL_TEXTS


def _report(corpus: Path, run: Path, folder: Path) -> dict[str, bytes]:
    return pipelines.report(corpus, run, folder / f"report-{run.name}", *BY)


def _contents(corpus: Path) -> dict[str, tuple[str, list[str]]]:
    """Content digests of all shards and their blocks, as sealed (``verify --deep`` recomputes them)."""
    pipelines.stage("sharding", "verify", corpus, "--deep")
    return {
        shard.shard_id: (shard.content_digest, [block.content_digest for block in shard.blocks])
        for shard in open_build(corpus).manifest.shards
    }


def _write_csv(table: pa.Table, path: Path) -> None:
    pa_csv.write_csv(table, path, pa_csv.WriteOptions(quoting_style="needed"))
