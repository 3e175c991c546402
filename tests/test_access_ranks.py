"""Ranks of one launch that have keyrings of their own: each scores what it was granted, together they score all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from schemas.partials import list_partials
from scoring.status import read_statuses
from tests.pipelines import environment, stage, torchrun
from tests.secured import DEPARTMENTS, GRANTS, Secured, make_secured

# What a node's own start script does: it names the keyring of the node.
NODE = 'exec env PPL_KEYRING="$KEYRINGS/$RANK" PPL_PRINCIPAL="$(ls "$KEYRINGS/$RANK" | sed s/.json//)" "$@"'


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory, scheduler: str) -> Secured:
    """An encrypted build of six departments; read only."""
    return make_secured(tmp_path_factory.mktemp("secured"), scheduler)


def launch(secured: Secured, run: Path, model: Path, principals: list[str]) -> subprocess.CompletedProcess[str]:
    """A launch by torchrun whose ranks are these principals, each with a folder that holds its keyring alone."""
    keyrings = run.parent / f"keyrings-{'-'.join(principals)}"
    for rank, principal in enumerate(principals):
        (keyrings / str(rank)).mkdir(parents=True, mode=0o700)
        keyring = keyrings / str(rank) / f"{principal}.json"
        keyring.touch(mode=0o600)
        keyring.write_bytes((secured.keyrings / f"{principal}.json").read_bytes())
    launcher = [*torchrun(len(principals))[:-1], "--no-python", "sh", "-c", NODE, "sh"]
    command = ["-m", "scoring", "run", secured.corpus, "--model", model, "--out", run, "--threads-per-rank", 1]
    return subprocess.run(
        [sys.executable, "-m", *launcher, sys.executable, *map(str, command)],
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
        env={**environment(), "KEYRINGS": str(keyrings)},
    )


@pytest.mark.slow
def test_ranks_with_their_own_keyrings_score_a_build_together(
    secured: Secured, tiny_llama: Path, tmp_path: Path
) -> None:
    """Two ranks score five departments and name the sixth by its code; with a third the run is as the owner's."""
    run = tmp_path / "run"

    two = launch(secured, run, tiny_llama, ["north", "south"])
    codes = {status.exit_code for status in read_statuses(run)}
    scored = {partial.key.department for partial in list_partials(run)}
    three = launch(secured, run, tiny_llama, ["south", "east", "north"])
    alone = tmp_path / "alone"
    stage("scoring", "run", secured.corpus, "--model", tiny_llama, "--out", alone, "--threads-per-rank", 1)

    granted = {secured.code_of[DEPARTMENTS[at]] for name in ("north", "south") for at in GRANTS[name]}
    lacking = secured.code_of[DEPARTMENTS[5]]
    assert (two.returncode, codes, scored) == (1, {77}, granted)
    assert f"1 departments lack a principal who may score them: {lacking}" in two.stderr
    assert three.returncode == 0, three.stderr[-2000:]
    assert [item.path.name for item in list_partials(run)] == [item.path.name for item in list_partials(alone)]


@pytest.mark.slow
def test_no_rank_writes_what_it_may_not_read(secured: Secured, tiny_llama: Path, tmp_path: Path) -> None:
    """The partials of each rank's folder are of its own departments alone, and its audit log has no other reads."""
    run = tmp_path / "run"

    launch(secured, run, tiny_llama, ["north", "south"])

    for rank, name in enumerate(("north", "south")):
        granted = {secured.code_of[DEPARTMENTS[at]] for at in GRANTS[name]}
        found = {path.name.rpartition("-")[0] for path in (run / "partials" / f"rank-{rank:05d}").iterdir()}
        log = (run / "audit" / f"rank-{rank:05d}.jsonl").read_text()
        others = set(secured.code_of.values()) - granted
        reads = [line for line in log.splitlines() if '"read"' in line]
        assert found == granted
        assert reads
        assert not [line for line in reads if any(code in line for code in others)]
