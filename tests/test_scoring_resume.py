"""What an earlier launch left: sound partials count, broken ones are scored again, strangers stop the run."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from schemas.documents import read_document
from schemas.errors import IntegrityError
from schemas.folders import open_build
from schemas.manifests import RunManifest
from schemas.partials import BlockKey, PartialFile, list_partials, rank_folder
from schemas.precision import PrecisionPolicy
from schemas.tables import SKIPPED_STATUSES
from schemas.tally import pool
from scoring.assignment import blocks_of
from scoring.finish import run_totals
from scoring.resume import RankLedger, clean_up, finished_partials, take_over
from scoring.status import StatusFile, status_path
from tests.made_runs import MadeBuild, MadeRecord, make_build, make_run

RECORDS = [MadeRecord(f"n{index}", loss=None if index == 4 else index / 3) for index in range(9)]


@pytest.fixture
def build(tmp_path: Path) -> MadeBuild:
    """A build of five blocks."""
    return make_build(tmp_path / "corpus", RECORDS)


@pytest.fixture
def run(tmp_path: Path, build: MadeBuild) -> Path:
    """A run over it by three ranks."""
    return make_run(tmp_path / "run", build, num_ranks=3)


def run_id(run: Path) -> str:
    """Of a complete run."""
    return read_document(run / "COMPLETE", RunManifest).run_id


def taken_over(build: MadeBuild, run: Path) -> tuple[RankLedger, list[BlockKey]]:
    """What one rank takes over of everything that is there."""
    found = finished_partials(run, blocks_of(build.manifest))
    return take_over(run, found, run_id=run_id(run), build=open_build(build.corpus), policy=PrecisionPolicy(()))


def test_sound_partials_are_taken_over(build: MadeBuild, run: Path) -> None:
    """Every block of an earlier launch counts, with the entries and totals that were sealed."""
    sealed = read_document(run / "COMPLETE", RunManifest)

    ledger, sound = taken_over(build, run)

    assert sorted(sound) == sorted(blocks_of(build.manifest))
    assert sorted(entry.path for entry in ledger.entries) == [entry.path for entry in sealed.partials]
    assert {entry.path: entry for entry in ledger.entries} == {entry.path: entry for entry in sealed.partials}
    assert run_totals(ledger.tally, ledger.skipped) == sealed.totals
    assert ledger.skipped["no_tokens"] == 1


@pytest.mark.parametrize("num_ranks", [1, 2, 3, 4, 7])
def test_any_number_of_ranks_takes_over_the_same(num_ranks: int, build: MadeBuild, run: Path) -> None:
    """The shares of any world size pool to the whole: each partial is verified by one rank."""
    found = finished_partials(run, blocks_of(build.manifest))

    shares = [
        take_over(
            run, found[rank::num_ranks], run_id=run_id(run), build=open_build(build.corpus), policy=PrecisionPolicy(())
        )[0]
        for rank in range(num_ranks)
    ]

    sealed = read_document(run / "COMPLETE", RunManifest)
    skipped = {status: sum(share.skipped[status] for share in shares) for status in SKIPPED_STATUSES}
    assert run_totals(pool(share.tally for share in shares), skipped) == sealed.totals
    assert sorted(entry.path for share in shares for entry in share.entries) == [
        entry.path for entry in sealed.partials
    ]


@pytest.mark.parametrize("damage", ["cut", "emptied", "flipped", "grown"])
def test_a_broken_partial_is_scored_again(damage: str, build: MadeBuild, run: Path) -> None:
    """A partial that is not what its name says is removed, and its block is not called done."""
    broken = list_partials(run)[2]
    content = bytearray(broken.path.read_bytes())
    changed = {
        "cut": content[:-1],
        "emptied": b"",
        "flipped": content[:100] + bytes([content[100] ^ 1]) + content[101:],
        "grown": content + b"\0",
    }
    broken.path.write_bytes(changed[damage])

    ledger, sound = taken_over(build, run)

    assert set(blocks_of(build.manifest)) - set(sound) == {broken.key}
    assert len(ledger.entries) == len(sound) == 4
    assert not broken.path.exists()


def test_a_partial_of_another_run_is_scored_again(build: MadeBuild, run: Path, tmp_path: Path) -> None:
    """Losses of another model that lie under this run's blocks never count."""
    other = make_run(tmp_path / "other", build, model="another")
    own, foreign = list_partials(run)[0], list_partials(other)[0]
    own.path.unlink()
    shutil.copy(foreign.path, own.path.parent)

    _, sound = taken_over(build, run)

    assert own.key == foreign.key
    assert own.key not in sound
    assert len(sound) == 4


def test_equal_twins_count_once(build: MadeBuild, run: Path) -> None:
    """A block that two launches scored alike is counted once, and the second file is removed."""
    first = list_partials(run)[0]
    twin = rank_folder(run, 7) / first.path.name
    twin.parent.mkdir()
    shutil.copy(first.path, twin)

    found = finished_partials(run, blocks_of(build.manifest))

    assert len(found) == len(list_partials(run)) == 5
    assert {partial.key for partial in list_partials(run)} == set(blocks_of(build.manifest))
    assert first.path.exists() != twin.exists()


def test_different_twins_stop_the_run(build: MadeBuild, run: Path) -> None:
    """Two partials of one block with other bytes cannot both be right: both are named."""
    first = list_partials(run)[0]
    other = first.path.with_name(f"{first.key}.{'0' * 32}.parquet")
    other.write_bytes(b"other bytes")

    with pytest.raises(IntegrityError) as caught:
        finished_partials(run, blocks_of(build.manifest))

    assert first.path.name in str(caught.value)
    assert other.name in str(caught.value)
    assert "remove both, score again" in str(caught.value)


def test_a_block_of_another_build_stops_the_run(build: MadeBuild, run: Path) -> None:
    """A partial of no expected block is named, not ignored."""
    expected = blocks_of(build.manifest)
    key = max(expected)
    del expected[key]

    with pytest.raises(IntegrityError, match=f"{key}.*its block is not part of this run; remove the file"):
        finished_partials(run, expected)


def test_a_run_that_just_began_has_nothing_to_take_over(build: MadeBuild, tmp_path: Path) -> None:
    """Without partials all blocks are to be scored."""
    found: list[PartialFile] = finished_partials(tmp_path / "new", blocks_of(build.manifest))

    assert found == []


def test_half_written_files_are_removed(run: Path) -> None:
    """What a killed rank was writing goes, and nothing else."""
    before = sorted(path for path in run.rglob("*") if path.is_file())
    for folder in (run, run / "status", run / "partials" / "rank-00001"):
        (folder / ".writing-123-abcd").write_bytes(b"half")

    clean_up(run, 3)

    assert sorted(path for path in run.rglob("*") if path.is_file()) == before


def test_statuses_of_surplus_ranks_are_removed(run: Path) -> None:
    """After a launch with more ranks, only this launch's statuses are left to be read."""
    for rank in range(5):
        StatusFile(run, rank, 5).say("failed", exit_code=75)

    clean_up(run, 2)

    assert sorted((run / "status").iterdir()) == [status_path(run, 0), status_path(run, 1)]
