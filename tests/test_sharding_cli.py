"""The command line: what it prints, how it fails, and what it never says."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.folders import open_build
from sharding.cli import cli
from sharding.options import Address, features_of
from tests.builds import csv_bytes, some_rows, write_rows
from tests.commands import run_command, run_sharding

ROOT = Path(__file__).parents[1]
MAPPING = ["--id", "note_id", "--text", "note", "--department", "dept", "--patient", "mrn"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory, scheduler: str) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """A corpus built by the command, and what the command said."""
    folder = tmp_path_factory.mktemp("cli")
    source = write_rows(folder / "in.csv", some_rows(40))
    done = run_sharding("build", source, "--out", folder / "corpus", *MAPPING, "--scheduler", scheduler, "--json")
    return folder / "corpus", done


@pytest.mark.parametrize("command", [[], ["build"], ["plan"], ["inspect"], ["verify"], ["sample"]])
def test_help_is_fast(command: list[str]) -> None:
    """Nothing heavy is imported to say what a command does."""
    started = time.monotonic()

    done = run_sharding(*command, "--help")

    assert done.returncode == 0
    assert "Usage: python -m sharding" in done.stdout
    assert time.monotonic() - started < 5


def test_help_imports_nothing_heavy() -> None:
    """The module behind ``--help`` loads none of the libraries that take long."""
    heavy = {"dask", "distributed", "pyarrow", "polars", "numpy", "pydantic"}
    code = f"import sys, sharding.cli; print(*{heavy} & {{*sys.modules}})"

    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)

    assert done.stdout.strip() == ""


def test_build_prints_one_object_and_keeps_the_key_closed(
    corpus: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    """Standard output is one JSON object; the notices are on standard error; names and texts are nowhere."""
    folder, done = corpus

    result = json.loads(done.stdout)

    assert done.returncode == 0
    assert result["status"] == "built"
    assert result["ledger"]["num_kept"] == 40
    assert "made the keyring of owner" in done.stderr
    assert "record key" in done.stderr
    assert (folder / "secret" / "record-id.key").stat().st_mode & 0o777 == 0o600
    key = (folder / "secret" / "record-id.key").read_text().strip()
    manifest = (open_build(folder).folder / "manifest.json").read_text()
    assert not any(word in done.stdout + done.stderr + manifest for word in ("Cardiology", "note 1", key))


def test_inspect_shows_names_only_when_asked(corpus: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    """Codes by default, names with ``--names``; the table and the object agree."""
    folder, _ = corpus

    table, named, parsed = (run_sharding("inspect", folder, *more) for more in ([], ["--names"], ["--json"]))

    assert "Cardiology" not in table.stdout + parsed.stdout
    assert "Cardiology" in named.stdout
    departments = json.loads(parsed.stdout)["departments"]
    assert all(entry["code"] in table.stdout for entry in departments)


def test_verify_names_a_damaged_file_and_exits_65(
    corpus: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    """An intact corpus passes, plain and deep; a flipped bit fails both."""
    folder, _ = corpus
    path = next((open_build(folder).folder / "shards").rglob("*.parquet"))
    content = path.read_bytes()

    intact = [run_sharding("verify", folder), run_sharding("verify", folder, "--deep", "--json")]
    path.write_bytes(content[:100] + bytes([content[100] ^ 1]) + content[101:])
    damaged = run_sharding("verify", folder, "--deep")
    path.write_bytes(content)

    assert [done.returncode for done in intact] == [0, 0]
    assert json.loads(intact[1].stdout)["checked"]["records"] == 40
    assert damaged.returncode == 65
    assert path.name in damaged.stderr
    assert len(damaged.stderr.splitlines()) == 1


def test_all_wrong_settings_are_said_at_once(tmp_path: Path) -> None:
    """Exit code 2 and one line with every flag that is wrong."""
    source = write_rows(tmp_path / "in.csv", some_rows(2))

    wrong = ["--seed", "x", "--encoding", "no-such", "--max-rejects", "-1", "--source", "table"]

    done = run_sharding("build", source, "--out", tmp_path / "c", *wrong)

    assert done.returncode == 2
    assert all(part in done.stderr for part in ("--seed", "--encoding", "--max-rejects", "columns.text"))
    assert "Traceback" not in done.stderr


@given(st.lists(st.sampled_from(["a=x", "a=y", "b=year(x)", "c=x=y", "wrong", "=x", "d="]), max_size=6))
def test_all_wrong_features_are_said_at_once(values: list[str]) -> None:
    """By their places among the values: those without a name or column, and those whose name is given before."""
    names = [value.partition("=")[0] for value in values]
    wrong = [place for place, value in enumerate(values, start=1) if value in ("wrong", "=x", "d=")]
    sound = [place for place in range(1, len(values) + 1) if place not in wrong]
    twice = [place for place in sound if names[place - 1] in {names[other - 1] for other in sound if other < place}]

    try:
        features, said = features_of(values), ""
    except click.UsageError as error:
        features, said = {}, error.message

    assert [f"value {' and '.join(map(str, places))} of" in said for places in (wrong, twice)] == [
        bool(wrong),
        bool(twice),
    ]
    assert (said == "") == (wrong == twice == [])
    assert said or features == {name: value.partition("=")[2] for name, value in zip(names, values, strict=True)}


def test_settings_come_from_toml_too(tmp_path: Path, scheduler: str) -> None:
    """A TOML file maps columns and features as flags do, and gives the same build."""
    source = write_rows(tmp_path / "in.csv", some_rows(10))
    config = tmp_path / "settings.toml"
    config.write_text(
        '[sharding]\nseed = 4\n[sharding.columns]\nid = "note_id"\ntext = "note"\n'
        'department = "dept"\n[sharding.columns.features]\nperson = "mrn"\n'
    )
    by_flags = [*MAPPING[:6], "--feature", "person=mrn", "--seed", "4"]

    one = run_sharding("build", source, "--out", tmp_path / "c", "--config", config, "--scheduler", scheduler, "--json")
    two = run_sharding("build", source, "--out", tmp_path / "c", *by_flags, "--scheduler", scheduler, "--json")

    assert json.loads(one.stdout)["features"] == ["length_band", "person"]
    assert json.loads(two.stdout)["status"] == "already_built"
    assert json.loads(one.stdout)["build_id"] == json.loads(two.stdout)["build_id"]


def test_a_broken_row_is_never_quoted(tmp_path: Path, scheduler: str) -> None:
    """The line that stops a build for its rejects holds counts only, even with -vv."""
    path = tmp_path / "in.csv"
    path.write_bytes(csv_bytes(some_rows(3)) + b'"9","zebra words","extra","cells","here"\n')

    done = run_sharding("build", path, "--out", tmp_path / "c", *MAPPING, "--scheduler", scheduler, "-vv")

    assert done.returncode == 65
    assert "1 rejected malformed" in done.stderr
    assert "zebra" not in done.stderr + done.stdout
    assert str(tmp_path) not in done.stderr


def test_plan_prints_what_would_be_written(tmp_path: Path, scheduler: str) -> None:
    """No build folder appears, and the totals are those of the build."""
    source = write_rows(tmp_path / "in.csv", some_rows(10))

    done = run_sharding("plan", source, "--out", tmp_path / "c", *MAPPING, "--scheduler", scheduler, "--json")

    assert json.loads(done.stdout)["ledger"]["num_kept"] == 10
    assert not (tmp_path / "c" / "builds").exists()


def test_an_absent_corpus_is_a_usage_error(tmp_path: Path) -> None:
    """Exit code 2, and the message says what to name."""
    done = run_sharding("verify", tmp_path)

    assert done.returncode == 2
    assert "CURRENT" in done.stderr


@pytest.mark.parametrize(
    ("more", "named"),
    [
        (["--feature", "a=note"], "--feature a"),
        (["--feature", "b=note_id"], "--feature b"),
        (["--department", "note"], "--department"),
        (["--id", "note"], "--id"),
        (["--patient", "note_id"], "--patient"),
        (["--feature", "sex=x", "--feature", "sex=y"], "--feature"),
        (["--feature", "department=dept"], "department"),
        (["--feature", "a.b=dept"], "features"),
    ],
)
def test_a_column_with_two_roles_is_a_usage_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str], named: str
) -> None:
    """Exit code 2 with the flags in question, before anything is made."""
    source = write_rows(tmp_path / "in.csv", some_rows(2))

    done = run_command(cli, ["build", source, "--out", tmp_path / "c", *MAPPING, *more], capsys)

    assert done.code == 2
    assert named in done.err
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["build", "", "--out", "c", *MAPPING],
        ["plan", "in.csv", "", "--out", "c", *MAPPING],
        ["build", "in.csv", "--out", "", *MAPPING],
        ["inspect", ""],
        ["verify", ""],
        ["sample", ""],
    ],
)
def test_an_empty_name_is_not_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    """What an unset shell variable leaves is a usage error, also where the working folder would do."""
    write_rows(tmp_path / "in.csv", some_rows(2))
    monkeypatch.chdir(tmp_path)

    done = run_command(cli, list(arguments), capsys)

    assert done.code == 2
    assert "is a variable unset?" in done.err
    assert [path.name for path in tmp_path.iterdir()] == ["in.csv"]


@pytest.mark.parametrize(
    "more",
    [
        ["--encoding", "punycode"],
        ["--bytes-per-token", "1e-300"],
        ["--read-block-bytes", "99999999999999999999"],
        ["--target-tokens", str(10**23)],
        ["--max-rejects", "101%"],
        ["--workers", str(10**9)],
    ],
)
def test_extreme_options_are_usage_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str]) -> None:
    """Exit code 2 and one line that names the flag, before anything is made."""
    source = write_rows(tmp_path / "in.csv", some_rows(2))

    done = run_command(cli, ["build", source, "--out", tmp_path / "c", *MAPPING, *more], capsys)

    assert done.code == 2
    assert more[0] in done.err
    assert len(done.err.splitlines()) == 1
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize("address", ["garbage", "", "tcp://", "http://h:1", "tcp://h", "h:0", "h:99999", "tcp://h:x"])
def test_what_is_no_address_is_a_usage_error(tmp_path: Path, capsys: pytest.CaptureFixture[str], address: str) -> None:
    """A scheduler that cannot be is not looked for."""
    source = write_rows(tmp_path / "in.csv", some_rows(2))

    done = run_command(cli, ["build", source, "--out", tmp_path / "c", *MAPPING, "--scheduler", address], capsys)

    assert done.code == 2
    assert "--scheduler" in done.err
    assert len(done.err.splitlines()) == 1


@pytest.mark.parametrize(
    "address", ["tcp://10.0.0.1:8786", "tls://host.name:1", "h:65535", "tcp://[::1]:8786", "inproc://a/1"]
)
def test_addresses_of_schedulers_are_taken(address: str) -> None:
    """With and without a protocol, by name and by number."""
    assert Address().convert(address, None, None) == address
