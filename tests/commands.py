"""Running a command line inside the test process, with its real exit code and output."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import click
import pytest

from schemas.console import launch


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
