"""A shard that is not what was sealed costs its own records for the time being, and nobody else's."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import pytest

from schemas.errors import IntegrityError
from schemas.partials import list_partials
from scoring.assignment import RankIdentity
from scoring.blocks import require_sound
from scoring.run import run_rank
from scoring.status import read_statuses, true_exit_code
from tests.launches import assert_same, notes, score_here, settings_of
from tests.made_runs import MadeBuild, make_build
from tests.ranks import run_ranks

SETTINGS = {"max_length": 64, "tile_tokens": 256}


@pytest.fixture
def build(tmp_path: Path) -> MadeBuild:
    """A build of 27 short notes in two departments of several shards."""
    return make_build(tmp_path / "corpus", notes(27, 3))


def damage(build: MadeBuild, *numbers: int) -> Callable[[], None]:
    """Flip a byte in some shards; gives what undoes it."""
    paths = [build.folder / build.manifest.shards[number].path for number in numbers]
    sound = {path: path.read_bytes() for path in paths}
    for path, content in sound.items():
        path.write_bytes(content[:50] + bytes([content[50] ^ 1]) + content[51:])

    def restore() -> None:
        for path, content in sound.items():
            path.write_bytes(content)

    return restore


def score_as_rank(identity: RankIdentity, *, corpus: Path, run: Path, model: Path) -> None:
    """One rank of a run."""
    run_rank(corpus, run, settings_of(model, **SETTINGS), identity=identity)


def test_only_broken_shards_are_left_out(build: MadeBuild, tiny_llama: Path, tmp_path: Path) -> None:
    """Two broken shards are listed with 65, all other blocks are published; restored, only theirs are scored, alike."""
    score_here(build.corpus, tmp_path / "whole", tiny_llama, **SETTINGS)
    restore, run = damage(build, 1, 3), tmp_path / "run"
    broken = {build.manifest.shards[number].shard_id for number in (1, 3)}

    with pytest.raises(IntegrityError) as caught:
        score_here(build.corpus, run, tiny_llama, **SETTINGS)
    kept = {partial.path: partial.path.stat().st_mtime_ns for partial in list_partials(run)}
    code, is_sealed = true_exit_code(run, read_statuses(run)), (run / "COMPLETE").exists()
    restore()
    score_here(build.corpus, run, tiny_llama, **SETTINGS)

    assert "2 shards are not what was sealed; they were left out" in str(caught.value)
    assert all(shard_id in str(caught.value) for shard_id in broken)
    assert (code, is_sealed) == (65, False)
    assert {partial.key.shard_id for partial in list_partials(tmp_path / "whole")} - broken == {
        path.name.split(".")[0] for path in kept
    }
    assert all(path.stat().st_mtime_ns == time for path, time in kept.items())
    assert_same(run, tmp_path / "whole")


@pytest.mark.slow
def test_every_rank_ends_with_the_list(build: MadeBuild, tiny_llama: Path, tmp_path: Path) -> None:
    """The rank that met the broken shard and the one that did not both say which it is, after all work is done."""
    damage(build, 2)
    run = tmp_path / "run"

    outcomes = run_ranks(functools.partial(score_as_rank, corpus=build.corpus, run=run, model=tiny_llama), 2)

    assert {outcome.error for outcome in outcomes.values()} == {"IntegrityError"}
    assert len({outcome.message for outcome in outcomes.values()}) == 1
    assert build.manifest.shards[2].shard_id in outcomes[0].message
    num_blocks = sum(len(shard.blocks) for shard in build.manifest.shards)
    assert len(list_partials(run)) == num_blocks - len(build.manifest.shards[2].blocks)


def test_shards_of_all_ranks_are_listed_once() -> None:
    """Ranks that met the same shard, or others, make one sorted list."""
    with pytest.raises(IntegrityError, match=r"^3 shards .*: a, b, c; of a\.parquet: size;"):
        require_sound(
            [{"b": "b.parquet: size"}, {}, {"c": "c.parquet: size", "b": "b.parquet: size"}, {"a": "a.parquet: size"}]
        )

    require_sound([{}, {}])
