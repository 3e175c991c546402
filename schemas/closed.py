"""Files and folders that are their owner's alone: keys, tokens, and corpora whose shards nothing else guards.

A secret that others may read, that is a link, or that belongs to another user is refused: it is no secret any more, or
somebody else's.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from schemas.errors import AccessDeniedError, IntegrityError, UsageError
from schemas.seals import label

CLOSED = 0o700
CLOSED_FILE = 0o600


def make_closed(folder: Path) -> None:
    """Make a folder and the absent ones above it, whatever the umask; those that are there stay as they are.

    Raises:
        OSError: as ``Path.mkdir`` does.
    """
    for path in reversed([folder, *folder.parents]):
        if not path.is_dir():
            path.mkdir(mode=CLOSED, exist_ok=True)


def read_closed(path: Path, *, what: str, absent: str, max_bytes: int) -> bytes:
    """What a file holds that nobody but its owner could have read.

    Args:
        path: Of the file.
        what: How messages call it.
        absent: What to do where there is none.
        max_bytes: More cannot be it.

    Raises:
        AccessDeniedError: there is none, or it cannot be opened.
        UsageError: it is a link or no file, others may read or write it, or it is another user's.
        IntegrityError: it is too long.
    """
    with (
        _opened_closed(path, what=what, absent=absent) as descriptor,
        os.fdopen(descriptor, "rb", closefd=False) as file,
    ):
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise IntegrityError(f"{label(path)}: over {max_bytes} bytes, no {what}; restore the file")
    return content


@contextmanager
def _opened_closed(path: Path, *, what: str, absent: str) -> Iterator[int]:
    """The open file, judged by what was opened and not by what has its name a moment later."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        raise AccessDeniedError(f"{label(path)}: no such {what}; {absent}") from None
    except OSError as error:
        if os.path.islink(path):  # noqa: PTH114 - pathlib raises where the path is too long
            raise UsageError(f"{label(path)}: a link, not a {what} file; put the file itself there") from None
        if error.errno == errno.ENAMETOOLONG:
            raise UsageError(f"{what}: its path is too long for the disk; name another folder") from None
        raise AccessDeniedError(f"{label(path)}: {os.strerror(error.errno or 0)}; run as its owner") from None
    try:
        _require_closed(os.fstat(descriptor), path, what)
        yield descriptor
    finally:
        os.close(descriptor)


def _require_closed(status: os.stat_result, path: Path, what: str) -> None:
    mode = stat.S_IMODE(status.st_mode)
    if not stat.S_ISREG(status.st_mode):
        raise UsageError(f"{label(path)}: no regular file; put the {what} file there")
    if mode & 0o077:
        raise UsageError(
            f"{label(path)}: mode is {mode:04o}, others may use this {what}; set 0600, and rotate what it holds"
        )
    if status.st_uid not in (os.geteuid(), 0):
        raise UsageError(f"{label(path)}: belongs to another user; a {what} must be its user's own")


def require_closed_folder(folder: Path, *, what: str) -> None:
    """Nobody else can put another file into a folder in place of one that is closed.

    Raises:
        UsageError: others may write to it. In a folder with the sticky bit they cannot replace what is not theirs.
    """
    try:
        mode = stat.S_IMODE(folder.stat().st_mode)
    except OSError:
        return  # told by whoever opens what is in it
    if mode & 0o022 and not mode & stat.S_ISVTX:
        raise UsageError(f"{label(folder)}: mode is {mode:04o}, others may write to this {what} folder; set 0700")
