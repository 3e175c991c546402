"""What README tells a new user to type is typed here."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.pipelines import ROOT, environment

README = (ROOT / "README.md").read_text(encoding="utf-8")
CONSOLE_BLOCK = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
TOML_BLOCK = re.compile(r"^```toml\n(.*?)^```", re.MULTILINE | re.DOTALL)
SECONDS = 1700


def commands() -> list[str]:
    """Every command of every console block, in order."""
    return [
        line.removeprefix("$ ")
        for block in CONSOLE_BLOCK.findall(README)
        for line in block.splitlines()
        if line.startswith("$ ")
    ]


def test_the_three_stages_run_as_written(tiny_llama: Path, tmp_path: Path) -> None:
    """All commands but make's, typed in a folder with a model, exit with 0 and leave a report."""
    (tmp_path / "model").symlink_to(tiny_llama)
    programs = Path(sys.executable).parent
    typed = [command for command in commands() if not command.startswith("make ")]

    for command in typed:
        words = shlex.split(command)
        program = [sys.executable] if words[0] == "python" else [sys.executable, "-m", "torch.distributed.run"]
        assert words[0] in {"python", "torchrun"}, command
        done = subprocess.run(
            [*program, *words[1:]],
            cwd=tmp_path,
            env=environment() | {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"},
            check=False,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
        assert done.returncode == 0, f"{command}: {done.stderr[-2000:]}"

    assert len(typed) >= 9
    assert (tmp_path / "report" / "report.html").stat().st_size > 10_000


def test_the_settings_file_is_accepted(tmp_path: Path) -> None:
    """The TOML example loads in all three stages, and sets what it says."""
    from aggregate.config import ReportSettings
    from schemas.settings import load_settings
    from scoring.config import ScoringSettings
    from sharding.config import ShardingSettings

    [example] = TOML_BLOCK.findall(README)
    path = tmp_path / "exactppl.toml"
    path.write_text(example, encoding="utf-8")

    stages = {"sharding": ShardingSettings, "scoring": ScoringSettings, "aggregate": ReportSettings}
    loaded = {
        name: load_settings(model, name, flags={}, config_file=path, environment={}) for name, model in stages.items()
    }

    assert tomllib.loads(example).keys() == loaded.keys() | {"departments"}
    assert loaded["sharding"].model_dump()["departments"] == tomllib.loads(example)["departments"]
    assert loaded["scoring"].model_dump()["max_length"] == tomllib.loads(example)["scoring"]["max_length"]


def test_every_make_target_that_is_named_exists() -> None:
    """README and CONTRIBUTING name no target that the Makefile lacks."""
    guide = README + (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)

    named = {
        target
        for line in re.findall(r"^(?:\$ )?make ([a-z ]+)", guide, re.MULTILINE)
        for target in line.split("#")[0].split()
    }

    assert named
    assert named <= set(targets)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_demo_runs_from_a_fresh_clone(tmp_path: Path) -> None:
    """``make demo`` in a clone with a new virtual environment prints the strata and leaves the page."""
    if shutil.which("make") is None or not (ROOT / ".git").exists():
        pytest.skip("needs make and a git checkout")
    clone = tmp_path / "exactppl"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True, timeout=SECONDS)
    clean = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}}

    done = subprocess.run(
        ["make", "demo"], cwd=clone, env=clean, check=False, capture_output=True, text=True, timeout=SECONDS
    )

    assert done.returncode == 0, done.stderr[-2000:]
    assert "token perplexity" in done.stdout
    assert (clone / "demo" / "report" / "report.html").is_file()
