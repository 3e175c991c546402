"""The scoring command line: what it refuses, and the commands that score nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scoring.cli import cli
from tests.commands import run_command
from tests.launches import notes
from tests.made_runs import MadeBuild, make_build


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> MadeBuild:
    """A build of 27 short notes in two departments; read only."""
    return make_build(tmp_path_factory.mktemp("corpus"), notes(27, 3))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "absent", "--out", "run", "--model", "absent"], "absent: no build here"),
        (["run", "{corpus}", "--out", "{tmp}/run", "--model", "absent"], "model absent: no such folder or file"),
        (["run", "{corpus}", "--out", "{tmp}/run", "--model", "m", "--max-length", "1"], "scoring.max_length"),
        (["run", "{corpus}", "--out", "{tmp}/run", "--model", "{model}", "--max-length", "300"], "256 positions"),
        (
            ["run", "{corpus}", "--out", "{tmp}/run", "--model", "m", "--max-length", "8", "--stride", "9"],
            "stride 9 is over max_length 8",
        ),
        (["run", "{corpus}", "--out", "{tmp}/run", "--model", "{model}", "--stride", "257"], "stride 257 is over"),
    ],
)
def test_what_cannot_be_run_is_a_usage_error(
    arguments: list[str],
    message: str,
    build: MadeBuild,
    tiny_llama: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A wrong path or setting ends in exit code 2 and one line that says what to change."""
    filled = [part.format(corpus=build.corpus, tmp=tmp_path, model=tiny_llama) for part in arguments]

    outcome = run_command(cli, filled, capsys)

    assert outcome.code == 2
    assert message in outcome.err
    assert outcome.err.count("error:") == 1


@pytest.mark.parametrize("num_ranks", [1, 3])
def test_plan_shows_the_deal(num_ranks: int, build: MadeBuild, capsys: pytest.CaptureFixture[str]) -> None:
    """``scoring plan`` deals all blocks without a model."""
    outcome = run_command(cli, ["plan", build.corpus, "--ranks", num_ranks, "--json"], capsys)

    result = json.loads(outcome.out)
    assert outcome.code == 0
    assert sum(rank["num_blocks"] for rank in result["ranks"]) == sum(len(s.blocks) for s in build.manifest.shards)
    assert len(result["ranks"]) == num_ranks
    assert result["max_over_mean"] >= 1


def test_selftest_command_shows_the_claims(tiny_llama: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``scoring selftest`` proves its claims on this device."""
    outcome = run_command(cli, ["selftest", "--model", tiny_llama, "--device", "cpu", "--json"], capsys)

    result = json.loads(outcome.out)
    assert outcome.code == 0
    claims = ("causality", "chunked_head", "finite_losses", "repeatability", "threads", "tile_invariance")
    assert result["selftest"] == dict.fromkeys(claims, "passed")
    assert result["device"].startswith("cpu ")
