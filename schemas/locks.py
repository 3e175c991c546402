"""Advisory locks on open files (flock), let go of by the kernel when their holder dies.

The lock is on the file and not on its existence, so nothing has to be cleaned up after a kill. A file is made with mode
0600, and no symbolic link is followed to one that is somebody else's.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from schemas.closed import CLOSED_FILE
from schemas.errors import TemporaryError, UsageError
from schemas.seals import label, wrapped_write

# Network file systems give an exclusive lock only on what is open for writing.
LOCK_FLAGS = os.O_RDWR | os.O_CREAT


@contextmanager
def locked_file(path: Path, *, flags: int = LOCK_FLAGS) -> Iterator[int]:
    """Hold a file for oneself, once nobody else does; gives its descriptor.

    Raises:
        TemporaryError: the disk failed.
        UsageError: the file is a link or cannot be written to, or the file system has no locks.
    """
    try:
        descriptor = opened_to_lock(path, flags=flags)
    except OSError as error:
        raise wrapped_lock(path, error) from None
    try:
        try:
            lock(descriptor)
        except OSError as error:
            raise wrapped_lock(path, error) from None
        yield descriptor
    finally:
        os.close(descriptor)


def opened_to_lock(path: Path, *, flags: int = LOCK_FLAGS) -> int:
    """The descriptor of the file, which is made when absent.

    Raises:
        OSError: as ``os.open`` does; of a link ``ELOOP``.
    """
    return os.open(path, flags | os.O_NOFOLLOW, CLOSED_FILE)


@contextmanager
def at_rest(descriptor: int) -> Iterator[None]:
    """Nobody who locks an open file to write to it does so in this block; where there are no locks, nobody can."""
    with suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_SH)
    try:
        yield
    finally:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)


def lock(descriptor: int, *, wait: bool = True) -> bool:
    """Whether the open file is ours alone now; false only if somebody holds it and we do not wait.

    Raises:
        OSError: as ``fcntl.flock`` does, as where the file system has no locks.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    return True


def wrapped_lock(path: Path, error: OSError) -> TemporaryError | UsageError:
    """The project's error for a file that cannot be locked."""
    if error.errno == errno.ELOOP:
        return UsageError(f"{label(path)}: a symbolic link, a file was expected; remove the link")
    return wrapped_write(path, error)
