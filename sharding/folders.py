"""Folders of a corpus, their owner's alone since nothing else guards shards that are not encrypted, and their sizes."""

from __future__ import annotations

from pathlib import Path
from stat import S_ISDIR

from schemas.seals import wrapped_write

CLOSED = 0o700


def make_closed(folder: Path) -> None:
    """Make a folder and the absent ones above it, whatever the umask; those that are there stay as they are.

    Raises:
        OSError: as ``Path.mkdir`` does.
    """
    for path in reversed([folder, *folder.parents]):
        if not path.is_dir():
            path.mkdir(mode=CLOSED, exist_ok=True)


def num_bytes(path: Path) -> int:
    """Of a file, or of all files in a folder; none where it is gone, as are files of tasks that come too late.

    Raises:
        TemporaryError: the disk failed.
        UsageError: it cannot be looked at.
    """
    try:
        status = path.lstat()
        return sum(map(num_bytes, path.iterdir())) if S_ISDIR(status.st_mode) else status.st_size
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise wrapped_write(path, error) from None
