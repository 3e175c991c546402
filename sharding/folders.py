"""Folders that we make in a corpus are their owner's alone: shards are not encrypted, so nothing else guards them."""

from __future__ import annotations

from pathlib import Path

CLOSED = 0o700


def make_closed(folder: Path) -> None:
    """Make a folder and the absent ones above it, whatever the umask; those that are there stay as they are.

    Raises:
        OSError: as ``Path.mkdir`` does.
    """
    for path in reversed([folder, *folder.parents]):
        if not path.is_dir():
            path.mkdir(mode=CLOSED, exist_ok=True)
