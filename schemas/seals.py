"""Seals (size, xxh3_128, sha256) and the only ways in which files are published and read back.

xxh3_128 finds accidents fast, sha256 is the evidence an auditor can rely on. A file appears under its final name
complete or not at all: it is written beside, flushed to the disk, then linked (first wins) or renamed (last wins).
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import xxhash
from pydantic import BaseModel, ConfigDict, Field

from schemas.errors import AccessDeniedError, IntegrityError, PipelineError, TemporaryError, UsageError

CHUNK_BYTES = 1 << 20
TEMPORARY_PREFIX = ".writing-"
OPEN_MODE = 0o666
DENIED_ERRNOS = {errno.EACCES, errno.EPERM}
TEMPORARY_ERRNOS = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE, errno.EAGAIN, errno.EBUSY}


class Seal(BaseModel):
    """Size and digests of one file's bytes; digests are lower-case hex."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    num_bytes: int = Field(ge=0)
    xxh3_128: str = Field(pattern=r"^[0-9a-f]{32}$")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


def seal_bytes(content: bytes) -> Seal:
    """The seal of a byte string."""
    return Seal(
        num_bytes=len(content),
        xxh3_128=xxhash.xxh3_128_hexdigest(content),
        sha256=hashlib.sha256(content).hexdigest(),
    )


def seal_file(path: Path) -> Seal:
    """The seal of a file, read once in chunks of 1 MiB.

    Raises:
        IntegrityError: the file is absent or no regular file.
        TemporaryError: the file system failed.
    """
    with opened(path) as file:
        return seal_stream(file)


def seal_stream(file: BinaryIO) -> Seal:
    """The seal of what is left to read of an open file."""
    fast, strong, num_bytes = xxhash.xxh3_128(), hashlib.sha256(), 0
    while chunk := file.read(CHUNK_BYTES):
        fast.update(chunk)
        strong.update(chunk)
        num_bytes += len(chunk)
    return Seal(num_bytes=num_bytes, xxh3_128=fast.hexdigest(), sha256=strong.hexdigest())


def check_seal(path: Path, expected: Seal) -> None:
    """The file is exactly what was sealed.

    Raises:
        IntegrityError: names the file and what differs.
    """
    require_seal(path, seal_file(path), expected)


def is_intact(path: Path, expected: Seal) -> bool:
    """Whether a file that we wrote is still that file, by size and xxh3_128: against accidents, not against forgers."""
    fast, num_bytes = xxhash.xxh3_128(), 0
    with opened(path) as file:
        while chunk := file.read(CHUNK_BYTES):
            fast.update(chunk)
            num_bytes += len(chunk)
    return (num_bytes, fast.hexdigest()) == (expected.num_bytes, expected.xxh3_128)


def read_verified(path: Path, expected: Seal) -> bytes:
    """The content of a sealed file, read once and checked before it is used.

    Raises:
        IntegrityError: names the file and what differs.
    """
    with opened(path) as file:
        content = file.read(expected.num_bytes + 1)
    require_seal(path, seal_bytes(content), expected)
    return content


def publish(path: Path, content: bytes, *, replace: bool = False, mode: int = OPEN_MODE) -> Seal:
    """Put bytes under a name, whole or not at all.

    Args:
        path: Final name; the folder is made when absent.
        content: The bytes.
        replace: Rename over an earlier file (last wins); otherwise link, and an earlier file of equal content is kept.
        mode: Of the file from its first byte on, less what the umask takes.

    Raises:
        IntegrityError: ``replace`` is false and another content already has this name.
        TemporaryError: the disk is full or failed.
        UsageError: the path cannot be written at all.
    """
    return publish_with(path, lambda file: file.write(content), replace=replace, mode=mode)


def publish_with(
    path: Path, write: Callable[[BinaryIO], object], *, replace: bool = False, mode: int = OPEN_MODE
) -> Seal:
    """As ``publish``, for a writer that streams into the open file."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise wrapped_write(path, error) from None
    with _written_beside(path, write, mode=mode) as beside:
        seal = seal_file(beside)
        if replace:
            beside.replace(path)
        else:
            _link_first(beside, path, seal)
        sync_folder(path.parent)
    return seal


def publish_while(
    path: Path, write: Callable[[BinaryIO], object], *, check: Callable[[], None], durable: bool = True
) -> Seal:
    """As ``publish_with`` that replaces, for a writer who may lose the right to write, and the folder with it.

    Args:
        path: Final name; an absent folder is not made again.
        write: Streams into the open file.
        check: Raises once the right is lost. It is asked before the file is made, before anything is written into it,
            and before it gets its name; whoever removes the folder first takes the right away, so nothing stays there.
        durable: Whether the file must outlive a loss of power.
    """
    with _right_to_write(check), _written_beside(path, write, check=check, durable=durable) as beside:
        seal = seal_file(beside)
        check()
        beside.replace(path)
        if durable:
            sync_folder(path.parent)
    return seal


def place_while(path: Path, write: Callable[[BinaryIO], object], *, check: Callable[[], None]) -> None:
    """As ``publish_while``, for a file whose writer vouches for it: it is not sealed, nor flushed to the disk."""
    with _right_to_write(check), _written_beside(path, write, check=check, durable=False) as beside:
        check()
        beside.replace(path)


@contextlib.contextmanager
def _written_beside(
    path: Path,
    write: Callable[[BinaryIO], object],
    *,
    check: Callable[[], None] = lambda: None,
    durable: bool = True,
    mode: int = OPEN_MODE,
) -> Iterator[Path]:
    """The complete file under a name of its own, which is gone afterwards."""
    beside = path.parent / f"{TEMPORARY_PREFIX}{os.getpid()}-{secrets.token_hex(4)}"
    try:
        with open(beside, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            check()
            write(file)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        yield beside
    except OSError as error:
        raise wrapped_write(path, error) from None
    finally:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)


@contextlib.contextmanager
def _right_to_write(check: Callable[[], None]) -> Iterator[None]:
    check()
    try:
        yield
    except (OSError, PipelineError):
        check()  # a folder that is gone is the lesser reason
        raise


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading; a pipe or device in its place, which could hold a reader for ever, is refused.

    Raises:
        OSError: as ``Path.open``.
        IntegrityError: it is no regular file.
    """
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    kind = os.fstat(descriptor).st_mode
    if stat.S_ISREG(kind):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    if stat.S_ISDIR(kind):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    raise IntegrityError(f"{label(path)}: no regular file; restore it or make it again")


@contextlib.contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Open a regular file for reading, with the project's errors."""
    try:
        with open_regular(path) as file:
            yield file
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        raise IntegrityError(f"{label(path)}: no such file; restore it or make it again") from None
    except OSError as error:
        raise _wrapped(path, error) from None


def label(path: Path) -> str:
    """How messages name a file: its last three parts, enough to find it, without the machine's folders."""
    return "/".join(path.parts[-3:])


def require_seal(path: Path, found: Seal, expected: Seal) -> None:
    """A file's content has the seal that it should have.

    Raises:
        IntegrityError: names the file and what differs.
    """
    if found == expected:
        return
    if found.num_bytes != expected.num_bytes:
        size = "larger" if found.num_bytes > expected.num_bytes else f"{found.num_bytes} bytes"
        difference = f"size is {size}, {expected.num_bytes} bytes were sealed"
    elif found.sha256 != expected.sha256:
        difference = f"sha256 is {found.sha256[:16]}…, {expected.sha256[:16]}… was sealed"
    else:
        difference = f"xxh3_128 is {found.xxh3_128}, {expected.xxh3_128} was sealed beside the right sha256"
    raise IntegrityError(f"{label(path)}: {difference}; restore the file or make it again")


def _link_first(beside: Path, path: Path, seal: Seal) -> None:
    try:
        os.link(beside, path)
    except FileExistsError:
        if seal_file(path) != seal:
            raise IntegrityError(
                f"{label(path)}: exists with other content; remove the folder or name another"
            ) from None


def sync_folder(folder: Path) -> None:
    """Flush a folder's names to the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def wrapped_write(path: Path, error: OSError) -> TemporaryError | UsageError:
    """The project's error for a file or folder that cannot be written: a full disk passes, a wrong path does not."""
    reason = os.strerror(error.errno) if error.errno else type(error).__name__
    if error.errno in TEMPORARY_ERRNOS:
        return TemporaryError(f"{label(path)}: {reason}; free the space or mend the disk, then run the command again")
    return UsageError(f"{label(path)}: cannot be written ({reason}); name another folder, or change its permissions")


def _wrapped(path: Path, error: OSError) -> PipelineError:
    reason = os.strerror(error.errno) if error.errno else type(error).__name__
    if error.errno in TEMPORARY_ERRNOS:
        return TemporaryError(f"{label(path)}: {reason}; free the space or mend the disk, then run the command again")
    if error.errno in DENIED_ERRNOS:
        return AccessDeniedError(f"{label(path)}: {reason}; run as a user who may read it")
    return IntegrityError(f"{label(path)}: {reason}; check the path and its permissions")
