"""Where neighbours change a row's bits, tiles are fixed within each block: results still depend on the build alone."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import pytest

from aggregate.report import marks
from aggregate.runs import open_run
from schemas.documents import read_document
from schemas.errors import IntegrityError, UsageError
from schemas.folders import open_build
from schemas.manifests import COMPOSITION_PER_BLOCK, NOT_INVARIANT, RunHeader
from schemas.partials import list_partials
from scoring.assignment import RankIdentity
from scoring.cli import cli
from scoring.run import run_rank
from tests.commands import run_command
from tests.launches import arguments_of, assert_same, notes, score_here, settings_of
from tests.made_runs import MadeBuild, make_build
from tests.mixing_models import make_mixing_model
from tests.ranks import run_ranks
from tests.sessions import score, scoring

SETTINGS = {"max_length": 64, "tile_tokens": 256}


@pytest.fixture(scope="module")
def mixing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model; read only."""
    return make_mixing_model(tmp_path_factory.mktemp("mixing"))


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> MadeBuild:
    """A build of 13 notes, some of them equal, in two departments; read only."""
    return make_build(tmp_path_factory.mktemp("corpus"), [*notes(9, 3), *notes(4, 1)])


@pytest.fixture(scope="module")
def alone(build: MadeBuild, mixing: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of one process; read only."""
    run = tmp_path_factory.mktemp("alone") / "run"
    score_here(build.corpus, run, mixing, **SETTINGS)
    return run


def score_as_rank(identity: RankIdentity, *, corpus: Path, run: Path, model: Path) -> None:
    """One rank of a run."""
    run_rank(corpus, run, settings_of(model, **SETTINGS), identity=identity)


def test_a_strict_run_is_refused(build: MadeBuild, mixing: Path, alone: Path, tmp_path: Path) -> None:
    """With strict the run ends with 65 and the cure, and a finished run of fixed tiles is none of its kind."""
    with pytest.raises(IntegrityError, match=rf"self-test tile_invariance: {NOT_INVARIANT}: .*set --tile-rows 1, or"):
        score_here(build.corpus, tmp_path / "run", mixing, strict=True, **SETTINGS)

    with pytest.raises(UsageError, match="differs in strict"):
        score_here(build.corpus, alone, mixing, strict=True, **SETTINGS)

    assert not (tmp_path / "run" / "run.json").exists()


def test_every_output_says_so(
    build: MadeBuild, mixing: Path, alone: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """run.json, the summary and the report are marked, and the rule is in the fingerprint."""
    told = run_command(cli, arguments_of(build.corpus, alone, mixing, **SETTINGS), capsys)
    asked = run_command(cli, [*arguments_of(build.corpus, alone, mixing, **SETTINGS), "--json"], capsys)
    header = read_document(alone / "run.json", RunHeader)

    assert header.selftest["tile_invariance"].startswith(NOT_INVARIANT)
    assert header.fingerprint["compute"]["composition"] == COMPOSITION_PER_BLOCK
    assert told.out.startswith(f"! {NOT_INVARIANT}\n")
    assert json.loads(asked.out)["marks"] == [NOT_INVARIANT]
    assert NOT_INVARIANT in marks(open_build(build.corpus), open_run(alone))


def test_order_of_blocks_changes_no_bit(mixing: Path) -> None:
    """Blocks in any order, alone or among others, have equal results; records cut otherwise into blocks have not."""
    texts = [record.note for record in notes(12, 3)]
    blocks = [texts[:5], texts[5:7], texts[7:]]

    with scoring(mixing, **SETTINGS) as session:
        forwards, backwards = score(session, blocks), score(session, blocks, [2, 1, 0])
        single = [score(session, [block])[0] for block in blocks]
        otherwise = score(session, [texts])[0]

    assert forwards == backwards == single
    assert [record for block in forwards for record in block] != otherwise


@pytest.mark.parametrize("num_ranks", [2, 3])
def test_ranks_and_resume_change_no_bit(
    num_ranks: int, build: MadeBuild, mixing: Path, alone: Path, tmp_path: Path
) -> None:
    """Any number of ranks, and a resume of some blocks by a single one, gives the same run."""
    run = tmp_path / "run"
    outcomes = run_ranks(functools.partial(score_as_rank, corpus=build.corpus, run=run, model=mixing), num_ranks)
    whole = [path.path.name for path in list_partials(run)]
    (run / "COMPLETE").unlink()
    for partial in list_partials(run)[1::2]:
        partial.path.unlink()

    score_here(build.corpus, run, mixing, **SETTINGS)

    assert [outcome.message for outcome in outcomes.values()] == [""] * num_ranks
    assert whole == [path.path.name for path in list_partials(run)]
    assert_same(run, alone)


def test_nothing_is_recalled(build: MadeBuild, mixing: Path, tmp_path: Path) -> None:
    """A cache of losses is refused: what it holds would have been computed beside other rows."""
    with pytest.raises(UsageError, match=f"cache: {NOT_INVARIANT}; leave out --cache, or set --tile-rows 1"):
        score_here(build.corpus, tmp_path / "run", mixing, cache=tmp_path / "cache", **SETTINGS)


def test_single_rows_need_no_mark(build: MadeBuild, mixing: Path, tmp_path: Path) -> None:
    """The cure that the refusal names works: with one row to a tile the strict run passes, unmarked."""
    score_here(build.corpus, tmp_path / "run", mixing, strict=True, tile_rows="1", **SETTINGS)

    assert read_document(tmp_path / "run" / "run.json", RunHeader).marks == []
