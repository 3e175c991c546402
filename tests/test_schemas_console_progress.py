"""Progress is for people: a bar on a terminal, else a line now and then, and never a byte on stdout."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from schemas import console

ROOT = Path(__file__).parents[1]
PROGRAM = """
from schemas.console import Progress
with Progress("scoring", 3, "blocks") as bar:
    for _ in range(3):
        bar.advance()
"""


def test_progress_goes_to_stderr_and_only_when_it_takes_long() -> None:
    """A quick step says nothing off a terminal, and stdout stays clean for results."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], check=False, capture_output=True, text=True, cwd=ROOT)

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_slow_progress_is_a_line_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Off a terminal a line appears once the interval has passed, with counts and a rate."""
    monkeypatch.setattr(console, "SECONDS_BETWEEN_LINES", 0.01)
    with console.Progress("scoring", 2000, "blocks") as bar:
        time.sleep(0.02)
        bar.advance(1500)
        bar.advance(1)

    said = capsys.readouterr()

    assert said.out == ""
    assert said.err.startswith("scoring: 1,500 of 2,000 blocks (")
    assert said.err.count("\n") == 1


def test_a_terminal_gets_a_bar() -> None:
    """On a terminal the same step draws a bar, and the command still ends with code 0."""
    main, end = os.openpty()
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        check=False,
        stdout=subprocess.PIPE,
        stderr=end,
        cwd=ROOT,
        timeout=60,
        env=os.environ | {"TERM": "xterm"},
    )
    os.close(end)
    drawn = os.read(main, 1 << 16).decode()
    os.close(main)

    assert done.returncode == 0
    assert done.stdout == b""
    assert "scoring" in drawn
    assert "3/3" in drawn
