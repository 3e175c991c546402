"""What a rank need not compute again: sequences of this run, and of earlier ones."""

from __future__ import annotations

from dataclasses import dataclass, field

from scoring.cache import ScoreCache
from scoring.sequences import Remembered, SequenceKey, SequenceScore


@dataclass(slots=True)
class Recall:
    """The memory of one rank, and how often it helped.

    Attributes:
        remembered: Sequences of this process.
        cache: Sequences of earlier runs, if there is one.
        num_repeated: Records whose sequence this process had seen.
        num_cached: Records whose sequence the cache had.
    """

    remembered: Remembered = field(default_factory=Remembered)
    cache: ScoreCache | None = None
    num_repeated: int = 0
    num_cached: int = 0

    def find(self, key: SequenceKey) -> SequenceScore | None:
        """The score of an equal sequence, by the nearest way."""
        score = self.remembered.find(key)
        if score is not None:
            self.num_repeated += 1
            return score
        score = self.cache.find(key) if self.cache else None
        if score is not None:
            self.num_cached += 1
            self.remembered.keep(key, score)
        return score

    def join(self) -> None:
        """Count a record that waits for a sequence in flight."""
        self.num_repeated += 1

    def keep(self, key: SequenceKey, score: SequenceScore) -> None:
        """Remember a computed score."""
        self.remembered.keep(key, score)
        if self.cache:
            self.cache.keep(key, score)

    def flush(self) -> None:
        """Leave nothing that a later run could use unwritten."""
        if self.cache:
            self.cache.flush()
