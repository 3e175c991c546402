"""Side files that say what each rank was last doing, and the true exit code of a run.

torchrun turns every rank's exit code into 1, so each rank leaves its own in ``status/rank-NNNNN.json``.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from schemas.documents import read_document, write_document
from schemas.errors import (
    EXIT_BUG,
    EXIT_DATA,
    EXIT_DENIED,
    EXIT_DONE,
    EXIT_SIGINT,
    EXIT_SIGTERM,
    EXIT_TEMPORARY,
    EXIT_USAGE,
    PipelineError,
    StoppedError,
    TemporaryError,
    UsageError,
)
from schemas.logs import frames
from schemas.manifests import COMPLETE_FILE, RUN_FILE, STATUS_FOLDER, RankState, RankStatus, RunManifest
from schemas.seals import check_seal, label
from scoring.rates import RecentRate

SECONDS_BETWEEN_WRITES = 2.0
# Which failure explains the others: a rank that was stopped or lost its peers only followed another one.
BY_WEIGHT = (EXIT_DATA, EXIT_DENIED, EXIT_USAGE, EXIT_BUG, EXIT_TEMPORARY, EXIT_SIGTERM, EXIT_SIGINT)


def status_path(run: Path, rank: int) -> Path:
    """Where a rank says what it does."""
    return run / STATUS_FOLDER / f"rank-{rank:05d}.json"


@dataclass(slots=True)
class StatusFile:
    """A rank's status file, replaced at most every two seconds while it works."""

    run: Path
    rank: int
    num_ranks: int
    run_id: str | None = None
    num_blocks_done: int = 0
    num_blocks_planned: int = 0
    num_tokens: int = 0
    num_repeated: int = 0
    num_cached: int = 0
    num_estimated_done: int = 0
    num_estimated_planned: int = 0
    state: RankState = "starting"
    started_at: float = field(default_factory=time.time)
    written_at: float = 0.0
    rate: RecentRate = field(default_factory=RecentRate)

    @contextmanager
    def reporting(self) -> Iterator[None]:
        """Leave the outcome of the block in the file, whatever it is.

        Raises:
            TemporaryError: memory ran out, wherever in the block.
        """
        self.say("starting")
        try:
            yield
        except PipelineError as error:
            state: RankState = "stopped" if isinstance(error, StoppedError) else "failed"
            self._last_words(state, str(error), error.exit_code)
            raise
        except KeyboardInterrupt:
            self._last_words("stopped", "stopped by SIGINT", EXIT_SIGINT)
            raise
        except MemoryError:
            message = "out of memory beside the tiles; run it again with more memory, or fewer ranks a node"
            self._last_words("failed", message, EXIT_TEMPORARY)
            raise TemporaryError(message) from None
        except BaseException as error:  # panics of native libraries are no Exception
            self._last_words("failed", f"bug: {frames(error)}", EXIT_BUG)
            raise
        self.say("done", exit_code=EXIT_DONE)

    def _last_words(self, state: RankState, message: str, exit_code: int) -> None:
        with suppress(PipelineError):  # a full disk must not hide why the rank failed
            self.say(state, message=message, exit_code=exit_code)

    def begin(self, *, num_blocks: int, num_estimated: int) -> None:
        """Say that the work begins, and how much it is; the rate counts from here on."""
        self.num_blocks_planned, self.num_estimated_planned = num_blocks, num_estimated
        self.num_blocks_done = self.num_estimated_done = 0
        self.rate.note(time.time(), self.num_tokens)
        self.say("scoring")

    def refresh(self) -> None:
        """Show that the rank lives, doing what it did."""
        self.say(self.state, force=False)

    def say(self, state: RankState, *, message: str = "", exit_code: int | None = None, force: bool = True) -> None:
        """Write the file; without ``force`` only when the last one is old enough."""
        now = time.time()
        if not force and now - self.written_at < SECONDS_BETWEEN_WRITES:
            return
        if self.state == "scoring" and self.rate.has_begun:
            self.rate.note(now, self.num_tokens)
        self.written_at, self.state = now, state
        document = RankStatus(
            run_id=self.run_id,
            rank=self.rank,
            num_ranks=self.num_ranks,
            state=state,
            exit_code=exit_code,
            message=message,
            num_blocks_done=self.num_blocks_done,
            num_blocks_planned=self.num_blocks_planned,
            num_tokens=self.num_tokens,
            num_repeated=self.num_repeated,
            num_cached=self.num_cached,
            num_estimated_done=self.num_estimated_done,
            num_estimated_planned=self.num_estimated_planned,
            num_recent_tokens=self.rate.num_tokens,
            recent_seconds=self.rate.seconds,
            scoring_seconds=self.rate.total_seconds,
            started_at=self.started_at,
            updated_at=now,
        )
        write_document(status_path(self.run, self.rank), document, replace=True)


def read_statuses(run: Path) -> list[RankStatus]:
    """The statuses of all ranks of the last launch, by rank.

    Raises:
        UsageError: no rank has ever written here.
        IntegrityError: a status file is damaged.
    """
    folder = run / STATUS_FOLDER
    paths = sorted(folder.glob("rank-*.json")) if folder.is_dir() else []
    if not paths:
        raise UsageError(f"{label(run)}: no status files; name a run folder (the --out of scoring run)")
    return [read_document(path, RankStatus) for path in paths]


def true_exit_code(run: Path, statuses: Sequence[RankStatus]) -> int:
    """0 when the run is complete, else the failure that explains the others; 75 while it is unfinished.

    A rank that left no code was lost, and its end explains the signals that torchrun then sent to the others.

    Raises:
        IntegrityError: COMPLETE or run.json is damaged.
    """
    if (run / COMPLETE_FILE).is_file():
        manifest = read_document(run / COMPLETE_FILE, RunManifest)
        check_seal(run / RUN_FILE, manifest.header)
        return EXIT_DONE
    codes = {status.exit_code for status in statuses} - {None, EXIT_DONE}
    explained = next((code for code in BY_WEIGHT if code in codes), EXIT_TEMPORARY)
    was_lost = any(status.exit_code is None for status in statuses)
    return EXIT_TEMPORARY if was_lost and explained in {EXIT_SIGTERM, EXIT_SIGINT} else explained
