"""Looking at a run from outside while it goes on: drawn anew on a terminal, else a few lines now and then."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from schemas.manifests import COMPLETE_FILE
from scoring.status import read_statuses
from scoring.vitals import Vitals, duration_text, is_over, rate_text, vitals_line, vitals_of

if TYPE_CHECKING:
    from rich.table import Table

SECONDS_BETWEEN_LOOKS = 1.0
SECONDS_BETWEEN_LINES = 5.0
Shown = Callable[[Sequence[Vitals]], None]


def vitals_in(run: Path) -> list[Vitals]:
    """All ranks of a run's last launch, now; errors as ``read_statuses``."""
    now = time.time()
    return [vitals_of(status, now=now) for status in read_statuses(run)]


def watch(run: Path, shown: Shown, *, seconds_between_looks: float = SECONDS_BETWEEN_LOOKS) -> list[Vitals]:
    """Show a run again and again, until it is complete or nothing more is to be expected of it.

    Returns:
        The ranks at the end.
    """
    while True:
        is_complete, ranks = (run / COMPLETE_FILE).is_file(), vitals_in(run)
        shown(ranks)
        if is_complete or is_over(ranks):
            return ranks
        time.sleep(seconds_between_looks)


@contextmanager
def screen(*, quiet: bool) -> Iterator[Shown]:
    """Where a watched run is shown: a table on a terminal, lines at most every few seconds, or nothing."""
    if quiet:
        yield lambda _: None
    elif sys.stdout.isatty():
        from rich.live import Live

        with Live(auto_refresh=False) as live:
            yield lambda ranks: live.update(table(ranks), refresh=True)
    else:
        yield _slowly(_say)


def table(ranks: Sequence[Vitals]) -> Table:
    """The ranks for a terminal."""
    from rich.table import Table

    drawn = Table("rank", "state", "blocks", "tokens", "left", "last heartbeat", "code", "message", box=None)
    for rank in ranks:
        status = rank.status
        drawn.add_row(
            str(status.rank),
            status.state,
            f"{status.num_blocks_done} of {status.num_blocks_planned}",
            rate_text(rank),
            "" if rank.eta_seconds is None else duration_text(rank.eta_seconds),
            f"{duration_text(rank.age_seconds)} ago" + ", SILENT" * rank.is_silent,
            "" if status.exit_code is None else str(status.exit_code),
            status.message,
        )
    return drawn


def _say(ranks: Sequence[Vitals]) -> None:
    for rank in ranks:
        click.echo(vitals_line(rank))


def _slowly(say: Shown) -> Shown:
    """Say it at first, and then whenever enough time has gone by."""
    said_at = -SECONDS_BETWEEN_LINES

    def shown(ranks: Sequence[Vitals]) -> None:
        nonlocal said_at
        if time.monotonic() - said_at >= SECONDS_BETWEEN_LINES:
            said_at = time.monotonic()
            say(ranks)

    return shown
