"""The audit log: who did what to which keys and shards, each event chained to all that stands before it.

A log is JSON Lines: one event, one canonical line of at most 1 KiB, on the disk before ``append`` returns. ``previous``
is the SHA-256 of all bytes from the start of the event before on, and so commits to the whole log.

A writer that was killed may leave a *torn* line, without its newline. It is kept and ended; the next event says
``"torn": true``, and its ``previous`` covers the torn bytes too, which take no sequence number. So what is no event is
a tear only at the very end and without a newline, or before an event that says so. Anything else was edited, and is
refused, by ``append`` too: an edit must not pass for a tear once the log goes on.

The chain alone shows damage and careless edits. Whoever may write the file can chain it anew, or cut it at its end:
therefore a head is kept where it is signed, and ``audit_chain.require_head`` tells whether the log still has it.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from schemas.audit_events import (
    MAX_LINE_BYTES,
    NO_DIGEST,
    NO_EVENTS,
    Action,
    AuditEvent,
    AuditHead,
    Outcome,
    event_line,
    head_at,
    parse_event,
    require_opaque,
)
from schemas.closed import make_closed
from schemas.errors import IntegrityError, UsageError
from schemas.locks import at_rest, locked_file
from schemas.seals import label, opened, sync_folder, wrapped_write

# A whole event and a torn one; more is read only where several tears follow each other.
TAIL_BYTES, MOST_TAIL_BYTES = 2 * MAX_LINE_BYTES, 64 * MAX_LINE_BYTES
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND
_OTHERS_MAY_WRITE = 0o022


@dataclass(frozen=True, slots=True)
class AuditLog:
    """A log to append to; threads and processes may share it, also over file systems that share locks.

    Attributes:
        path: File, made with mode 0600 at the first event.
        who: Principal of the events.
    """

    path: Path
    who: str

    def append(self, action: Action, what: str, outcome: Outcome) -> AuditHead:
        """Write one event, whole and flushed to the disk, at a cost that does not depend on the log's length.

        Returns:
            The head of the log at this event.

        Raises:
            UsageError: an argument cannot be an event's, or the file is a link, writable by others or not by us.
            IntegrityError: the log ends in what is neither an event nor a torn line.
            TemporaryError: the disk is full or failed.
        """
        require_opaque(self.who, action, what=what, outcome=outcome)
        try:
            make_closed(self.path.parent)
        except OSError as error:
            raise wrapped_write(self.path, error) from None
        with locked_file(self.path, flags=_FLAGS) as descriptor:
            _require_closed(os.fstat(descriptor), self.path)
            try:
                end = _end_of(descriptor, self.path)
                event = AuditEvent(
                    seq=end.head.num_events + 1,
                    at=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
                    who=self.who,
                    action=action,
                    what=what,
                    outcome=outcome,
                    previous=end.previous,
                    torn=True if end.is_torn else None,
                )
                _write(descriptor, (b"\n" if end.is_torn else b"") + event_line(event), end.num_bytes)
                if end.num_bytes == 0:
                    sync_folder(self.path.parent)
            except OSError as error:
                raise wrapped_write(self.path, error) from None
        return head_at(event)


def head_of(path: Path) -> AuditHead:
    """The head of a log, from its last event alone; whether the chain holds is for ``audit_chain.check_chain``.

    Raises:
        IntegrityError: there is no log, or it ends in what is neither an event nor a torn line.
    """
    with opened(path) as file, at_rest(file.fileno()):
        return _end_of(file.fileno(), path).head


@dataclass(frozen=True, slots=True)
class _End:
    """What the next event needs to know."""

    head: AuditHead
    previous: str
    is_torn: bool
    num_bytes: int


def _end_of(descriptor: int, path: Path) -> _End:
    num_bytes = os.fstat(descriptor).st_size
    for num_tail_bytes in (TAIL_BYTES, MOST_TAIL_BYTES):
        start = max(0, num_bytes - num_tail_bytes)
        *parts, torn = os.pread(descriptor, num_bytes - start, start).split(b"\n")
        lines = [part + b"\n" for part in parts]
        if start:
            lines = lines[1:]  # the first one may have begun before
        events = [(place, event) for place, line in enumerate(lines) if (event := parse_event(line))]
        if not events and start:
            continue
        place, event = events[-1] if events else (0, None)
        is_edited = (event is None or place < len(lines) - 1) and bool(lines) and not torn
        if is_edited or len(torn) >= MAX_LINE_BYTES:
            break
        since = b"".join(lines[place:]) + (torn + b"\n" if torn else b"")
        previous = hashlib.sha256(since).hexdigest() if since else NO_DIGEST
        return _End(head_at(event) if event else NO_EVENTS, previous, bool(torn), num_bytes)
    raise IntegrityError(
        f"{label(path)}: ends in what is neither an event nor a torn one: it was edited or is no audit log; restore it"
    )


def _require_closed(status: os.stat_result, path: Path) -> None:
    mode = stat.S_IMODE(status.st_mode)
    if not stat.S_ISREG(status.st_mode):
        raise UsageError(f"{label(path)}: no regular file; name another for the audit log")
    if mode & _OTHERS_MAY_WRITE:
        raise UsageError(f"{label(path)}: mode is {mode:04o}, others may write the audit log; set 0600")


def _write(descriptor: int, content: bytes, num_bytes_before: int) -> None:
    """Append all or, as far as we live to say so, nothing."""
    if os.write(descriptor, content) < len(content):
        os.ftruncate(descriptor, num_bytes_before)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    os.fsync(descriptor)
