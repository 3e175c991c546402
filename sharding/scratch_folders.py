"""Where a build's scratch lies, and how it is made, begun anew and removed; it holds note text and is closed to others.

Always ``CORPUS/scratch/<build_id>``, with the lock beside it. If another disk was chosen that is a link to a new folder
there: whoever finds the link finds the files, be it a resumed build or the sweep after another one.
"""

from __future__ import annotations

import re
import secrets
from contextlib import suppress
from pathlib import Path

from schemas.closed import CLOSED, make_closed
from schemas.console import notice
from schemas.errors import PipelineError, UsageError
from schemas.folders import BUILD_ID
from schemas.seals import label, wrapped_write
from sharding.lock import LOCK_SUFFIX, locked_if_free
from sharding.permit import grant, remove_tree, withdraw
from sharding.scratch import SCRATCH_FOLDER, Scratch, scratch_of
from sharding.scratch_key import ready_scratch_key

PREFIX = "exactppl-"

_OWN_NAME = re.compile(PREFIX + r"[0-9a-f]{16}")


def make_folder(scratch: Scratch, chosen: Path | None = None) -> None:
    """Make a build's scratch folder, closed to others, or take over the one that an interrupted build left.

    Args:
        scratch: Of the build, whose lock is ours.
        chosen: Folder on another disk to put it into. What an interrupted build left elsewhere is removed then.

    Raises:
        TemporaryError: the disk failed.
        UsageError: the place cannot be written to, or is not ours.
    """
    folder = scratch.folder
    try:
        _leave_lost_place(scratch)
        if chosen is not None and not _lies_in(folder, chosen.resolve()):
            _begin_in(scratch, chosen.resolve())
        make_closed(folder)
        folder.parent.chmod(CLOSED)
        folder.chmod(CLOSED)
        _furnish(scratch)
    except OSError as error:
        raise wrapped_write(folder, error) from None


def start_over(scratch: Scratch) -> None:
    """Empty a build's scratch folder, wherever it lies.

    Raises:
        TemporaryError: the disk failed.
        UsageError: the place cannot be written to.
    """
    if scratch.folder.is_symlink():
        place = _target(scratch)
        withdraw(place)
        remove_tree(place)
        _make_target(scratch)
    else:
        clear(scratch)
    make_folder(scratch)


def clear(scratch: Scratch) -> None:
    """Remove a build's scratch files; they hold note text, so a remainder is said."""
    folder = scratch.folder
    try:
        is_link = folder.is_symlink()
        place = _target(scratch) if is_link else folder
    except (OSError, UsageError):
        _say_remainder(folder)
        return
    if is_link and not is_there(place):
        # On a disk that is away it may still be there, so the link, which alone leads to it, stays.
        notice(f"{label(place)}: not to be seen, and may hold note text; its link is kept, attach its disk")
        return
    with suppress(PipelineError):
        withdraw(place)  # what hinders it hinders the removal, which tells
    remove_tree(place)
    if is_there(place):
        _say_remainder(place)
    elif is_link:
        folder.unlink(missing_ok=True)


def clear_abandoned(corpus: Path) -> int:
    """Remove what stopped builds of other inputs left, for it holds note text; returns how many there were.

    A build that is at work holds its lock and is left alone.
    """
    entries = {path.name.removesuffix(LOCK_SUFFIX) for path in (corpus / SCRATCH_FOLDER).iterdir()}
    num_removed = 0
    for name in sorted(filter(BUILD_ID.fullmatch, entries)):
        scratch = scratch_of(corpus, name)
        with locked_if_free(scratch.folder) as is_mine:
            if is_mine and is_there(scratch.folder):
                clear(scratch)
                num_removed += not is_there(scratch.folder)
    return num_removed


def is_there(path: Path) -> bool:
    """Whether something has this name; also where that cannot be known."""
    try:
        path.lstat()
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return True


def _furnish(scratch: Scratch) -> None:
    """Only now may tasks write, and only those of this client."""
    for folder in scratch.subfolders():
        folder.mkdir(exist_ok=True)
    if scratch.keyring:
        ready_scratch_key(scratch.folder, scratch.keyring, scratch.build_id)
    grant(scratch.folder, scratch.word)


def _target(scratch: Scratch) -> Path:
    """Where the link leads; nothing that we did not make is ever removed or written into."""
    place = scratch.folder.readlink()
    if not _OWN_NAME.fullmatch(place.name):
        raise UsageError(f"{label(scratch.folder)}: a link to a folder that is not ours; remove the link")
    return place


def _leave_lost_place(scratch: Scratch) -> None:
    """A scratch on a disk that is gone, or of another machine, is begun anew; no link leads there any more."""
    if scratch.folder.is_symlink() and not (place := _target(scratch)).is_dir():
        notice(
            f"scratch: {label(place)}, in which this build was begun, is gone; it begins anew; should that disk "
            "come back, remove the folder by hand, since it may hold note text"
        )
        scratch.folder.unlink()


def _lies_in(folder: Path, chosen: Path) -> bool:
    return folder.is_symlink() and folder.readlink().parent == chosen


def _begin_in(scratch: Scratch, chosen: Path) -> None:
    """Link first: a folder that no link leads to would never be found again."""
    if is_there(scratch.folder):
        notice("scratch: this build was begun in another folder; what is there is removed, and it begins anew")
        clear(scratch)
    make_closed(chosen)
    make_closed(scratch.folder.parent)
    scratch.folder.symlink_to(chosen / f"{PREFIX}{secrets.token_hex(8)}")
    _make_target(scratch)


def _make_target(scratch: Scratch) -> None:
    place = _target(scratch)
    try:
        place.mkdir(mode=CLOSED, exist_ok=True)
    except OSError as error:
        raise wrapped_write(place, error) from None


def _say_remainder(place: Path) -> None:
    notice(f"{label(place)}: could not be removed and may hold note text; remove it by hand")
