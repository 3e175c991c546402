"""The self-tests of all precisions of a run, as one: a run is as good as the weakest of them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from schemas.precision import Precision
from scoring.selftest import SelfTest, require_passed


@dataclass(frozen=True, slots=True)
class LaneTests:
    """The self-test of each precision that the run computes in; one precision alone stands without its name."""

    by_precision: dict[Precision, SelfTest]

    @property
    def is_batch_invariant(self) -> bool:
        """Whether rows of any blocks may share a tile, in every precision."""
        return all(selftest.is_batch_invariant for selftest in self.by_precision.values())

    @property
    def canary(self) -> str:
        """Hex SHA-256 of the probes' losses in all precisions."""
        canaries = [selftest.canary for selftest in self.by_precision.values()]
        return canaries[0] if len(canaries) == 1 else hashlib.sha256("".join(canaries).encode()).hexdigest()

    def outcomes(self) -> dict[str, str]:
        """As it stands in run.json and the report, claims of several precisions with its name before them."""
        return {
            f"{self._name_of(precision)} {claim}".strip(): outcome
            for precision, selftest in self.by_precision.items()
            for claim, outcome in selftest.outcomes().items()
        }

    def require_passed(self, *, strict: bool) -> None:
        """As ``selftest.require_passed``, for every precision.

        Raises:
            IntegrityError: names the first claim that does not hold, and its precision.
        """
        for precision, selftest in self.by_precision.items():
            require_passed(selftest, strict=strict, lane=self._name_of(precision))

    def _name_of(self, precision: Precision) -> str:
        return precision if len(self.by_precision) > 1 else ""
