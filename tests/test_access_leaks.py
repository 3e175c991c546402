"""Markers in notes, ids and names of departments come out nowhere, whatever goes wrong and however much is logged."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from tests.pipelines import stage

TEXT, RAW_ID, WARD, PATIENT = (f"zqx-canary-{word}-marker" for word in ("note", "ident", "ward", "patient"))
MAPPING = ["--id", "note_id", "--text", "note", "--department", "dept", "--patient", "mrn"]


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
