"""How fast a rank computes: over the last minute, or since it began where that is less."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

RATE_SECONDS = 60.0


@dataclass(slots=True)
class RecentRate:
    """Counts of the last minute, by the moments at which they were noted; seconds of any clock."""

    _noted: deque[tuple[float, int]] = field(default_factory=deque)
    _began: float = 0.0

    def note(self, now: float, num_tokens: int) -> None:
        """Take the count of this moment, and forget what is older than a minute."""
        if not self._noted:
            self._began = now
        self._noted.append((now, num_tokens))
        while len(self._noted) > 2 and now - self._noted[1][0] >= RATE_SECONDS:
            self._noted.popleft()

    @property
    def has_begun(self) -> bool:
        """Whether there is anything to go by."""
        return bool(self._noted)

    @property
    def num_tokens(self) -> int:
        """Tokens within the time of ``seconds``."""
        return self._noted[-1][1] - self._noted[0][1] if self._noted else 0

    @property
    def seconds(self) -> float:
        """At least a minute, or all that has gone by; never negative, though clocks are set back."""
        return max(0.0, self._noted[-1][0] - self._noted[0][0]) if self._noted else 0.0

    @property
    def total_seconds(self) -> float:
        """From the first note to the last."""
        return max(0.0, self._noted[-1][0] - self._began) if self._noted else 0.0
