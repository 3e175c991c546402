"""Distinct token sequences: what is computed once, however many records of a department have it.

Clinical notes are copied forward, so whole notes repeat. Equal ids in equal windows have equal losses, to the bit, so a
sequence in flight takes further records along, and a finished one is remembered. Words and bytes are each record's own:
two texts can have the same ids.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from schemas.tables import STATUS_NO_SCORED_TOKENS, STATUS_NON_FINITE, STATUS_SCORED
from scoring.grid import on_grid
from scoring.tokens import Encoded

if TYPE_CHECKING:
    from scoring.split import PartLoss

DIGEST_BYTES = 16
MAX_REMEMBERED = 1 << 18


@dataclass(frozen=True, slots=True)
class SequenceKey:
    """A token sequence of one department; departments share nothing, not even the fact of an equal note.

    Attributes:
        department: Its code.
        digest: BLAKE2b-128 of the little-endian int64 ids, prefix and context among them, and of the tokens' classes if
            losses are split: other texts can have equal ids and other classes. Salted with the number of the ids that
            are context: where other ones of equal ids are scored, that is another sequence.
    """

    department: str
    digest: bytes


def sequence_key(department: str, record: Encoded, *, is_check: bool = False) -> SequenceKey:
    """The key of a department's sequence; its length decides in which precision, but for the precision check."""
    content = record.positions.astype("<i8").tobytes() + (b"" if record.labels is None else record.labels.tobytes())
    person = b"precision-check" if is_check else b""
    salt = record.num_context.to_bytes(hashlib.blake2b.SALT_SIZE, "little")
    digest = hashlib.blake2b(content, digest_size=DIGEST_BYTES, person=person, salt=salt).digest()
    return SequenceKey(department, digest)


@dataclass(frozen=True, slots=True)
class SequenceScore:
    """What is known of a scored sequence.

    Attributes:
        status: ``scored``, or the reason of ``schemas.tables`` why not.
        loss_nats: Exact sum of the tokens' losses on the record's grid; None unless scored.
        num_tokens: Scored tokens; 0 unless scored.
        num_windows: Forward-pass rows it took.
        parts: Losses of its parts, if losses are split and it is scored.
    """

    status: str
    loss_nats: float | None
    num_tokens: int
    num_windows: int
    parts: tuple[PartLoss, ...] = ()


class Memory(Protocol):
    """Finished sequences, to be had again."""

    def find(self, key: SequenceKey) -> SequenceScore | None:
        """The score of an equal sequence, if it is remembered."""

    def join(self) -> None:
        """Hear that a record waits for an equal sequence in flight."""

    def keep(self, key: SequenceKey, score: SequenceScore) -> None:
        """Remember a score."""


class Remembered:
    """The latest ``max_remembered`` sequences of this process; blocks come by department, older ones seldom recur."""

    def __init__(self, max_remembered: int = MAX_REMEMBERED) -> None:
        self._scores: OrderedDict[SequenceKey, SequenceScore] = OrderedDict()
        self._max_remembered = max_remembered

    def find(self, key: SequenceKey) -> SequenceScore | None:
        """As the protocol says; what is found becomes the latest."""
        score = self._scores.get(key)
        if score is not None:
            self._scores.move_to_end(key)
        return score

    def keep(self, key: SequenceKey, score: SequenceScore) -> None:
        """As the protocol says; the oldest gives way."""
        self._scores[key] = score
        if len(self._scores) > self._max_remembered:
            self._scores.popitem(last=False)


def _whole(_losses_N: NDArray[np.float64]) -> tuple[PartLoss, ...]:
    """No parts."""
    return ()


@dataclass(slots=True)
class Losses:
    """The losses of one sequence, filled window by window in any order."""

    losses_N: NDArray[np.float64]  # noqa: N815 - shape letters
    num_missing: int
    num_windows: int = 0

    def put(self, start: int, losses: NDArray[np.float64]) -> None:
        """Take the losses of consecutive targets, the first of which is number ``start``."""
        self.losses_N[start : start + len(losses)] = losses
        self.num_missing -= len(losses)

    def score(self, split: Callable[[NDArray[np.float64]], tuple[PartLoss, ...]] = _whole) -> SequenceScore:
        """The outcome, when none is missing.

        Args:
            split: Gives the parts of losses on the record's grid.
        """
        losses_N = on_grid(self.losses_N)
        with np.errstate(over="ignore", invalid="ignore"):
            loss_nats = float(losses_N.sum())
        if not len(losses_N):
            return SequenceScore(STATUS_NO_SCORED_TOKENS, None, 0, self.num_windows)
        if not np.isfinite(loss_nats):
            return SequenceScore(STATUS_NON_FINITE, None, 0, self.num_windows)
        return SequenceScore(STATUS_SCORED, loss_nats, len(losses_N), self.num_windows, split(losses_N))


def losses_of(num_targets: int) -> Losses:
    """Room for the losses of so many targets."""
    return Losses(np.empty(num_targets), num_targets)
