"""What each rank was last doing, and the exit code that explains a failed run."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from schemas.documents import read_document
from schemas.errors import AccessDeniedError, IntegrityError, PipelineError, TemporaryError, TerminatedError, UsageError
from schemas.manifests import RankStatus
from scoring.cli import cli
from scoring.status import StatusFile, read_statuses, status_path, true_exit_code
from tests.commands import run_command
from tests.made_runs import MadeRecord, make_build, make_run


def leave(run: Path, *codes: int | None) -> list[RankStatus]:
    """Statuses of ranks that ended with these codes; None is a rank that was killed."""
    for rank, code in enumerate(codes):
        status = StatusFile(run, rank, len(codes))
        status.say("scoring" if code is None else "failed" if code else "done", exit_code=code)
    return read_statuses(run)


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        ([0, 0], 75),
        ([None, None], 75),
        ([None, 143], 75),
        ([None, 130], 75),
        ([None, 65], 65),
        ([75, 143], 75),
        ([143, 1, 75], 1),
        ([1, 2, 143], 2),
        ([2, 77], 77),
        ([77, 65, 1, 2, 75, 143, 130], 65),
        ([143, 130], 143),
        ([130, 0], 130),
        ([143, 75, None, 65], 65),
    ],
)
def test_the_failure_that_explains_the_others_counts(codes: list[int | None], expected: int, tmp_path: Path) -> None:
    """Ranks that lost a peer or were stopped only followed the one that failed."""
    assert true_exit_code(tmp_path, leave(tmp_path, *codes)) == expected


def test_a_complete_run_is_done(tmp_path: Path) -> None:
    """Once a run is sealed, what a rank said before no longer matters."""
    run = make_run(tmp_path / "run", make_build(tmp_path / "corpus", [MadeRecord("a")]), num_ranks=2)
    statuses = leave(run, 65, None)

    assert true_exit_code(run, statuses) == 0


@pytest.mark.parametrize("name", ["COMPLETE", "run.json"])
def test_a_damaged_seal_is_no_success(name: str, tmp_path: Path) -> None:
    """A cut COMPLETE, or a header that it does not seal, is an error that names the file."""
    run = make_run(tmp_path / "run", make_build(tmp_path / "corpus", [MadeRecord("a")]), num_ranks=1)
    (run / name).write_bytes((run / name).read_bytes()[:-2])

    with pytest.raises(IntegrityError, match=name):
        true_exit_code(run, read_statuses(run))


@pytest.mark.parametrize(
    ("error", "state", "code"),
    [
        (UsageError("where: what; cure"), "failed", 2),
        (IntegrityError("where: what; cure"), "failed", 65),
        (TemporaryError("where: what; cure"), "failed", 75),
        (AccessDeniedError("where: what; cure"), "failed", 77),
        (TerminatedError("where: what; cure"), "stopped", 143),
    ],
)
def test_an_expected_failure_is_left_in_the_file(error: PipelineError, state: str, code: int, tmp_path: Path) -> None:
    """The state, the code and the message of the error stand in the status, and the error goes on."""
    status = StatusFile(tmp_path, 3, 5)

    with pytest.raises(type(error)), status.reporting():
        raise error

    found = read_document(status_path(tmp_path, 3), RankStatus)
    assert (found.state, found.exit_code, found.message) == (state, code, "where: what; cure")
    assert (found.rank, found.num_ranks) == (3, 5)


def test_an_interrupt_is_130(tmp_path: Path) -> None:
    """Ctrl-C is a stop."""
    with pytest.raises(KeyboardInterrupt), StatusFile(tmp_path, 0, 1).reporting():
        raise KeyboardInterrupt

    [found] = read_statuses(tmp_path)
    assert (found.state, found.exit_code) == ("stopped", 130)


def test_a_bug_does_not_quote_what_it_worked_on(tmp_path: Path) -> None:
    """An unexpected error leaves its type and place, never its message."""
    with pytest.raises(ValueError, match="text of a note"), StatusFile(tmp_path, 0, 1).reporting():
        raise ValueError("text of a note")

    [found] = read_statuses(tmp_path)
    assert (found.state, found.exit_code) == ("failed", 1)
    assert found.message.startswith("bug: ValueError at ")
    assert "text of a note" not in found.message


@pytest.mark.parametrize("kind", [MemoryError, pa.ArrowMemoryError])
def test_a_rank_without_memory_may_be_run_again(kind: type[Exception], tmp_path: Path) -> None:
    """Out of memory while reading, encoding or writing is 75, not a bug."""
    with pytest.raises(TemporaryError, match="more memory"), StatusFile(tmp_path, 0, 1).reporting():
        raise kind("text of a note")

    [found] = read_statuses(tmp_path)
    assert (found.state, found.exit_code) == ("failed", 75)
    assert "text of a note" not in found.message


def test_a_rank_that_ends_well_is_done(tmp_path: Path) -> None:
    """A status says starting, then done with 0 and what was counted."""
    status = StatusFile(tmp_path, 0, 1)

    with status.reporting():
        before = read_statuses(tmp_path)[0].state
        status.num_blocks_done = status.num_blocks_planned = 4
        status.num_tokens = 99

    [found] = read_statuses(tmp_path)
    assert (before, found.state, found.exit_code) == ("starting", "done", 0)
    assert (found.num_blocks_done, found.num_blocks_planned, found.num_tokens) == (4, 4, 99)


def test_a_working_rank_does_not_wear_out_the_disk(tmp_path: Path) -> None:
    """Without force the file is written again only after two seconds."""
    status = StatusFile(tmp_path, 0, 1)
    status.say("scoring")
    before = status_path(tmp_path, 0).read_bytes()

    status.num_tokens = 5
    status.say("scoring", force=False)

    assert status_path(tmp_path, 0).read_bytes() == before


def test_a_damaged_status_is_named(tmp_path: Path) -> None:
    """A flipped byte in a status file is found."""
    leave(tmp_path, 0, 0)
    path = status_path(tmp_path, 1)
    path.write_bytes(path.read_bytes().replace(b"done", b"gone"))

    with pytest.raises(IntegrityError, match=r"status/rank-00001\.json: content does not match its seal"):
        read_statuses(tmp_path)


def test_status_command_ends_with_the_true_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``scoring status`` shows each rank and exits as the run should have."""
    leave(tmp_path, 143, 65, None)

    shown = run_command(cli, ["status", tmp_path], capsys)
    told = run_command(cli, ["status", tmp_path, "--json"], capsys)

    assert shown.code == told.code == 65
    assert [line.split(",")[0] for line in shown.out.splitlines()[:3]] == [
        "rank 0: failed",
        "rank 1: failed",
        "rank 2: scoring",
    ]
    assert shown.out.splitlines()[-1] == "run: exit code 65"
    result = json.loads(told.out)
    assert result["exit_code"] == 65
    assert [rank["exit_code"] for rank in result["ranks"]] == [143, 65, None]
    assert [rank["is_silent"] for rank in result["ranks"]] == [False] * 3


def test_status_of_a_complete_run_is_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A finished run's status is success."""
    build = make_build(tmp_path / "corpus", [MadeRecord("a")])

    outcome = run_command(cli, ["status", make_run(tmp_path / "run", build)], capsys)

    assert outcome.code == 0
    assert "run: exit code 0" in outcome.out


def test_status_of_no_run_is_a_usage_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder where no rank ever wrote is a slip of the command line."""
    (tmp_path / "empty").mkdir()

    outcome = run_command(cli, ["status", tmp_path / "empty"], capsys)

    assert outcome.code == 2
    assert "empty: no status files; name a run folder (the --out of scoring run)" in outcome.err


def test_writing_a_status_never_shows_half_a_file(tmp_path: Path) -> None:
    """The file is replaced whole: nothing else lies in the folder afterwards."""
    status = StatusFile(tmp_path, 0, 1)
    for _ in range(3):
        status.say("scoring")

    assert [path.name for path in (tmp_path / "status").iterdir()] == ["rank-00000.json"]
