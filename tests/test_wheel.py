"""What we ship is what we test: the wheel, installed elsewhere, runs without the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("schemas", "sharding", "scoring", "aggregate")
STAGES = PACKAGES[1:]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from this checkout by the project's own build system."""
    pytest.importorskip("hatchling", reason="hatchling builds the wheel and is not installed here")
    pytest.importorskip("build", reason="build drives the build system and is not installed here")
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    [path] = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder outside of the checkout in which the wheel is installed."""
    folder = tmp_path_factory.mktemp("installed")
    options = ["--no-deps", "--no-index", "--no-compile", "--disable-pip-version-check", "--target", str(folder)]
    command = [sys.executable, "-m", "pip", "install", "--quiet", *options, str(wheel)]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    return folder


def run(installed: Path, empty: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Python in an empty folder, knowing our packages by the installed wheel alone."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PPL_", "PYTHON"))}
    return subprocess.run(
        [sys.executable, *arguments],
        check=False,
        capture_output=True,
        text=True,
        cwd=empty,
        env=environment | {"PYTHONPATH": str(installed)},
        timeout=300,
    )


def test_the_wheel_holds_our_packages_and_nothing_else(wheel: Path) -> None:
    """Every tracked file of the four packages, templates too, the licence, and no test."""
    tracked = subprocess.run(
        ["git", "ls-files", *PACKAGES], check=True, capture_output=True, text=True, cwd=ROOT
    ).stdout.split()

    names = zipfile.ZipFile(wheel).namelist()
    ours = {name for name in names if ".dist-info/" not in name}

    assert sorted(set(tracked) - ours) == []
    assert {name.split("/")[0] for name in ours} == set(PACKAGES)
    assert {f"{package}/py.typed" for package in PACKAGES} <= ours  # so that type checkers read our annotations
    assert any(name.endswith("/licenses/LICENSE") for name in names)


def test_the_wheel_is_for_every_platform(wheel: Path) -> None:
    """One pure wheel, with the version and Python of the project file."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    archive = zipfile.ZipFile(wheel)
    [metadata] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]

    described = archive.read(metadata).decode()

    assert wheel.name == f"{project['name']}-{project['version']}-py3-none-any.whl"
    assert f"\nVersion: {project['version']}\n" in described
    assert f"\nRequires-Python: {project['requires-python']}\n" in described


@pytest.mark.parametrize("package", STAGES)
@pytest.mark.parametrize("flag", ["--help", "--version"])
def test_an_installed_command_line_answers(package: str, flag: str, installed: Path, tmp_path: Path) -> None:
    """Each stage runs from the wheel alone, away from the checkout."""
    done = run(installed, tmp_path, "-m", package, flag)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout


def test_every_installed_module_can_be_imported(installed: Path, tmp_path: Path) -> None:
    """No module needs a file that stayed behind, and all of them come from the installed folder."""
    program = (
        "import importlib, pkgutil, sys\n"
        f"for package in {PACKAGES!r}:\n"
        "    root = importlib.import_module(package)\n"
        "    for found in pkgutil.walk_packages(root.__path__, package + '.'):\n"
        "        if not found.name.endswith('.__main__'):\n"
        "            print(importlib.import_module(found.name).__file__)\n"
    )

    done = run(installed, tmp_path, "-c", program)

    assert (done.returncode, done.stderr) == (0, "")
    places = done.stdout.split()
    assert len(places) > 20
    assert [place for place in places if not place.startswith(str(installed))] == []
