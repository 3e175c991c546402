"""What makes a run unfit to be reported, each named."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from schemas.documents import Document, read_document, write_document
from schemas.errors import IntegrityError, UsageError
from schemas.manifests import PartialEntry, RankStatus, RunHeader, RunManifest
from schemas.partials import BlockKey
from schemas.seals import seal_bytes
from tests.made_runs import (
    MadeBuild,
    MadeRecord,
    add_partial,
    blocks_of,
    make_build,
    make_run,
    report_of,
    scored_table,
    totals_of,
)

RECORDS = [MadeRecord(f"n{index}", features=("a",), patient=f"p{index}", loss=index / 3) for index in range(5)]


@pytest.fixture
def build(tmp_path: Path) -> MadeBuild:
    """A build of five records."""
    return make_build(tmp_path / "corpus", RECORDS, features=["age_band"])


@pytest.fixture
def run(tmp_path: Path, build: MadeBuild) -> Path:
    """A run over it on two ranks."""
    return make_run(tmp_path / "run", build)


def changed(path: Path, model: type[Document], **update: Any) -> None:
    """Rewrite a document with other fields and a fresh, valid seal."""
    write_document(path, read_document(path, model).model_copy(update=update), replace=True)


def refusal(build: MadeBuild, run: Path) -> str:
    """The message with which the run is refused."""
    with pytest.raises(IntegrityError) as caught:
        report_of(build, run)
    return str(caught.value)


def replace_partial(build: MadeBuild, run: Path, index: int, table: Any) -> None:
    """Put other rows, duly sealed, in the place of a block's partial, with the totals to match."""
    manifest = read_document(run / "COMPLETE", RunManifest)
    shard, block = blocks_of(build)[index]
    entries: list[PartialEntry] = []
    for entry in manifest.partials:
        if (entry.shard_id, entry.block) == (shard.shard_id, block):
            (run / entry.path).unlink()
        else:
            entries.append(entry)
    entries.append(add_partial(run, table, run_id=manifest.run_id, key=BlockKey(shard.shard_id, block), rank=0))
    tables = [table if at == index else scored_table(build, *item) for at, item in enumerate(blocks_of(build))]
    changed(run / "COMPLETE", RunManifest, partials=entries, totals=totals_of(tables))


def test_incomplete_run_is_refused_with_the_cure(build: MadeBuild, run: Path) -> None:
    """A run that has no COMPLETE yet is no run to report."""
    (run / "COMPLETE").unlink()

    message = refusal(build, run)

    assert "run/COMPLETE" in message
    assert "run scoring again to finish it" in message


def test_folder_without_a_run_is_a_usage_error(build: MadeBuild, tmp_path: Path) -> None:
    """A folder that scoring did not write is a slip of the command line, not damage."""
    with pytest.raises(UsageError, match="no run here"):
        report_of(build, tmp_path)


def test_run_of_another_build_is_refused(build: MadeBuild, tmp_path: Path) -> None:
    """Losses of one build never stand for another."""
    other = make_build(tmp_path / "other", RECORDS[:3], features=["age_band"])
    foreign = make_run(tmp_path / "foreign", other)

    message = refusal(build, foreign)

    assert "foreign/run.json" in message
    assert other.manifest.build_id in message
    assert build.manifest.build_id in message


def test_run_id_must_be_the_digest_of_the_fingerprint(build: MadeBuild, run: Path) -> None:
    """A header whose settings were edited and sealed anew is found by its id."""
    fingerprint = {"model": "another"}
    header = read_document(run / "run.json", RunHeader).model_copy(update={"fingerprint": fingerprint})
    changed(run / "COMPLETE", RunManifest, header=write_document(run / "run.json", header, replace=True))

    assert "run_id is not the digest of the fingerprint" in refusal(build, run)


@pytest.mark.parametrize(
    ("field", "value"), [("num_tokens", 6), ("num_records", 4), ("num_words", 0), ("num_bytes", 1)]
)
def test_online_counts_must_equal_the_pool(build: MadeBuild, run: Path, field: str, value: int) -> None:
    """A total that differs from the partials' sum is refused by name."""
    totals = read_document(run / "COMPLETE", RunManifest).totals
    changed(run / "COMPLETE", RunManifest, totals=totals.model_copy(update={field: value}))

    assert f"run/COMPLETE: {field} differ" in refusal(build, run)


def test_online_loss_must_equal_the_pool_to_the_last_bit(build: MadeBuild, run: Path) -> None:
    """One unit in the last place of the exact sum is enough to refuse."""
    totals = read_document(run / "COMPLETE", RunManifest).totals
    loss = {**totals.loss_nats, "mantissa": str(int(totals.loss_nats["mantissa"]) + 2)}
    changed(run / "COMPLETE", RunManifest, totals=totals.model_copy(update={"loss_nats": loss}))

    assert "loss_nats differ" in refusal(build, run)


def test_online_skips_must_equal_the_pool(build: MadeBuild, run: Path) -> None:
    """A skipped record that no partial holds is refused."""
    totals = read_document(run / "COMPLETE", RunManifest).totals
    changed(run / "COMPLETE", RunManifest, totals=totals.model_copy(update={"skipped": {"no_tokens": 1}}))

    assert "skipped differ" in refusal(build, run)


@pytest.mark.parametrize(
    ("field", "value", "complaint"),
    [
        ("seal", seal_bytes(b"other"), "not the file that the run sealed"),
        ("content_digest", "0" * 64, "rows differ from the digest"),
    ],
)
def test_partial_must_be_what_complete_says_of_it(
    build: MadeBuild, run: Path, field: str, value: Any, complaint: str
) -> None:
    """A partial that proves itself by its name is refused where COMPLETE sealed another one."""
    first, *others = read_document(run / "COMPLETE", RunManifest).partials
    changed(run / "COMPLETE", RunManifest, partials=[first.model_copy(update={field: value}), *others])

    message = refusal(build, run)

    assert complaint in message
    assert first.path in message


def test_partials_listed_as_each_other_are_refused(build: MadeBuild, run: Path) -> None:
    """Two blocks whose entries exchanged their files are found, though the set of blocks is complete."""
    first, second, *others = read_document(run / "COMPLETE", RunManifest).partials
    crossed = [
        first.model_copy(update={"shard_id": second.shard_id, "block": second.block}),
        second.model_copy(update={"shard_id": first.shard_id, "block": first.block}),
    ]
    changed(run / "COMPLETE", RunManifest, partials=[*crossed, *others])

    assert "listed as another block than its name says" in refusal(build, run)


def test_block_that_no_partial_scored_is_refused(build: MadeBuild, run: Path) -> None:
    """A run that lists and holds all blocks but one does not cover the build."""
    manifest = read_document(run / "COMPLETE", RunManifest)
    dropped, *kept = manifest.partials
    (run / dropped.path).unlink()
    changed(run / "COMPLETE", RunManifest, partials=kept)

    message = refusal(build, run)

    assert "1 missing, 0 unknown, 0 repeated" in message
    assert dropped.shard_id in message


def test_limited_run_must_hold_the_first_blocks(build: MadeBuild, tmp_path: Path) -> None:
    """A limited run covers the first blocks and no others."""
    run = make_run(tmp_path / "limited", build, limited_to=1)
    assert report_of(build, run).whole.num_records == 2

    shard, block = blocks_of(build)[1]
    manifest = read_document(run / "COMPLETE", RunManifest)
    (run / manifest.partials[0].path).unlink()
    table = scored_table(build, shard, block)
    entry = add_partial(run, table, run_id=manifest.run_id, key=BlockKey(shard.shard_id, block), rank=0)
    changed(run / "COMPLETE", RunManifest, partials=[entry], totals=totals_of([table]))

    assert "1 missing, 1 unknown" in refusal(build, run)


@pytest.mark.parametrize("column", ["record_id", "patient_id", "feature.age_band"])
def test_partial_of_other_records_is_refused(build: MadeBuild, run: Path, column: str) -> None:
    """Keys and features of a partial are those of its block, row by row; the message names the column only."""
    table = scored_table(build, *blocks_of(build)[0])
    at = table.schema.get_field_index(column)
    field = table.schema.field(at)
    other = table.column(column).to_pylist()
    other[0] = b"x" * 16 if column != "feature.age_band" else None
    replace_partial(build, run, 0, table.set_column(at, field, pa.array(other, field.type)))

    message = refusal(build, run)

    assert "not the block's 2 records with their ids and case features in order" in message
    assert ".parquet: " in message


def test_partial_in_another_order_is_refused(build: MadeBuild, run: Path) -> None:
    """The same records in another order are not the block."""
    replace_partial(build, run, 0, scored_table(build, *blocks_of(build)[0]).take([1, 0]))

    assert "are not the block's 2 records" in refusal(build, run)


def test_partial_that_lacks_a_record_is_refused(build: MadeBuild, run: Path) -> None:
    """A record that is neither scored nor skipped is found, though all seals and totals agree."""
    replace_partial(build, run, 0, scored_table(build, *blocks_of(build)[0]).slice(0, 1))

    assert "1 rows are not the block's 2 records" in refusal(build, run)


def test_status_of_another_rank_or_run_is_refused(build: MadeBuild, run: Path) -> None:
    """Every rank's status is its own and of this run."""
    status = run / "status" / "rank-00001.json"
    before = status.read_bytes()

    for update in ({"rank": 0}, {"num_ranks": 3}, {"run_id": "r-0000000000000000"}):
        changed(status, RankStatus, **update)
        assert "status/rank-00001.json: status of another rank or run" in refusal(build, run)
        status.write_bytes(before)

    changed(status, RankStatus, run_id=None)
    assert report_of(build, run).whole.num_records == 5


@pytest.mark.parametrize("name", ["run.json.bak", "COMPLETE.1", ".writing-12-ab", "partials.old/", "notes.txt"])
def test_stranger_in_the_run_folder_is_named(build: MadeBuild, run: Path, name: str) -> None:
    """Only a run's own files may lie in it."""
    path = run / name
    path.mkdir() if name.endswith("/") else path.write_bytes(b"x")

    assert f"run/{path.name}: does not belong in a run" in refusal(build, run)


def test_side_files_and_empty_rank_folders_are_allowed(build: MadeBuild, run: Path) -> None:
    """A lock and the folder of a rank without work change nothing."""
    before = report_of(build, run)
    (run / "lock").write_bytes(b"anything")
    (run / "partials" / "rank-00007").mkdir()

    assert report_of(build, run) == before


def test_link_in_the_run_folder_is_refused(build: MadeBuild, run: Path, tmp_path: Path) -> None:
    """A folder that lies elsewhere is not part of the run."""
    shutil.move(run / "status", tmp_path / "elsewhere")
    (run / "status").symlink_to(tmp_path / "elsewhere")

    assert "run/status: does not belong in a run" in refusal(build, run)
