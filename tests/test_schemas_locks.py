"""A lock has one holder, falls with whoever holds it, and is on no file but the one that was named."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from schemas.errors import UsageError
from schemas.locks import at_rest, lock, locked_file, opened_to_lock


def is_free(path: Path) -> bool:
    """Whether one who does not wait would get the lock."""
    descriptor = opened_to_lock(path)
    try:
        return lock(descriptor, wait=False)
    finally:
        os.close(descriptor)


def test_lock_has_one_holder_and_ends_with_the_block(tmp_path: Path) -> None:
    """Others are kept out inside the block, whatever ends it, and not after it."""
    path, inside = tmp_path / "lock", []

    def fail() -> None:
        with locked_file(path):
            inside.append(is_free(path))
            raise KeyError

    with pytest.raises(KeyError):
        fail()

    assert (inside, is_free(path)) == ([False], True)


def test_who_waits_comes_after_the_holder(tmp_path: Path) -> None:
    """Threads that add to the same number in steps lose no addition."""
    path, count = tmp_path / "lock", [0]

    def work() -> None:
        for _ in range(50):
            with locked_file(path):
                before = count[0]
                os.sched_yield()
                count[0] = before + 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert count == [200]


def test_readers_share_and_keep_writers_out(tmp_path: Path) -> None:
    """Two readers are at rest at once; a writer gets the file after both."""
    path = tmp_path / "lock"
    path.touch()

    with path.open("rb") as one, path.open("rb") as other, at_rest(one.fileno()):
        with at_rest(other.fileno()):
            during_both = is_free(path)
        during_one = is_free(path)

    assert (during_both, during_one, is_free(path)) == (False, False, True)


def test_file_is_made_closed(tmp_path: Path) -> None:
    """Nobody else can open it, and so hold it against us, whatever the umask."""
    before = os.umask(0)
    try:
        with locked_file(tmp_path / "lock"):
            pass
    finally:
        os.umask(before)

    assert (tmp_path / "lock").stat().st_mode & 0o777 == 0o600


def test_link_is_not_followed(tmp_path: Path) -> None:
    """A link under the lock's name does not make a file elsewhere."""
    (tmp_path / "lock").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(UsageError, match="lock: a symbolic link, a file was expected"), locked_file(tmp_path / "lock"):
        pass

    assert not (tmp_path / "elsewhere").exists()


def test_place_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    """The folder of the file is for the caller to make."""
    with pytest.raises(UsageError, match="cannot be written"), locked_file(tmp_path / "absent" / "lock"):
        pass
