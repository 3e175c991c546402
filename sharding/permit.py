"""The right to write into a build and its scratch: a file with a word that the client in charge drew for its tasks.

A worker can outlive the client that sent it, or be taken for dead and go on. It must not make again what was cleared
since, for that holds note text. So whoever clears a folder takes the permit away first, whoever takes a build over
puts another word in its place, and a task shows the word before it makes a file and before it names one. Folders are
made by the client alone.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from schemas.errors import IntegrityError, TemporaryError
from schemas.seals import label, opened, publish, wrapped_write

PERMIT_FILE = "permit"
# A task makes at most one file after the permit has gone, and removes it itself.
REMOVAL_ATTEMPTS = 5


def grant(folder: Path, word: str) -> None:
    """Let the tasks of the client that drew this word write, and no others any more."""
    publish(folder / PERMIT_FILE, word.encode(), replace=True)


def withdraw(folder: Path) -> None:
    """Let no task write any more; where there is no permit, none may.

    Raises:
        TemporaryError: the disk failed, so that tasks may still write.
        UsageError: the permit cannot be removed, so that they may still write.
    """
    permit = folder / PERMIT_FILE
    try:
        permit.unlink()
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise wrapped_write(permit, error) from None


def check_permit(folder: Path, word: str) -> None:
    """The tasks of this word may still write.

    Raises:
        TemporaryError: they may not.
    """
    try:
        with opened(folder / PERMIT_FILE) as file:
            found = file.read(len(word) + 1)
    except IntegrityError:
        found = b""
    if found != word.encode():
        raise TemporaryError(f"{label(folder)}: was cleared, or another build took it over; run the command again")


def remove_tree(folder: Path) -> None:
    """Remove a folder whose permit is withdrawn, as far as that can be done.

    A task that was in the middle of a file may put it there while the folder is listed; another look finds it.
    """
    for _ in range(REMOVAL_ATTEMPTS):
        shutil.rmtree(folder, ignore_errors=True)
        if not os.path.lexists(folder):
            return
