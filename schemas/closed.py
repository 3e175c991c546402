"""Files and folders that are their owner's alone: keys, and corpora whose shards nothing else guards."""

from __future__ import annotations

from pathlib import Path

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
