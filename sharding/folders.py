"""How much lies in the folders of a corpus."""

from __future__ import annotations

from pathlib import Path
from stat import S_ISDIR

from schemas.seals import wrapped_write


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
