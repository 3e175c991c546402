"""One build at a time: an exclusive lock on a file beside the scratch folder, let go of by the kernel if we die.

The lock is on an open file, not on the file's existence, so nothing has to be cleaned up after a kill. Whoever holds
it may remove the file; whoever opened it before that finds out, and tries again with the file that has the name now.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from schemas.closed import make_closed
from schemas.errors import TemporaryError
from schemas.locks import lock, opened_to_lock, wrapped_lock
from schemas.seals import label

LOCK_SUFFIX = ".lock"
# Each attempt fails only if another holder came and went meanwhile.
ATTEMPTS = 100


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a scratch folder; its lock file is gone afterwards.

    Raises:
        TemporaryError: somebody else holds it, or the disk failed.
        UsageError: the place cannot be written to.
    """
    with locked_if_free(folder) as is_mine:
        if not is_mine:
            raise TemporaryError(
                f"{label(folder)}: another build of the same inputs is at work; wait for it, then run again"
            )
        yield


@contextmanager
def locked_if_free(folder: Path) -> Iterator[bool]:
    """As ``locked``, but gives false where somebody else holds the lock."""
    path = folder.with_name(folder.name + LOCK_SUFFIX)
    try:
        descriptor = _acquired(path)
    except OSError as error:
        raise wrapped_lock(path, error) from None
    if descriptor is None:
        yield False
        return
    try:
        yield True
    finally:
        with suppress(OSError):
            path.unlink()
        with suppress(OSError):
            path.parent.rmdir()  # only if it is empty
        os.close(descriptor)


def _acquired(path: Path) -> int | None:
    """An open file that has this name and our lock; None if another has it."""
    for attempt in range(ATTEMPTS):
        try:
            make_closed(path.parent)
            descriptor = opened_to_lock(path)
        except (FileNotFoundError, FileExistsError):
            if attempt == ATTEMPTS - 1:
                raise
            continue  # who had the lock before removed the folder just now
        try:
            is_held = lock(descriptor, wait=False)
            if is_held and _has_name(descriptor, path):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
        if not is_held:
            return None
    return None


def _has_name(descriptor: int, path: Path) -> bool:
    try:
        named = path.stat()
    except FileNotFoundError:
        return False
    return os.path.samestat(named, os.fstat(descriptor))
