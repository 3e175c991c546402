"""Checking an audit log: each event follows from all before it, and a head that was signed is still in it."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from schemas.audit_events import MAX_LINE_BYTES, NO_DIGEST, NO_EVENTS, AuditEvent, AuditHead, head_at, parse_event
from schemas.errors import IntegrityError
from schemas.locks import at_rest
from schemas.seals import label, opened


@dataclass(frozen=True, slots=True)
class AuditChain:
    """What a whole log holds.

    Attributes:
        head: Of the last event.
        outcomes: How often each action had each outcome.
        num_torn: Torn lines, those that an event has recorded and the one that may stand at the end.
    """

    head: AuditHead
    outcomes: dict[tuple[str, str], int]
    num_torn: int


def check_chain(path: Path) -> AuditHead:
    """The head of a log in which each event follows from all that stands before it.

    Raises:
        IntegrityError: there is no log, or at which event the chain breaks, and how.
    """
    return read_chain(path).head


def require_head(path: Path, head: AuditHead) -> None:
    """The log still contains what it held when it had this head.

    Raises:
        IntegrityError: it was cut before that event or rewritten, or ``check_chain`` refuses it.
    """
    read_chain(path, head)


def read_chain(path: Path, head: AuditHead = NO_EVENTS) -> AuditChain:
    """What a log holds, checked as by ``check_chain`` and ``require_head`` in one reading.

    Raises:
        IntegrityError: see there.
    """
    reading = _Reading(label(path))
    reading.require(head)
    for line in _lines(path):
        reading.take(line)
        reading.require(head)
    reading.require_end(head)
    return AuditChain(reading.head, dict(reading.outcomes), reading.num_torn)


def _lines(path: Path) -> Iterator[bytes]:
    """What stood in the log when nobody wrote; a line that is too long comes in pieces that are."""
    with opened(path) as file:
        with at_rest(file.fileno()):
            remaining = os.fstat(file.fileno()).st_size
        while remaining and (line := file.readline(min(MAX_LINE_BYTES + 1, remaining))):
            remaining -= len(line)
            yield line


class _Reading:
    """How far a log was read, and what its next event has to say of that."""

    def __init__(self, where: str) -> None:
        self.head, self.num_torn = NO_EVENTS, 0
        self.outcomes: Counter[tuple[str, str]] = Counter()
        self._where = where
        self._since, self._num_lines, self._is_ended = hashlib.sha256(), 0, True

    def take(self, line: bytes) -> None:
        """One more line: an event, or what the next event must call torn."""
        event = parse_event(line)
        if event is None:
            if len(line) > MAX_LINE_BYTES:
                raise self._broken(f"a line of over {MAX_LINE_BYTES} bytes stands there")
            self.num_torn += 1
        else:
            self._require_next(event)
            self.head, self._since, self._num_lines = head_at(event), hashlib.sha256(), 0
            self.outcomes[event.action, event.outcome] += 1
        self._since.update(line)
        self._num_lines += 1
        self._is_ended = line.endswith(b"\n")

    def require(self, head: AuditHead) -> None:
        """The head, if we are where it was taken."""
        if self.head.num_events == head.num_events and self.head != head:
            raise IntegrityError(
                f"{self._where}: head in the signed manifest does not match: event {head.num_events} has sha256 "
                f"{self.head.sha256[:16]}…, {head.sha256[:16]}… was signed; the log was rewritten, restore it"
            )

    def require_end(self, head: AuditHead) -> None:
        """The log may end here."""
        if self._is_ended and self._num_between:
            raise self._broken("a whole line that is no event stands there, the last one")
        if self.head.num_events < head.num_events:
            raise IntegrityError(
                f"{self._where}: head in the signed manifest does not match: the log ends at event "
                f"{self.head.num_events}, event {head.num_events} was signed; the log was cut, restore it"
            )

    @property
    def _num_between(self) -> int:
        """Lines since the last event that are none."""
        return self._num_lines - (1 if self.head.num_events else 0)

    def _require_next(self, event: AuditEvent) -> None:
        if self._num_between and not event.torn:
            raise self._broken(f"{self._num_between} lines that are no events stand there, which no tear explains")
        if event.torn and not self._num_between:
            raise self._broken("it follows a torn line that is not there")
        if event.seq != self.head.num_events + 1:
            raise self._broken(f"event {event.seq} stands there; lines were removed, inserted or swapped")
        if event.previous != (self._since.hexdigest() if self._num_lines else NO_DIGEST):
            raise self._broken("what stands before it was changed")

    def _broken(self, how: str) -> IntegrityError:
        return IntegrityError(
            f"{self._where}: the chain breaks at event {self.head.num_events + 1}: {how}; restore the log"
        )
