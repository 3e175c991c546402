"""A signal while workers start waits for the start to end, then ends the command in one line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sharding.signals import signals_held
from tests.builds import some_rows, write_rows

ROOT = Path(__file__).parents[1]


def _interrupted(steps: list[str]) -> None:
    with signals_held():
        os.kill(os.getpid(), signal.SIGINT)
        steps.append("went on")


def test_a_held_signal_comes_at_the_end() -> None:
    """The block runs to its end, then the signal does what it always does, and the handler is as it was."""
    before = signal.getsignal(signal.SIGINT)
    steps: list[str] = []

    with pytest.raises(KeyboardInterrupt):
        _interrupted(steps)

    assert steps == ["went on"]
    assert signal.getsignal(signal.SIGINT) is before
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_a_child_does_not_hear_of_it() -> None:
    """A process started within has SIGINT blocked, so that its parent alone decides."""
    code = "import signal; print(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, []))"

    with signals_held():
        inside = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    outside = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert [inside.stdout.strip(), outside.stdout.strip()] == ["True", "False"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("delay", [0.0, 0.4, 1.0])
def test_a_stop_during_the_start_is_one_line(tmp_path: Path, number: signal.Signals, code: int, delay: float) -> None:
    """Sent to the whole group, as a terminal does, the signal gives one error line and its code, at any moment."""
    source = write_rows(tmp_path / "in.csv", some_rows(2_000))
    command = [sys.executable, "-m", "sharding", "build", source, "--out", tmp_path / "c", "--id", "note_id"]
    options = ["--text", "note", "--workers", "1"]
    process = subprocess.Popen(
        [*command, *options],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    while not list(tmp_path.glob("c/scratch/*/")):
        time.sleep(0.01)
    time.sleep(delay)

    if number == signal.SIGINT:
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)
    _, said = process.communicate(timeout=60)

    lines = [line for line in said.splitlines() if not line.startswith("made the ")]
    assert process.returncode == code
    assert len(lines) == 1
    assert lines[0].startswith("error: stopped by")


def test_a_stop_while_a_scheduler_is_looked_for_is_at_once(tmp_path: Path) -> None:
    """The command does not wait until the attempt to connect is given up."""
    source = write_rows(tmp_path / "in.csv", some_rows(5))
    command = [sys.executable, "-m", "sharding", "build", source, "--out", tmp_path / "c", "--text", "note"]
    process = subprocess.Popen(
        [*command, "--scheduler", "127.0.0.1:9"], cwd=ROOT, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    while not list(tmp_path.glob("c/scratch/*/")):
        time.sleep(0.01)
    time.sleep(1.5)

    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=15)

    assert process.returncode == 130
    assert said.splitlines()[-1].startswith("error: stopped by SIGINT")
    assert "Traceback" not in said
