"""``audit verify`` tells sound logs from others, by exit code and in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from schemas.audit import AuditLog
from schemas.audit_events import AuditHead
from sharding.cli import cli
from tests.commands import run_command

SHARD = "d-0123456789ab-00001"


def a_log(path: Path, outcomes: str = "ddf") -> AuditHead:
    """The head of a log of reads: d is done, f failed, x denied."""
    log, names = AuditLog(path, "node-1"), {"d": "done", "f": "failed", "x": "denied"}
    return [log.append("read", SHARD, names[letter]) for letter in outcomes][-1]  # type: ignore[arg-type]


def text_of(head: AuditHead) -> str:
    """A head as it is written on command lines."""
    return f"{head.num_events}:{head.sha256}"


def test_log_is_described(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Number of events, head, and outcomes by action; for people and as JSON."""
    head = a_log(tmp_path / "log.jsonl")
    AuditLog(tmp_path / "log.jsonl", "node-2").append("score", SHARD, "denied")

    said = run_command(cli, ["audit", "verify", tmp_path / "log.jsonl", "--head", text_of(head)], capsys)
    shown = run_command(cli, ["audit", "verify", tmp_path / "log.jsonl", "--json"], capsys)

    [log] = json.loads(shown.out)["logs"]
    assert (said.code, said.err, shown.code, shown.err) == (0, "", 0, "")
    assert log["outcomes"] == {"read": {"done": 2, "failed": 1}, "score": {"denied": 1}}
    assert (log["log"], log["num_events"], log["num_torn"]) == ("log.jsonl", 4, 0)
    assert said.out.splitlines() == [
        "log.jsonl: 4 events",
        "  read: 2 done, 1 failed",
        "  score: 1 denied",
        f"  head {log['head']}",
    ]


def test_printed_head_is_taken_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What one verification prints anchors the next, after which the log may have grown but not changed."""
    a_log(tmp_path / "log.jsonl")
    shown = run_command(cli, ["audit", "verify", tmp_path / "log.jsonl", "--json"], capsys)
    command = ["audit", "verify", tmp_path / "log.jsonl", "--head", json.loads(shown.out)["logs"][0]["head"]]
    content = (tmp_path / "log.jsonl").read_bytes()

    a_log(tmp_path / "log.jsonl", "x")
    grown = run_command(cli, command, capsys)
    (tmp_path / "log.jsonl").write_bytes(content[: content.rindex(b"{")])
    cut = run_command(cli, command, capsys)

    assert (grown.code, cut.code, cut.out) == (0, 65, "")
    assert "log.jsonl: head in the signed manifest does not match: the log ends at event 2, event 3 was" in cut.err
    assert cut.err.count("\n") == 1


def test_folder_stands_for_all_its_logs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each log below FOLDER/audit is checked, at any depth, and one broken one is an error."""
    a_log(tmp_path / "audit" / "node-2.jsonl", "d")
    a_log(tmp_path / "audit" / "runs" / "node-1.jsonl", "dx")
    a_log(tmp_path / "elsewhere.jsonl", "d")

    sound = run_command(cli, ["audit", "verify", tmp_path, "--json"], capsys)
    log = tmp_path / "audit" / "runs" / "node-1.jsonl"
    log.write_bytes(log.read_bytes().replace(b'"done"', b'"denied"'))
    broken = run_command(cli, ["audit", "verify", tmp_path, "--json"], capsys)

    assert [item["log"] for item in json.loads(sound.out)["logs"]] == ["audit/node-2.jsonl", "audit/runs/node-1.jsonl"]
    assert (sound.code, broken.code, broken.out) == (0, 65, "")
    assert "node-1.jsonl: the chain breaks at event 2: what stands before it was changed" in broken.err


def test_folder_without_logs_is_not_verified(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Logs that were removed, or a wrong folder or file, are no success."""
    folder = run_command(cli, ["audit", "verify", tmp_path], capsys)
    file = run_command(cli, ["audit", "verify", tmp_path / "log.jsonl"], capsys)

    assert (folder.code, file.code) == (65, 65)
    assert "no audit/*.jsonl there" in folder.err
    assert "log.jsonl: no such file" in file.err


def test_torn_line_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A killed writer is no tampering, but whoever audits wants to know."""
    a_log(tmp_path / "log.jsonl", "d")
    with (tmp_path / "log.jsonl").open("ab") as file:
        file.write(b'{"action":"re')

    outcome = run_command(cli, ["audit", "verify", tmp_path / "log.jsonl"], capsys)

    assert outcome.code == 0
    assert outcome.out.startswith("log.jsonl: 1 events, 1 torn lines of killed writers\n")


@pytest.mark.parametrize("head", ["", "3", "3:5a", "-1:" + "5a" * 32, "3:" + "5A" * 32, "9" * 30 + ":" + "5a" * 32])
def test_what_is_no_head_is_a_usage_error(tmp_path: Path, capsys: pytest.CaptureFixture[str], head: str) -> None:
    """It is told at once how a head is written."""
    a_log(tmp_path / "log.jsonl", "d")

    outcome = run_command(cli, ["audit", "verify", tmp_path / "log.jsonl", "--head", head], capsys)

    assert (outcome.code, outcome.out) == (2, "")
    assert "64 lower-case hex digits" in outcome.err


def test_head_is_of_one_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With two logs it is not guessed which one is meant."""
    a_log(tmp_path / "audit" / "one.jsonl")
    head = a_log(tmp_path / "audit" / "two.jsonl")

    outcome = run_command(cli, ["audit", "verify", tmp_path, "--head", text_of(head)], capsys)

    assert outcome.code == 2
    assert "--head is of one log, 2 are there" in outcome.err
