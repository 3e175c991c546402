"""Purge, builds and readers at the same time: each ends in a stated way, and the current build is whole throughout."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from schemas.errors import PipelineError, TemporaryError, UsageError
from schemas.folders import open_build
from schemas.verification import verify_build
from sharding.build import build_corpus
from sharding.commit import make_current
from sharding.purge import builds_named, purge
from tests.builds import build, request, some_rows, write_rows

NUM_ROWS = 12
LEAST = 3
PURGE_ENDS = ("is being written; wait for that build", "is the current build", "no build")


@contextmanager
def _meanwhile(step: Callable[[], None]) -> Iterator[None]:
    """Repeat a step in another thread until the block ends; what it raises is raised at the end."""
    over = threading.Event()
    failures: list[BaseException] = []

    def work() -> None:
        try:
            while not over.is_set():
                step()
        except BaseException as error:  # noqa: BLE001 - it is raised in the main thread
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    if failures:
        raise failures[0]


def _purged(corpus: Path, build_id: str) -> str:
    """Try to remove a build; how that ended, by its message if nobody stated that end."""
    try:
        purge(corpus, builds_named(corpus, [build_id]), dry_run=False)
    except (TemporaryError, UsageError) as error:
        return next((end for end in PURGE_ENDS if end in str(error)), str(error))
    return "removed"


def _read(corpus: Path, kept: str) -> str:
    """Open and verify what is current; how that ended. Only the build that is being purged may go meanwhile."""
    try:
        opened = open_build(corpus)
    except PipelineError as error:
        return f"damaged: {error}" if kept in str(error) else "gone"
    try:
        verify_build(opened, deep=True)
    except PipelineError as error:
        return f"damaged: {error}" if opened.manifest.build_id == kept else "gone"
    return "whole"


def test_builds_purges_and_readers_at_once_end_as_they_say(tmp_path: Path, scheduler: str) -> None:
    """A build is whole or says 75, a purge removes all of it or says why not, and a reader finds a whole build."""
    source = write_rows(tmp_path / "in.csv", some_rows(NUM_ROWS))
    corpus = tmp_path / "corpus"
    raced = build([source], corpus, scheduler).manifest
    kept = build([source], corpus, scheduler, seed=1).manifest.build_id
    builds, purges, reads = Counter[str](), Counter[str](), Counter[str]()

    def remove() -> None:
        make_current(corpus, kept)
        purges[_purged(corpus, raced.build_id)] += 1

    def read() -> None:
        reads[_read(corpus, kept)] += 1

    with _meanwhile(remove), _meanwhile(read):
        while min(builds["made"], purges["removed"], reads["whole"]) < LEAST:
            try:
                made, _ = build_corpus(request([source], corpus, scheduler))
                assert made.manifest == raced
                builds["made"] += 1
            except TemporaryError:
                builds["told to run again"] += 1

    assert set(purges) <= {"removed", *PURGE_ENDS}
    assert set(reads) <= {"whole", "gone"}
    assert verify_build(open_build(corpus / "builds" / kept), deep=True)["records"] == NUM_ROWS
    if (corpus / "builds" / raced.build_id).exists():
        assert verify_build(open_build(corpus / "builds" / raced.build_id), deep=True)["records"] == NUM_ROWS
    assert not (corpus / "scratch").exists()
