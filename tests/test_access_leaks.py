"""Markers in notes, ids and names of departments come out nowhere, whatever goes wrong and however much is logged."""

from __future__ import annotations

import base64
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import psutil
import pytest

from tests.launches import children_of
from tests.pipelines import environment, stage, torchrun
from tests.sessions import poisoned

TEXT, RAW_ID, WARD, PATIENT = (f"zqx-canary-{word}-marker" for word in ("note", "ident", "ward", "patient"))
MAPPING = ["--id", "note_id", "--text", "note", "--department", "dept", "--patient", "mrn"]

# A stage's command line that dumps core in the middle of its work, if it is let.
CRASHING = """
import os
import click
from schemas.console import launch

@click.group()
def cli(): ...

@cli.command()
def crash():
    os.abort()

import sys
sys.argv[1:] = ["crash"]
launch(cli, "crash")
"""


def rows(num_rows: int) -> list[dict[str, str | None]]:
    """Notes of three departments, every one with all markers."""
    return [
        {
            "note_id": f"{RAW_ID}-{number}",
            "note": f"{TEXT} {number} said so " * 30,
            "dept": f"{WARD} {number % 3}",
            "mrn": f"{PATIENT}-{number % 7}",
        }
        for number in range(num_rows)
    ]


def marked(said: list[str], folders: list[Path]) -> list[str]:
    """Where a marker stands: in what was said, or in a file, also within base64."""
    words = [word.encode() for word in (TEXT, RAW_ID, WARD, PATIENT)]
    words += [base64.b64encode(b"x" * shift + word)[4:-4] for word in words for shift in range(3)]
    found = [f"output {number}" for number, text in enumerate(said) if any(word in text.encode() for word in words)]
    for path in (path for folder in folders for path in folder.rglob("*") if path.is_file()):
        content = path.read_bytes()
        found += [str(path) for word in words if word in content]
        found += [str(path)] if any(word.decode() in str(path) for word in words) else []
    return found


@pytest.mark.slow
def test_markers_come_out_nowhere(tiny_llama: Path, tmp_path: Path) -> None:
    """Rejects, damaged inputs, conflicts, a plan that stays, a denied node, a NaN, reports; all at ``-vv``."""
    inputs, corpus, run, said = tmp_path / "in", tmp_path / "corpus", tmp_path / "run", []
    inputs.mkdir()
    good = inputs / "good.jsonl"
    lines = [json.dumps(row) for row in rows(90)]
    lines += [json.dumps({**rows(1)[0], "note_id": f"{RAW_ID}-x", "note": ""}), f'{{"note": "{TEXT}', f'["{TEXT}"]']
    good.write_text("\n".join(lines) + "\n")
    (inputs / "bad.csv").write_text(f'note_id,note,dept,mrn\n{RAW_ID},"{TEXT},{WARD},{PATIENT}\n')
    (inputs / "bad.parquet").write_bytes(b"PAR1" + f"{TEXT} {RAW_ID} {WARD}".encode() * 9 + b"PAR1")
    (inputs / "conflict.jsonl").write_text(
        "".join(json.dumps({**rows(1)[0], "note": f"{TEXT} {copy}"}) + "\n" for copy in range(2))
    )
    build = ["sharding", "build", "-vv", *MAPPING, "--workers", "1", "--target-tokens", "4000"]

    bad = [inputs / "bad.csv", inputs / "bad.parquet", inputs / "conflict.jsonl"]
    said += [stage(*build, path, "--out", tmp_path / f"of-{path.stem}-{path.suffix[1:]}", code=65) for path in bad]
    said.append(stage("sharding", "plan", "-vv", *MAPPING, "--workers", "1", good, "--out", corpus, "--max-rejects", 9))
    plan_only = marked([], [corpus])
    said.append(stage(*build, good, "--out", corpus, "--max-rejects", "9"))
    said.append(stage("sharding", "keys", "grant", corpus, "node"))
    said.append(stage("sharding", "inspect", "-vv", corpus))
    said.append(stage("sharding", "verify", "-vv", "--deep", corpus))
    score = ["scoring", "run", "-vv", corpus, "--model", tiny_llama, "--out", run, "--threads-per-rank", 1]
    said.append(stage(*score, "--principal", "node", code=77))
    said.append(stage(*score, "--max-quarantined", 1))
    (run / "run.json").write_bytes((run / "run.json").read_bytes().replace(b'"build_id"', b'"built_id"'))
    said.append(stage("aggregate", "verify", "-vv", corpus, run, code=None))
    said += [stage(name, "--help") for name in ("sharding", "scoring", "aggregate")]

    assert plan_only == []
    assert marked(said, [corpus, run, *(path for path in tmp_path.glob("*-*") if path.is_dir())]) == []


@pytest.mark.slow
def test_reports_name_no_department_and_no_id(tiny_llama: Path, tmp_path: Path) -> None:
    """Unless names are asked for: then they stand in the report, and the report says so."""
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows(60)))
    corpus, run = tmp_path / "corpus", tmp_path / "run"
    stage("sharding", "build", tmp_path / "in.jsonl", *MAPPING, "--out", corpus, "--workers", "1")
    stage("scoring", "run", corpus, "--model", tiny_llama, "--out", run, "--threads-per-rank", 1)

    said = stage("aggregate", "report", "-vv", corpus, run, "--out", tmp_path / "report")
    named = stage("aggregate", "report", corpus, run, "--out", tmp_path / "named", "--department-names")

    assert marked([said], [tmp_path / "report", run]) == []
    assert WARD in named
    assert "department names" in (tmp_path / "named" / "report.md").read_text()


def test_a_crash_leaves_no_core_file(tmp_path: Path) -> None:
    """A command that is told to die by a dumping signal leaves nothing behind, although the caller allows cores."""
    with running(tmp_path, "schemas_crash") as process:
        process.wait(60)

    assert process.returncode == -signal.SIGABRT
    assert sorted(path.name for path in tmp_path.iterdir()) == ["output", "schemas_crash.py"]


@pytest.mark.slow
def test_what_crashes_in_a_build_leaves_no_marker(tmp_path: Path) -> None:
    """A worker that dies by SIGSEGV, and then the client by SIGABRT: no marker in output, scratch or a core file."""
    source, corpus = tmp_path / "in" / "notes.jsonl", tmp_path / "corpus"
    source.parent.mkdir()
    source.write_text("".join(json.dumps(row) + "\n" for row in rows(3000)))
    work = tmp_path / "work"
    work.mkdir()

    command = ["sharding", "build", "-vv", source, *MAPPING, "--out", corpus, "--workers", "2"]
    with running(work, *command) as process:
        wait_for(lambda: any(corpus.glob("scratch/*/keys/*.arrow")), process)
        os.kill(workers_of(process)[0], signal.SIGSEGV)
        wait_for(lambda: any(corpus.glob("scratch/*/spills/*.arrow")), process)
        process.send_signal(signal.SIGABRT)
        process.wait(60)

    assert process.returncode == -signal.SIGABRT
    assert marked([], [work, corpus]) == []
    assert (work / "output").stat().st_size > 0
    said = stage(*command)
    assert marked([said], [work, corpus]) == []


@pytest.mark.slow
def test_what_crashes_in_scoring_leaves_no_marker(tiny_llama: Path, tmp_path: Path) -> None:
    """A rank that dies by SIGSEGV among two, and records that are NaN: no marker in output, log or error file."""
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows(400)))
    corpus, run, work = tmp_path / "corpus", tmp_path / "run", tmp_path / "work"
    work.mkdir()
    stage("sharding", "build", tmp_path / "in.jsonl", *MAPPING, "--out", corpus, "--workers", "1")
    model = poisoned(tiny_llama, tmp_path / "model", "z")
    launcher = [*torchrun(2)[:-1], "--log-dir", work / "logs", "--redirects", "3", "-m"]
    command = ["scoring", "run", "-vv", corpus, "--model", model, "--out", run, "--threads-per-rank", 1]

    with running(work, *launcher, *command, "--max-length", "64") as process:
        wait_for(lambda: any(run.glob("partials/rank-*/*")), process)
        os.kill(children_of(process)[0], signal.SIGSEGV)
        process.wait(120)
    said = stage(*command, "--max-length", "64", code=65)

    assert process.returncode == 1
    assert "NaN" in said
    assert any((work / "logs").rglob("*.log"))
    assert marked([said], [work, run]) == []


@contextmanager
def running(work: Path, *arguments: object) -> Iterator[subprocess.Popen[bytes]]:
    """A command in a folder of its own where core files may be written; its output goes to a file there."""
    if arguments == ("schemas_crash",):
        (work / "schemas_crash.py").write_text(CRASHING)
    with (work / "output").open("wb") as output:
        process = _started(work, [str(argument) for argument in arguments], output)
        try:
            yield process
        finally:
            process.kill()
            process.wait(60)


def workers_of(process: subprocess.Popen[bytes]) -> list[int]:
    """Process ids of a build's Dask workers."""
    children = psutil.Process(process.pid).children()
    return [child.pid for child in children if "spawn_main" in " ".join(child.cmdline())]


def wait_for(holds: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    """Look every 5 ms until something holds; the command must not end before."""
    stop = time.monotonic() + 120
    while not holds():
        assert process.poll() is None, f"ended with {process.returncode}"
        assert time.monotonic() < stop, "waited in vain"
        time.sleep(0.005)


def _started(work: Path, arguments: list[str], output: IO[bytes]) -> subprocess.Popen[bytes]:
    before = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (before[1], before[1]))
    try:
        return subprocess.Popen(
            [sys.executable, "-m", *arguments], cwd=work, env=environment(), stdout=output, stderr=output
        )
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, before)
