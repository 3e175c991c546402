"""The precision check of a run: what it finds, when it fails, and the run that falls back to fp32."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from schemas.documents import read_document
from schemas.drift import add_sums, drifts_of, sums_of
from schemas.errors import DataError, UsageError
from schemas.manifests import RunHeader
from schemas.partials import list_partials, read_partial
from schemas.precision import is_sampled, policy_of
from scoring.cli import cli
from tests.commands import run_command
from tests.launches import arguments_of, complete, launch, notes, partial_names, score_here
from tests.made_runs import MadeBuild, MadeRecord, make_build
from tests.models import SENTENCES

BASE: dict[str, Any] = {"max_length": 64, "tile_tokens": 256}
REDUCED: dict[str, Any] = {**BASE, "precision": "fp32:30,mixed:60,bf16", "precision_check": 0.6}
STRICT: dict[str, Any] = {**REDUCED, "max_drift": 0.0}


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> MadeBuild:
    """A build of 45 notes, short to long, some of them twice; read only."""
    longer = [MadeRecord(f"m{index}", text=(SENTENCES[index % 6] * 3)[: 20 + 9 * (index % 9)]) for index in range(18)]
    return make_build(tmp_path_factory.mktemp("corpus"), [*notes(27, 2), *longer])


@pytest.fixture(scope="module")
def plain(build: MadeBuild, tiny_llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run in fp32; read only."""
    run = tmp_path_factory.mktemp("plain") / "run"
    score_here(build.corpus, run, tiny_llama, **BASE)
    return run


@pytest.fixture(scope="module")
def checked(build: MadeBuild, tiny_llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of three bands whose drift is tolerated; read only."""
    run = tmp_path_factory.mktemp("checked") / "run"
    score_here(build.corpus, run, tiny_llama, **REDUCED, max_drift=1.0)
    return run


@pytest.fixture
def copy(checked: Path, tmp_path: Path) -> Path:
    """The same, to be changed."""
    return shutil.copytree(checked, tmp_path / "run")


def rows_of(run: Path) -> dict[bytes, dict[str, Any]]:
    """Every row of a run by its record."""
    found = {}
    run_id = read_document(run / "run.json", RunHeader).run_id
    for partial in list_partials(run):
        table, _ = read_partial(partial, run_id=run_id, features=[])
        found.update({row["record_id"]: row for row in table.to_pylist()})
    return found


def content(run: Path) -> dict[str, bytes]:
    """Every file of a run."""
    return {str(path.relative_to(run)): path.read_bytes() for path in run.rglob("*") if path.is_file()}


def assert_fell_back(run: Path, plain: Path) -> None:
    """A run is that of fp32 from the start, to the bit, and says what was asked for and found."""
    assert partial_names(run) == partial_names(plain)
    assert complete(run).totals == complete(plain).totals
    assert complete(run).run_id == complete(plain).run_id
    assert complete(run).drift == []
    header, wanted = (read_document(folder / "run.json", RunHeader) for folder in (run, plain))
    assert header.fallback is not None
    assert header.fallback.asked == REDUCED["precision"]
    assert {found.verdict for found in header.fallback.drift} == {"above"}
    assert header.model_copy(update={"fallback": None}) == wanted


def test_the_sample_is_scored_in_fp32_too(checked: Path, plain: Path) -> None:
    """Sampled records of reduced bands have beside their loss, to the bit, that of a run in fp32; no others have."""
    found, wanted = rows_of(checked), rows_of(plain)

    due = {key for key, row in found.items() if row["precision"] != "fp32" and row["status"] == "scored"}
    due = {key for key in due if is_sampled(key, 0.6)}
    assert {row["precision"] for row in found.values()} == {"fp32", "mixed", "bf16"}
    assert {key for key, row in found.items() if row["check_loss_nats"] is not None} == due
    assert all(found[key]["check_loss_nats"] == wanted[key]["loss_nats"] != found[key]["loss_nats"] for key in due)
    assert all(row["loss_nats"] == wanted[key]["loss_nats"] for key, row in found.items() if row["precision"] == "fp32")
    assert all(row["check_loss_nats"] is None for row in wanted.values())


def test_the_drift_is_that_of_the_partials(checked: Path) -> None:
    """What COMPLETE says of each band follows from the rows alone."""
    manifest, header = complete(checked), read_document(checked / "run.json", RunHeader)
    policy = policy_of(header.fingerprint)
    tables = [read_partial(item, run_id=header.run_id, features=[])[0] for item in list_partials(checked)]

    expected = drifts_of(add_sums([sums_of(table, policy, "") for table in tables]), policy, limit=1.0)

    assert manifest.drift == expected
    assert [(item.precision, item.up_to, item.verdict) for item in expected] == [
        ("mixed", 60, "within"),
        ("bf16", None, "within"),
    ]
    assert all(item.sums["num_records"] > 2 for item in expected)


@pytest.mark.parametrize("way", [{"dedup": False}, {"cache": True}])
def test_the_check_does_not_depend_on_what_is_recalled(
    way: dict[str, Any], checked: Path, build: MadeBuild, tiny_llama: Path, tmp_path: Path
) -> None:
    """Without dedup, and with a cache that an earlier run filled, partials and drift are the same."""
    settings = {**REDUCED, "max_drift": 1.0, **way}
    if "cache" in way:
        settings["cache"] = tmp_path / "cache"
        score_here(build.corpus, tmp_path / "first", tiny_llama, **settings)

    score_here(build.corpus, tmp_path / "run", tiny_llama, **settings)

    assert partial_names(tmp_path / "run") == partial_names(checked)
    assert complete(tmp_path / "run").drift == complete(checked).drift


def test_a_drift_over_the_limit_fails_the_run(
    copy: Path, build: MadeBuild, tiny_llama: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit 65 and one line with both bands; nothing is sealed, and a finished run under a stricter limit stays."""
    before = content(copy)

    fresh = run_command(cli, arguments_of(build.corpus, tmp_path / "fresh", tiny_llama, **STRICT), capsys)
    again = run_command(cli, arguments_of(build.corpus, tmp_path / "fresh", tiny_llama, **STRICT), capsys)
    finished = run_command(cli, arguments_of(build.corpus, copy, tiny_llama, **STRICT), capsys)

    assert (fresh.code, again.code, finished.code) == (65, 65, 65)
    for outcome in (fresh, again, finished):
        assert outcome.err.count("error:") == 1
        assert "precision check: mixed:60: " in outcome.err
        assert "; bf16: " in outcome.err
        assert "use --on-drift fp32" in outcome.err
    assert not (tmp_path / "fresh" / "COMPLETE").exists()
    assert content(copy) == before


def test_a_run_that_falls_back_is_that_of_fp32(
    build: MadeBuild, tiny_llama: Path, plain: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With --on-drift fp32 the run says so and goes on to the bits of fp32; the same command then does nothing."""
    arguments = arguments_of(build.corpus, tmp_path / "run", tiny_llama, **STRICT, on_drift="fp32")

    first = run_command(cli, arguments, capsys)
    after = content(tmp_path / "run")
    second = run_command(cli, arguments, capsys)

    assert (first.code, second.code) == (0, 0)
    assert_fell_back(tmp_path / "run", plain)
    assert "the drift is over the limit" in first.err
    assert "! asked for in fp32:30,mixed:60,bf16, scored in fp32 where that drifts over the limit" in second.out
    assert "precision mixed:60: " in second.out
    assert content(tmp_path / "run") == after


def test_only_the_band_that_drifts_falls_back(
    checked: Path, build: MadeBuild, tiny_llama: Path, tmp_path: Path
) -> None:
    """Of two bands the one over the limit is scored in fp32, and the other one is checked as before."""
    small, large = sorted(abs(item.drift or 0) for item in complete(checked).drift)
    worst = max(complete(checked).drift, key=lambda item: abs(item.drift or 0))
    bands = {"mixed": "fp32:60,bf16", "bf16": "fp32:30,mixed:60,fp32"}[worst.precision]

    settings = {**REDUCED, "max_drift": (small + large) / 2}
    score_here(build.corpus, tmp_path / "run", tiny_llama, **settings, on_drift="fp32")
    score_here(build.corpus, tmp_path / "direct", tiny_llama, **{**settings, "precision": bands})

    assert partial_names(tmp_path / "run") == partial_names(tmp_path / "direct")
    assert complete(tmp_path / "run").run_id == complete(tmp_path / "direct").run_id
    assert complete(tmp_path / "run").drift == complete(tmp_path / "direct").drift
    assert [item.verdict for item in complete(tmp_path / "run").drift] == ["within"]


@pytest.mark.parametrize("moment", ["sealed", "before the header", "behind the header", "half removed"])
def test_a_kill_while_falling_back_is_resumed(
    moment: str, copy: Path, build: MadeBuild, tiny_llama: Path, plain: Path, tmp_path: Path
) -> None:
    """Whatever a kill leaves of the two runs in one folder, the same command ends in the run of fp32."""
    if moment != "sealed":
        (copy / "COMPLETE").unlink()
    if moment in ("behind the header", "half removed"):
        score_here(build.corpus, tmp_path / "other", tiny_llama, **STRICT, on_drift="fp32")
        shutil.copy(tmp_path / "other" / "run.json", copy / "run.json")
    if moment == "half removed":
        for partial in list_partials(copy)[::2]:
            partial.path.unlink()

    score_here(build.corpus, copy, tiny_llama, **STRICT, on_drift="fp32")

    assert_fell_back(copy, plain)


def test_nothing_sampled_is_said(build: MadeBuild, tiny_llama: Path, tmp_path: Path) -> None:
    """A sample of no record tells nothing of the drift: the run goes on, and COMPLETE says that it is unknown."""
    score_here(build.corpus, tmp_path / "run", tiny_llama, **{**STRICT, "precision_check": 1e-9})

    assert {item.verdict for item in complete(tmp_path / "run").drift} == {"undefined"}


def test_a_fallen_run_is_no_answer_to_other_settings(build: MadeBuild, tiny_llama: Path, tmp_path: Path) -> None:
    """Who asks for the reduced bands without a fallback is not given a run in fp32."""
    score_here(build.corpus, tmp_path / "run", tiny_llama, **STRICT, on_drift="fp32")

    with pytest.raises(UsageError, match="differs in precision, precision_check; use another --out"):
        score_here(build.corpus, tmp_path / "run", tiny_llama, **STRICT)


def test_a_limit_is_no_part_of_the_numbers(copy: Path, checked: Path, build: MadeBuild, tiny_llama: Path) -> None:
    """Under another limit that holds, a finished run is the same run."""
    found = score_here(build.corpus, copy, tiny_llama, **REDUCED, max_drift=0.9)

    assert found == complete(checked)
    with pytest.raises(DataError, match="precision check"):
        score_here(build.corpus, copy, tiny_llama, **STRICT)


@pytest.mark.slow
@pytest.mark.parametrize("num_ranks", [2, 3])
def test_ranks_agree_on_the_drift_and_fall_back_together(
    num_ranks: int, build: MadeBuild, tiny_llama: Path, checked: Path, plain: Path, tmp_path: Path
) -> None:
    """Any number of ranks finds the same drift, bit by bit, and falls back to the same run."""
    tolerant = launch(
        arguments_of(build.corpus, tmp_path / "a", tiny_llama, **REDUCED, max_drift=1.0), num_ranks=num_ranks
    )
    strict = launch(
        arguments_of(build.corpus, tmp_path / "b", tiny_llama, **STRICT, on_drift="fp32"), num_ranks=num_ranks
    )

    assert (tolerant.code, strict.code) == (0, 0)
    assert complete(tmp_path / "a").drift == complete(checked).drift
    assert_fell_back(tmp_path / "b", plain)
