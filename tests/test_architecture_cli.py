"""All three command lines answer at once, because nothing heavy is loaded before there is work."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
STAGES = ("sharding", "scoring", "aggregate")
HEAVY = ("pydantic", "dask", "distributed", "numpy", "pyarrow", "polars", "torch", "transformers", "rich", "jinja2")
MOST_SECONDS = 0.5


def require_cli(package: str) -> None:
    """Skip a package that has no command line yet."""
    if not (ROOT / package / "cli.py").exists():
        pytest.skip(f"{package} has no command line yet")


def seconds_of(*arguments: str) -> float:
    """CPU seconds, user and system, of one Python process of its own."""
    program = (
        "import resource, subprocess, sys\n"
        "subprocess.run([sys.executable, *sys.argv[1:]], check=True, stdout=subprocess.DEVNULL)\n"
        "used = resource.getrusage(resource.RUSAGE_CHILDREN)\n"
        "sys.stdout.write(str(used.ru_utime + used.ru_stime))"
    )
    command = [sys.executable, "-c", program, *arguments]
    return float(subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout)


@pytest.mark.parametrize("package", STAGES)
@pytest.mark.parametrize("flag", ["--help", "--version"])
def test_a_command_line_answers_at_once(package: str, flag: str) -> None:
    """Asking what a command can do takes under half a second of CPU, best of three."""
    require_cli(package)

    best = min(seconds_of("-m", package, flag) for _ in range(3))

    assert best < MOST_SECONDS


@pytest.mark.parametrize("package", STAGES)
def test_a_command_line_loads_nothing_heavy(package: str) -> None:
    """Importing a command line brings in click and the console, none of the libraries that do the work."""
    require_cli(package)
    program = f"import sys, {package}.cli; sys.stdout.write(' '.join(sorted(sys.modules)))"

    loaded = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, cwd=ROOT
    ).stdout.split()

    assert sorted({name.split(".")[0] for name in loaded} & set(HEAVY)) == []


@pytest.mark.parametrize("package", STAGES)
def test_help_and_version_go_to_stdout(package: str) -> None:
    """Both are results: code 0, stdout, and the version of the project."""
    require_cli(package)
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]

    shown, helped = (
        subprocess.run([sys.executable, "-m", package, flag], check=False, capture_output=True, text=True, cwd=ROOT)
        for flag in ("--version", "--help")
    )

    assert (shown.returncode, shown.stderr, helped.returncode, helped.stderr) == (0, "", 0, "")
    assert version in shown.stdout
    assert helped.stdout.startswith(f"Usage: python -m {package} ")
