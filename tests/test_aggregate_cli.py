"""The command line of stage 3."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from aggregate.cli import cli
from aggregate.outputs import report_files
from tests.commands import run_command
from tests.made_runs import MadeBuild, MadeRecord, make_build, make_run, report_of

ALL = ("--min-cell", "0")
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def build(tmp_path: Path) -> MadeBuild:
    """A small build with two features."""
    records = [MadeRecord(f"n{i}", department=f"d{i % 2}", features=("a", "0-127"), loss=i / 3) for i in range(7)]
    return make_build(tmp_path / "corpus", records, features=["age_band", "length_band"])


@pytest.fixture
def run(tmp_path: Path, build: MadeBuild) -> Path:
    """Its run on three ranks."""
    return make_run(tmp_path / "run", build, num_ranks=3)


def test_report_writes_four_files_and_prints_the_figures(
    build: MadeBuild, run: Path, tmp_path: Path, capsys: Capture
) -> None:
    """Exit 0, the files of the report, the overall figures and strata on stdout, and the path of the page."""
    done = run_command(cli, ["report", build.corpus, run, "--out", tmp_path / "out", *ALL], capsys)

    assert (done.code, done.err) == (0, "")
    expected = report_files(report_of(build, run, "department", "length_band", department_names=False))
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == expected
    for text in ("token_perplexity", "bits_per_byte", "d-", "0-127", "macro average", "! shards not encrypted"):
        assert text in done.out
    assert done.out.endswith(f"page: {tmp_path / 'out' / 'report.html'}\n")


def test_report_as_json_is_one_object(build: MadeBuild, run: Path, tmp_path: Path, capsys: Capture) -> None:
    """--json prints the figures of report.json."""
    arguments = ["report", build.folder, run, "--out", tmp_path / "out", "--by", "department,age_band", "--json", *ALL]

    done = run_command(cli, arguments, capsys)

    printed, written = json.loads(done.out), json.loads((tmp_path / "out" / "report.json").read_bytes())["body"]
    assert printed["whole"] == written["whole"]
    assert printed["marks"] == ["shards not encrypted", "small cells shown"]
    assert [crossing["columns"] for crossing in printed["crossings"]] == [["department", "age_band"]]


def test_second_report_is_a_no_op_and_another_needs_force(
    build: MadeBuild, run: Path, tmp_path: Path, capsys: Capture
) -> None:
    """The same report again exits 0 and says so; other settings exit 2 until --force is given."""
    base: list[object] = ["report", build.corpus, run, "--out", tmp_path / "out", *ALL]
    run_command(cli, base, capsys)

    again = run_command(cli, base, capsys)
    refused = run_command(cli, [*base, "--department-names"], capsys)
    forced = run_command(cli, [*base, "--department-names", "--force"], capsys)

    assert (again.code, "already there" in again.err) == (0, True)
    assert (refused.code, "--force" in refused.err) == (2, True)
    assert forced.code == 0


def test_unknown_column_exits_2_with_the_columns_there_are(
    build: MadeBuild, run: Path, tmp_path: Path, capsys: Capture
) -> None:
    """A slip in --by costs one line and writes nothing."""
    done = run_command(cli, ["report", build.corpus, run, "--out", tmp_path / "out", "--by", "ward"], capsys)

    assert done.code == 2
    assert done.err == "error: --by: unknown 'ward'; this build has department, age_band, length_band\n"
    assert not (tmp_path / "out").exists()


def test_report_inside_a_sealed_folder_is_refused(build: MadeBuild, run: Path, capsys: Capture) -> None:
    """A report among the files of a run or build would break their next check: exit 2, nothing written."""
    for out in (run, run / "report", build.folder / "report"):
        done = run_command(cli, ["report", build.corpus, run, "--out", out], capsys)

        assert (done.code, "which is sealed" in done.err) == (2, True)
    assert run_command(cli, ["verify", build.corpus, run], capsys).code == 0


def test_settings_come_from_toml_and_flags_win(build: MadeBuild, run: Path, tmp_path: Path, capsys: Capture) -> None:
    """[aggregate] in a TOML file sets the crossings; --by on the command line replaces them."""
    (tmp_path / "ppl.toml").write_text('[aggregate]\nby = ["age_band"]\n\n')
    base = ["report", build.corpus, run, "--config", tmp_path / "ppl.toml", "--json"]

    from_file = run_command(cli, [*base, "--out", tmp_path / "a"], capsys)
    from_flag = run_command(cli, [*base, "--out", tmp_path / "b", "--by", "department"], capsys)

    assert [crossing["columns"] for crossing in json.loads(from_file.out)["crossings"]] == [["age_band"]]
    assert json.loads(from_file.out)["whole"] == {"status": "suppressed"}
    (crossing,) = json.loads(from_flag.out)["crossings"]
    assert crossing["columns"] == ["department"]
    assert all(stratum["values"][0]["label"].startswith("d-") for stratum in crossing["strata"])


def test_verify_prints_each_check_with_its_count(build: MadeBuild, run: Path, capsys: Capture) -> None:
    """Every check has a line and a number, and the numbers are those of the build and run."""
    plain = run_command(cli, ["verify", build.corpus, run], capsys)
    as_json = run_command(cli, ["verify", build.corpus, run, "--json"], capsys)

    assert (plain.code, as_json.code) == (0, 0)
    checks = json.loads(as_json.out)["checks"]
    assert checks["run: records equal to the shards', in order"] == 7
    assert checks["run: rank status files"] == 3
    assert checks["build: blocks as sealed"] == checks["run: partials with their seal, each block once"]
    assert all(name in plain.out for name in checks)


@pytest.mark.parametrize("command", ["report", "verify"])
def test_folders_that_are_not_there_exit_2(build: MadeBuild, tmp_path: Path, capsys: Capture, command: str) -> None:
    """A wrong path is a usage error in one line, not a traceback."""
    out: list[object] = ["--out", tmp_path / "out"] if command == "report" else []

    no_build = run_command(cli, [command, tmp_path / "nothing", tmp_path / "nothing", *out], capsys)
    no_run = run_command(cli, [command, build.corpus, tmp_path / "nothing", *out], capsys)

    for done in (no_build, no_run):
        assert done.code == 2
        assert done.err.startswith("error: ")
        assert done.err.count("\n") == 1
