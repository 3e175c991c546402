"""Launches do not mistake each other's keys, and a damaged sealed run is mended by the command that made it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from torch.distributed import HashStore

from aggregate.collect import collect
from aggregate.runs import open_run
from schemas.errors import TemporaryError, UsageError
from schemas.folders import open_build
from schemas.partials import list_partials
from scoring.assignment import RankIdentity
from scoring.sync import ROUND_KEY, _join_round
from tests.launches import notes, score_here
from tests.made_runs import MadeBuild, make_build


@pytest.fixture(scope="module")
def small_build(tmp_path_factory: pytest.TempPathFactory) -> MadeBuild:
    """Eight short notes; read only."""
    return make_build(tmp_path_factory.mktemp("small") / "corpus", notes(8, 2))


def test_ranks_agree_on_a_round_that_no_earlier_launch_used() -> None:
    """Keys that an earlier round has left, answers included, are passed over by every rank."""
    store = HashStore()
    store.set(ROUND_KEY, "old")
    store.set("old/go", "a,b,c")
    ranks = [RankIdentity(rank=rank, num_ranks=3, address="localhost", port=1) for rank in (2, 1, 0)]

    with ThreadPoolExecutor(3) as pool:
        rounds = list(pool.map(lambda identity: _join_round(store, identity, 20.0), ranks))

    assert len(set(rounds)) == 1
    assert rounds[0] != "old"


def test_a_rank_that_waits_for_a_dead_round_is_told_which_rank_is_missing() -> None:
    """Without rank 0 the old round is not joined; the message names rank 0."""
    store = HashStore()
    store.set(ROUND_KEY, "old")
    store.set("old/go", "a,b")

    with pytest.raises(TemporaryError, match="start: rank 0 gave no sign of life"):
        _join_round(store, RankIdentity(rank=1, num_ranks=2, address="localhost", port=1), 0.3)


@pytest.mark.parametrize("damage", ["cut", "deleted"])
def test_a_damaged_sealed_run_is_mended(damage: str, small_build: MadeBuild, tiny_llama: Path, tmp_path: Path) -> None:
    """The cure that verify names works: the same command scores the broken block again and seals the same bits."""
    run = tmp_path / "run"
    score_here(small_build.corpus, run, tiny_llama)
    names = [partial.path.name for partial in list_partials(run)]
    broken = list_partials(run)[1].path
    broken.unlink() if damage == "deleted" else broken.write_bytes(broken.read_bytes()[:-1])

    score_here(small_build.corpus, run, tiny_llama)

    assert [partial.path.name for partial in list_partials(run)] == names
    assert collect(open_build(small_build.corpus), open_run(run), advance=lambda _=1: None).checks


def test_a_run_is_never_written_into_a_build(small_build: MadeBuild, tiny_llama: Path) -> None:
    """It would be a stranger there, and the build's next check would fail."""
    with pytest.raises(UsageError, match="inside a build"):
        score_here(small_build.corpus, small_build.folder / "run", tiny_llama)
