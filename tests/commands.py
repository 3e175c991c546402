"""Running a command line inside the test process, with its real exit code and output."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click
import pytest

from schemas.console import launch

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Outcome:
    """What a command left."""

    code: int
    out: str
    err: str


def run_command(group: click.Group, arguments: list[object], capsys: pytest.CaptureFixture[str]) -> Outcome:
    """The outcome of ``python -m PACKAGE ARGUMENTS``."""
    capsys.readouterr()
    with _arguments(list(map(str, arguments))):
        code = launch(group, "python -m test")
    captured = capsys.readouterr()
    return Outcome(code, captured.out, captured.err)


def run_sharding(*arguments: object) -> subprocess.CompletedProcess[str]:
    """``python -m sharding ARGUMENTS`` in a process of its own."""
    command = [sys.executable, "-m", "sharding", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)


@contextmanager
def _arguments(arguments: list[str]) -> Iterator[None]:
    """``sys.argv`` and the root logger's handlers as the command wants them, then as they were."""
    argv, handlers = sys.argv, logging.getLogger().handlers[:]
    sys.argv = ["test", *arguments]
    try:
        yield
    finally:
        sys.argv = argv
        logging.getLogger().handlers[:] = handlers
