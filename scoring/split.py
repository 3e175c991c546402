"""A record's loss split by class of token and by position; each way its parts add up to the loss, bit for bit.

The position of a token is how many tokens of its record stand before it; a prefix token is none of them.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from schemas.errors import UsageError
from schemas.parts import PARTS_KEY
from scoring.config import ScoringSettings
from scoring.lexicons import read_lexicon
from scoring.token_classes import RULES, TokenClasses
from scoring.units import read_units


class PartLoss(NamedTuple):
    """The loss of some of a record's tokens."""

    loss_nats: float
    num_tokens: int


@dataclass(frozen=True, slots=True)
class Split:
    """How a record's loss is split.

    Attributes:
        classes: Tells the class of each token.
        bounds: Positions at which a new band begins, ascending; the first band begins at 0.
    """

    classes: TokenClasses
    bounds: tuple[int, ...]

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of the parts, see ``schemas.parts``: classes in their order, then bands."""
        firsts, stops = (0, *self.bounds), (*(bound - 1 for bound in self.bounds), "")
        bands = (f"position.{first}-{last}" for first, last in zip(firsts, stops, strict=True))
        return (*(f"class.{name}" for name in self.classes.names), *bands)

    def losses(self, losses_N: NDArray[np.float64], labels_N: NDArray[np.uint8]) -> tuple[PartLoss, ...]:
        """The loss of each part.

        Args:
            losses_N: Of the scored tokens of one record, on its grid (``scoring.grid``), in nats.
            labels_N: Class of every token of the record, as ``TokenClasses.labels`` gives it; without a prefix there is
                one more than there are losses, since the first token is not scored.

        Returns:
            In the order of ``parts``. On the grid no sum is rounded, so those of each way are exactly the record's.
        """
        num_unscored = len(labels_N) - len(losses_N)
        bands_N = np.searchsorted(self.bounds, np.arange(num_unscored, len(labels_N)), side="right")
        by_class = _sums(losses_N, labels_N[num_unscored:], len(self.classes.names))
        return (*by_class, *_sums(losses_N, bands_N, len(self.bounds) + 1))


def open_split(settings: ScoringSettings) -> Split | None:
    """What the settings ask for; reads the lists of units and terms.

    Raises:
        UsageError: a list cannot be read, or two lexicons have one name.
    """
    if not settings.token_classes:
        return None
    lexicons = tuple(map(read_lexicon, settings.lexicon))
    names = Counter(lexicon.name for lexicon in lexicons)
    if twice := sorted(name for name, times in names.items() if times > 1):
        raise UsageError(f"lexicon: {len(twice)} names are given twice; name each file, as NAME=FILE")
    return Split(TokenClasses(read_units(settings.units), lexicons), settings.position_bands)


def split_part(split: Split) -> dict[str, Any]:
    """All that the split of a loss depends on, for the fingerprint."""
    return {
        "lexicons_sha256": {lexicon.name: lexicon.sha256 for lexicon in split.classes.lexicons},
        PARTS_KEY: list(split.parts),
        "rules": RULES,
        "unicode": unicodedata.unidata_version,
        "units_sha256": split.classes.units.sha256,
    }


def _sums(losses_N: NDArray[np.float64], places_N: NDArray[Any], num_places: int) -> list[PartLoss]:
    sums = np.bincount(places_N, weights=losses_N, minlength=num_places)
    counts = np.bincount(places_N, minlength=num_places)
    return [PartLoss(float(loss), int(count)) for loss, count in zip(sums, counts, strict=True)]
