"""Faults of similar systems with ranks and resumes, each on real processes that run the program's own ranks.

``test_resume_needs_the_same_world_size`` stands in test_scoring_stops.py, since it kills a real torchrun.
"""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from schemas.dealing import assign
from schemas.errors import IntegrityError, UsageError
from schemas.partials import list_partials
from schemas.tally import ExactSum, Tally
from scoring.assignment import RankIdentity
from scoring.run import run_rank
from scoring.sync import control_plane
from tests.launches import complete, notes, partial_names, score_here, settings_of
from tests.made_runs import MadeBuild, MadeRecord, make_build
from tests.models import SENTENCES
from tests.ranks import run_ranks
from tests.sessions import key_of, score_texts, scoring

ModelOf = Callable[[str], Path]
SETTINGS = {"max_length": 64, "tile_tokens": 256}


def score_as_rank(identity: RankIdentity, *, corpus: Path, run: Path, model: Path) -> int:
    """One rank of a run; gives the number of records that the whole run scored."""
    return run_rank(corpus, run, settings_of(model, **SETTINGS), identity=identity).totals.num_records


def score_with(num_ranks: int, corpus: Path, run: Path, model: Path) -> list[int]:
    """A run by real ranks; what each says of the whole."""
    body = functools.partial(score_as_rank, corpus=corpus, run=run, model=model)
    outcomes = run_ranks(body, num_ranks)
    assert [outcome.message for outcome in outcomes.values()] == [""] * num_ranks
    return [outcomes[rank].value for rank in range(num_ranks)]


def mean_of_dealt_losses(identity: RankIdentity, *, num_docs: int) -> float:
    """Sum loss i of document i over the ranks that were dealt it, and divide once."""
    dealt = assign({key_of(index): 1 for index in range(num_docs)}, identity.num_ranks)[identity.rank]
    losses = [float(key.block) for key in dealt]
    with control_plane(identity, timeout_seconds=60) as plane:
        total = plane.sum_exactly(Tally(ExactSum.of(losses), num_tokens=len(losses)))
    return total.loss_nats.divided_by(total.num_tokens)


def skip_or_die(identity: RankIdentity) -> None:
    """Rank 1 is killed, rank 3 returns early, the others wait at the barrier."""
    with control_plane(identity, timeout_seconds=2) as plane:
        if identity.rank == 1:
            os.kill(os.getpid(), 9)
        if identity.rank != 3:
            plane.wait_for_all("scored")


@pytest.fixture
def build(tmp_path: Path) -> MadeBuild:
    """A build of seven notes in four blocks of two departments."""
    return make_build(tmp_path / "corpus", notes(7, 3))


def test_sampler_pads_with_duplicates() -> None:
    """Documents with losses 0 … 9 on three ranks have mean 4.5: no document is repeated to even the ranks out."""
    outcomes = run_ranks(functools.partial(mean_of_dealt_losses, num_docs=10), 3)

    assert [outcome.value for outcome in outcomes.values()] == [4.5] * 3


def test_reduced_per_rank_before_the_gather() -> None:
    """Losses 0 … 8 on two ranks, five and four of them, have mean 4."""
    outcomes = run_ranks(functools.partial(mean_of_dealt_losses, num_docs=9), 2)

    assert [outcome.value for outcome in outcomes.values()] == [4.0] * 2


def test_fewer_records_than_ranks(tiny_llama: Path, tmp_path: Path) -> None:
    """Three records on four ranks: ranks without work end well, and each says that all is scored."""
    build = make_build(tmp_path / "corpus", [MadeRecord(f"n{i}", text=SENTENCES[i]) for i in range(3)])

    told = score_with(4, build.corpus, tmp_path / "run", tiny_llama)

    assert told == [3] * 4
    assert complete(tmp_path / "run").num_ranks == 4


def test_uneven_work_hangs(tiny_llama: Path, tmp_path: Path) -> None:
    """Shards of five and of one record, very long and very short, end on both ranks."""
    texts = [" ".join(SENTENCES) * 4] * 5 + ["a"]
    records = [MadeRecord(f"n{index}", "xy"[index == 5], text=text) for index, text in enumerate(texts)]
    build = make_build(tmp_path / "corpus", records)

    told = score_with(2, build.corpus, tmp_path / "run", tiny_llama)

    assert told == [6, 6]


@pytest.mark.parametrize("num_ranks", [2, 3, 7, 8])
def test_batch_size_and_world_size_change_scores(
    num_ranks: int, build: MadeBuild, tiny_llama: Path, tmp_path: Path
) -> None:
    """Seven records on 1, 2, 3, 7 and 8 ranks have bitwise equal partials and totals."""
    score_here(build.corpus, tmp_path / "one", tiny_llama, **SETTINGS)

    score_with(num_ranks, build.corpus, tmp_path / "many", tiny_llama)

    assert partial_names(tmp_path / "many") == partial_names(tmp_path / "one")
    assert complete(tmp_path / "many").totals == complete(tmp_path / "one").totals


def test_a_barrier_skipped_by_one_rank_and_a_rank_that_dies() -> None:
    """With rank 1 killed and rank 3 gone home early, the others end with an error soon after the timeout."""
    outcomes = run_ranks(skip_or_die, 4)

    assert {outcomes[rank].error for rank in (0, 2)} == {"TemporaryError"}
    assert max(outcomes[rank].seconds for rank in (0, 2)) < 10
    assert "gave no sign of life for 2 s" in outcomes[0].message


def test_model_a_s_cache_served_for_b(build: MadeBuild, model_of: ModelOf, tmp_path: Path) -> None:
    """A folder with the run of one model is refused to another, also when nothing of it was finished."""
    score_here(build.corpus, tmp_path / "run", model_of("llama"), **SETTINGS)
    with pytest.raises(UsageError, match="holds a finished run that differs in model"):
        score_here(build.corpus, tmp_path / "run", model_of("granite"), **SETTINGS)

    (tmp_path / "run" / "COMPLETE").unlink()

    with pytest.raises(UsageError, match=r"this run would differ in .*model\.architecture"):
        score_here(build.corpus, tmp_path / "run", model_of("granite"), **SETTINGS)


def test_weights_of_another_content_are_another_model(build: MadeBuild, tiny_llama: Path, tmp_path: Path) -> None:
    """One changed number in the weights, under the same name, is enough."""
    from safetensors.torch import load_file, save_file

    score_here(build.corpus, tmp_path / "run", tiny_llama, **SETTINGS)
    other = shutil.copytree(tiny_llama, tmp_path / "other" / tiny_llama.name)
    weights = load_file(other / "model.safetensors")
    weights["model.norm.weight"][0] += 2**-20
    save_file(weights, other / "model.safetensors", metadata={"format": "pt"})

    with pytest.raises(UsageError, match="differs in model"):
        score_here(build.corpus, tmp_path / "run", other, **SETTINGS)


def test_finished_run_run_again(build: MadeBuild, tiny_llama: Path, tmp_path: Path) -> None:
    """Three ranks over a finished run of two write nothing and say the same."""
    run = tmp_path / "run"
    told = score_with(2, build.corpus, run, tiny_llama)
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}

    again = score_with(3, build.corpus, run, tiny_llama)

    assert set(told + again) == {told[0]}
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before


@pytest.mark.parametrize("damage", [lambda content: content[:-1], lambda content: b"", lambda content: content + b"\0"])
def test_stale_or_short_cache(
    damage: Callable[[bytes], bytes], build: MadeBuild, tiny_llama: Path, tmp_path: Path
) -> None:
    """A partial cut by a byte, emptied or grown fails its seal; its block is scored again, to the same bits."""
    run = tmp_path / "run"
    score_here(build.corpus, run, tiny_llama, **SETTINGS)
    sealed, names = complete(run), partial_names(run)
    (run / "COMPLETE").unlink()
    broken = list_partials(run)[1].path
    broken.write_bytes(damage(broken.read_bytes()))

    score_here(build.corpus, run, tiny_llama, **SETTINGS)

    assert partial_names(run) == names
    assert complete(run) == sealed


def test_results_depend_on_order(tiny_llama: Path) -> None:
    """The same records in two orders have the same losses."""
    texts = [record.note for record in notes(12, 4)]

    with scoring(tiny_llama, **SETTINGS) as session:
        forwards, backwards = score_texts(session, texts), score_texts(session, texts[::-1])

    assert backwards[::-1] == forwards


@pytest.mark.parametrize("size", [0, -1, 7])
def test_resume_trusts_existence(size: int, build: MadeBuild, tiny_llama: Path, tmp_path: Path) -> None:
    """A shard that is empty or short is never scored: the run fails and names it."""
    path = build.folder / build.manifest.shards[0].path
    path.write_bytes(path.read_bytes()[:size])

    with pytest.raises(IntegrityError, match=rf"{build.manifest.shards[0].shard_id}\.parquet: size is \d+ bytes"):
        score_here(build.corpus, tmp_path / "run", tiny_llama, **SETTINGS)


def test_bit_flip_in_a_shard_reads_fine(build: MadeBuild, tiny_llama: Path, tmp_path: Path) -> None:
    """One bit anywhere in a shard is found before a note of it is scored."""
    shard = build.manifest.shards[0]
    path = build.folder / shard.path
    sound = path.read_bytes()

    for at in range(0, len(sound), max(1, len(sound) // 12)):
        changed: Any = bytearray(sound)
        changed[at] ^= 1 << at % 8
        path.write_bytes(changed)
        with pytest.raises(IntegrityError, match=rf"{shard.shard_id}\.parquet: sha256 is"):
            score_here(build.corpus, tmp_path / "run", tiny_llama, **SETTINGS)
    path.write_bytes(sound)

    assert score_here(build.corpus, tmp_path / "run", tiny_llama, **SETTINGS).totals.num_records == 6
