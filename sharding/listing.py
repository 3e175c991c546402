"""What lies under a name (a file, a glob, a folder): nothing is passed over without being counted or refused.

Folders are walked through links too, each real folder once. Entries whose names begin with a dot or an underscore are
the marks that other programs leave (``_SUCCESS``, ``.ipynb_checkpoints``): they are left out and counted.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from glob import glob, has_magic
from pathlib import Path

from schemas.errors import UsageError
from schemas.seals import label

HIDDEN = (".", "_")


@dataclass(frozen=True, slots=True)
class Listing:
    """What one or more names stand for; all paths are absolute, since a worker may have another working folder.

    Attributes:
        named: Files that a name or glob gives itself.
        within: Other things in folders: files, and links that lead nowhere.
        folders: Folders that a name or glob gives.
        hidden: Files and folders within them that are left out for their names.
    """

    named: list[Path] = field(default_factory=list)
    within: list[Path] = field(default_factory=list)
    folders: list[Path] = field(default_factory=list)
    hidden: set[Path] = field(default_factory=set)


def list_name(name: str) -> Listing:
    """All files under a file's, glob's or folder's name.

    Raises:
        UsageError: a folder on the way cannot be read.
    """
    listing = Listing()
    seen: set[tuple[int, int]] = set()
    try:
        for path in _matches(name):
            if path.is_dir():
                listing.folders.append(path)
                _walk(path, listing, seen)
            else:
                listing.named.append(path)
    except OSError as error:
        where = label(Path(error.filename or name))
        reason = os.strerror(error.errno or 0)
        raise UsageError(f"{where}: {reason}; mend its permissions, or name other inputs") from None
    return listing


def _matches(name: str) -> list[Path]:
    path = Path(name).absolute()
    if os.path.lexists(path):
        return [path]
    if not has_magic(name):
        return []
    _check_readable(name)
    # From the working folder, whose own name may hold brackets.
    return sorted(Path(item).absolute() for item in glob(name, root_dir=Path.cwd(), recursive=True))  # noqa: PTH207


def _check_readable(pattern: str) -> None:
    """A glob passes over folders that it cannot read, so they are opened here."""
    for parent in Path(pattern).parents:
        for item in glob(str(parent), root_dir=Path.cwd(), recursive=True):  # noqa: PTH207 - pathlib's skips too
            if Path(item).is_dir():
                os.scandir(item).close()


def _walk(folder: Path, listing: Listing, seen: set[tuple[int, int]]) -> None:
    status = folder.stat()
    if (status.st_dev, status.st_ino) in seen:
        return  # a link back, or another name of a folder that is read already
    seen.add((status.st_dev, status.st_ino))
    for path in sorted(folder.iterdir()):
        if path.name.startswith(HIDDEN):
            listing.hidden.add(path)
        elif path.is_dir():
            _walk(path, listing, seen)
        else:
            listing.within.append(path)
