"""Synthetic notes through all three stages: the report's bytes depend on the records and the settings alone."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from schemas.folders import open_build
from schemas.shard_files import read_shard
from schemas.tables import content_digest
from tests import pipelines
from tests.models import MAX_POSITIONS
from tests.pipelines import Notes
from tests.reference import reference_nll

OPTIONS = (
    *("--id", "note_id", "--text", "text", "--department", "department", "--patient", "patient_id"),
    *("--feature", "note_type=note_type", "--max-rejects", "10%"),
)
BY = ("department", "department,note_type", "length_band")
NUM_RECORDS = 60


@pytest.fixture(scope="module")
def notes(tmp_path_factory: pytest.TempPathFactory) -> Notes:
    """Sample notes, cut to a length that a tiny model scores fast; two have no text and three stand there twice."""
    path = tmp_path_factory.mktemp("notes") / "notes.parquet"
    pipelines.stage("sharding", "sample", path, "--records", NUM_RECORDS, "--departments", 3)
    table = pq.read_table(path)
    texts = [text and text[:1200] for text in table.column("text").to_pylist()]
    texts[:2] = [None, ""]
    index = table.schema.get_field_index("text")
    table = table.set_column(index, "text", pa.array(texts, pa.large_string()))
    pq.write_table(pa.concat_tables([table, table.slice(10, 3)]), path, row_group_size=17)
    return Notes((path,), OPTIONS)


@pytest.fixture(scope="module")
def corpus(notes: Notes, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One build of the notes."""
    return pipelines.build(notes, tmp_path_factory.mktemp("one") / "corpus")


@pytest.fixture(scope="module")
def run(corpus: Path, tiny_llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One run of one rank."""
    return pipelines.score(corpus, tiny_llama, tmp_path_factory.mktemp("one") / "run")


@pytest.fixture(scope="module")
def expected(corpus: Path, run: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The report of that run."""
    return pipelines.report(corpus, run, tmp_path_factory.mktemp("one") / "report", *BY)


@pytest.mark.parametrize("ranks", [2, pytest.param(3, marks=pytest.mark.slow), pytest.param(5, marks=pytest.mark.slow)])
def test_the_report_is_the_same_for_any_number_of_ranks(
    ranks: int, corpus: Path, tiny_llama: Path, expected: dict[str, bytes], tmp_path: Path
) -> None:
    """One rank or several: every file of the report is equal byte for byte."""
    run = pipelines.score(corpus, tiny_llama, tmp_path / "run", ranks=ranks)

    assert pipelines.report(corpus, run, tmp_path / "report", *BY) == expected


def test_the_report_is_the_same_after_a_kill_and_a_resume_with_another_world_size(
    corpus: Path, tiny_llama: Path, expected: dict[str, bytes], tmp_path: Path
) -> None:
    """Every process is killed after the first partials; one rank finishes what two have begun."""
    num_blocks = sum(len(shard.blocks) for shard in open_build(corpus).manifest.shards)

    left = pipelines.score_until_killed(corpus, tiny_llama, tmp_path / "run", ranks=2, after=1)
    run = pipelines.score(corpus, tiny_llama, tmp_path / "run", ranks=1)

    assert 0 < left < num_blocks
    assert len(list(run.glob("partials/*/*.parquet"))) == num_blocks
    assert pipelines.report(corpus, run, tmp_path / "report", *BY) == expected


def test_the_build_is_the_same_for_any_number_of_workers(notes: Notes, corpus: Path, tmp_path: Path) -> None:
    """Three workers write the manifest that one has written."""
    other = pipelines.build(notes, tmp_path / "corpus", workers=3)

    manifest, twin = open_build(corpus).manifest, open_build(other).manifest
    assert twin == manifest


def test_order_and_files_of_the_input_move_only_provenance(
    notes: Notes, corpus: Path, tiny_llama: Path, expected: dict[str, bytes], tmp_path: Path
) -> None:
    """Reversed rows in two CSV files give the same content digests and the same figures."""
    table = pq.read_table(notes.inputs[0])
    backwards = table.take(list(range(table.num_rows))[::-1])
    parts = (tmp_path / "a.parquet", tmp_path / "b.parquet")
    pq.write_table(backwards.slice(0, 20), parts[0])
    pq.write_table(backwards.slice(20), parts[1])

    other = pipelines.build(Notes(parts, OPTIONS), tmp_path / "corpus", workers=2)
    run = pipelines.score(other, tiny_llama, tmp_path / "run")
    files = pipelines.report(other, run, tmp_path / "report", *BY)

    assert _digests(other) == _digests(corpus)
    assert files["strata.parquet"] == expected["strata.parquet"]
    assert _without_provenance(files) == _without_provenance(expected)
    assert json.loads(files["report.json"]) != json.loads(expected["report.json"])


def test_the_whole_is_what_a_plain_loop_over_the_records_gives(
    corpus: Path, tiny_llama: Path, expected: dict[str, bytes]
) -> None:
    """Total loss within 1e-6 of batch size 1 without padding, in fp32, and exactly its token count."""
    build = open_build(corpus)
    tables = [read_shard(build, shard) for shard in build.manifest.shards]
    texts = [text for table in tables for text in table.column("text").to_pylist()]
    lengths = {"max_length": MAX_POSITIONS, "stride": MAX_POSITIONS}

    losses, counts = zip(*(reference_nll(tiny_llama, text, **lengths) for text in texts), strict=True)

    whole = json.loads(expected["report.json"])["body"]["whole"]
    assert whole["num_tokens"] == sum(counts)
    assert whole["loss_nats"]["value"] == pytest.approx(math.fsum(losses), rel=1e-6)


def test_the_ledger_runs_through_all_three_stages(expected: dict[str, bytes]) -> None:
    """Read = kept + duplicates + rejected, and kept = scored + skipped."""
    ledger = json.loads(expected["report.json"])["body"]["ledger"]

    build, run = ledger["build"], ledger["run"]
    assert build["num_read"] == build["num_kept"] + sum(build["duplicates"].values()) + sum(build["rejected"].values())
    assert build["num_kept"] == run["num_sharded"] == run["num_scored"] + sum(run["skipped"].values())
    assert ledger["num_reported"] == run["num_scored"]
    assert {"null_text", "empty_text"} <= build["rejected"].keys()
    assert sum(build["duplicates"].values()) >= 3


def _digests(corpus: Path) -> dict[str, str]:
    """Content digests of all shards, recomputed from the files."""
    build = open_build(corpus)
    return {shard.shard_id: content_digest(read_shard(build, shard)) for shard in build.manifest.shards}


def _without_provenance(files: dict[str, bytes]) -> dict[str, object]:
    body = json.loads(files["report.json"])["body"]
    del body["provenance"]
    return dict(body)
