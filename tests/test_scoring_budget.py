"""Tiles that do not fit into memory are halved before there is a result, on all ranks alike, and never after."""

from __future__ import annotations

import functools
import resource
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from schemas.documents import read_document
from schemas.errors import TemporaryError
from schemas.manifests import RunHeader
from scoring.assignment import RankIdentity
from scoring.budget import Budget, fitting_menu, probed_lengths
from scoring.run import run_rank
from scoring.session import open_session
from scoring.sync import control_plane
from scoring.tiles import Row, TileFunction, TileMenu, make_menu
from tests.launches import notes, score_here, settings_of
from tests.made_runs import make_build
from tests.ranks import run_ranks

ASKED = 1 << 18
MEBIBYTE = 1 << 20
SETTINGS = {"max_length": 256, "tile_tokens": ASKED}


def leave_room(num_bytes: int) -> None:
    """Limit this process to what it has and so much more."""
    held = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (held + num_bytes, resource.RLIM_INFINITY))


def score_in_little_room(
    _: RankIdentity, *, corpus: Path, run: Path, model: Path, room: int = 1400 * MEBIBYTE, tile_tokens: int = ASKED
) -> str:
    """A run of one process that cannot hold the tiles that are asked for."""
    leave_room(room)
    settings = settings_of(model, max_length=256, tile_tokens=tile_tokens)
    return run_rank(corpus, run, settings, identity=RankIdentity()).run_id


def agree_on_tiles(identity: RankIdentity, *, model: Path) -> int:
    """Open a session on two ranks, the first of which has little room; gives the tokens of a tile."""
    with control_plane(identity, timeout_seconds=60) as plane:
        if identity.rank == 0:
            leave_room(900 * MEBIBYTE)
        budget = Budget(may_shrink=True, agree=lambda tokens: min(plane.gather("tile-budget", tokens)))
        with open_session(settings_of(model, **SETTINGS), None, identity=identity, budget=budget) as session:
            return session.menu.tokens


def roomy(most: int) -> Callable[[TileMenu], TileFunction]:
    """Tile functions of a device that holds at most so many tokens."""

    def compute_of(menu: TileMenu) -> TileFunction:
        def compute(length: int, rows: Sequence[Row]) -> list[NDArray[np.float64]]:
            if menu.rows_of(length) * length > most:
                raise TemporaryError("tile: out of memory; cure")
            return [np.zeros(len(row.targets)) for row in rows]

        return compute

    return compute_of


@given(max_length=st.integers(2, 3000), tokens=st.integers(16, 1 << 16), most=st.integers(1, 1 << 16))
def test_tokens_are_halved_until_every_shared_tile_fits(max_length: int, tokens: int, most: int) -> None:
    """What is left fits or has one row to a tile, its lengths reach as far, and what fitted is not touched."""
    asked = make_menu(max_length, tokens=tokens, one_row=False)

    found = fitting_menu(asked, roomy(most))

    shared = [length * found.rows_of(length) for length in found.lengths if found.rows_of(length) > 1]
    assert max(shared, default=0) <= most
    assert found.lengths[-1] == asked.lengths[-1]
    if found.tokens < asked.tokens:
        larger = make_menu(max_length, tokens=asked.tokens, one_row=False)
        assert max(larger.rows_of(length) * length for length in probed_lengths(larger)) > most
    else:
        assert found == asked


def test_one_row_to_a_tile_is_not_tried() -> None:
    """There is nothing to halve, so nothing is computed."""
    menu = make_menu(512, tokens=512, one_row=True)

    assert probed_lengths(menu) == []
    assert fitting_menu(menu, roomy(0)) == menu


def test_a_run_that_has_begun_keeps_its_tiles() -> None:
    """With a header no other shape is looked for: what does not fit then ends the run."""
    menu = make_menu(512, tokens=512, one_row=False)

    assert Budget(may_shrink=False).fitting(menu, roomy(0)) == menu


@pytest.mark.slow
def test_little_memory_halves_the_tiles_of_a_new_run(tiny_llama: Path, tmp_path: Path) -> None:
    """Under a real limit the run ends well with smaller tiles, its header says from what, and a resume keeps them."""
    build, run = make_build(tmp_path / "corpus", notes(8, 3)), tmp_path / "run"
    body = functools.partial(score_in_little_room, corpus=build.corpus, run=run, model=tiny_llama)

    [outcome] = run_ranks(body, 1).values()
    header = read_document(run / "run.json", RunHeader)
    reached = header.fingerprint["compute"]["tile_tokens"]
    names = sorted(path.name for path in run.glob("partials/*/*"))
    (run / "COMPLETE").unlink()
    next(iter(run.glob("partials/*/*"))).unlink()
    resumed = score_here(build.corpus, run, tiny_llama, **SETTINGS)
    finished = score_here(build.corpus, run, tiny_llama, **SETTINGS)

    assert (outcome.message, outcome.value) == ("", header.run_id)
    assert header.reduced_from == ASKED
    assert 16 <= reached < ASKED
    assert ASKED % reached == 0
    assert resumed.run_id == finished.run_id == header.run_id
    assert names == sorted(path.name for path in run.glob("partials/*/*"))
    score_here(build.corpus, tmp_path / "other", tiny_llama, **(SETTINGS | {"tile_tokens": reached}))
    assert names == sorted(path.name for path in (tmp_path / "other").glob("partials/*/*"))


@pytest.mark.slow
def test_all_ranks_take_the_tiles_of_the_one_with_the_least_room(tiny_llama: Path) -> None:
    """A rank with all the memory it wants computes in the tiles of the one that has not."""
    outcomes = run_ranks(functools.partial(agree_on_tiles, model=tiny_llama), 2)

    assert [outcome.message for outcome in outcomes.values()] == ["", ""]
    assert outcomes[0].value == outcomes[1].value < ASKED


@pytest.mark.slow
def test_memory_that_runs_out_later_ends_the_run(tiny_llama: Path, tmp_path: Path) -> None:
    """A run that has its header ends with 75 and the cure; its shapes are never changed."""
    build, run = make_build(tmp_path / "corpus", notes(8, 3)), tmp_path / "run"
    score_here(build.corpus, run, tiny_llama, max_length=256, tile_tokens=1 << 17)
    header = (run / "run.json").read_bytes()
    (run / "COMPLETE").unlink()
    next(iter(run.glob("partials/*/*"))).unlink()
    few = {"room": 250 * MEBIBYTE, "tile_tokens": 1 << 17}
    body = functools.partial(score_in_little_room, corpus=build.corpus, run=run, model=tiny_llama, **few)

    [outcome] = run_ranks(body, 1).values()

    assert outcome.error == "TemporaryError"
    assert "out of memory; lower --tile-tokens or --max-length in a new run folder" in outcome.message
    assert (run / "run.json").read_bytes() == header
