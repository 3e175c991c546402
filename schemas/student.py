"""Quantiles of Student's t distribution, from the standard library alone."""

from __future__ import annotations

import math
from statistics import NormalDist

FEW_DEGREES = 200
_STEPS = 200


def t_quantile(probability: float, degrees: int) -> float:
    """The value that a t variable stays below with this probability.

    For few degrees by bisection of the closed form (Abramowitz and Stegun 26.7.3 and 26.7.4), which is finite for whole
    degrees; for many by the expansion around the normal quantile (26.7.5), then good to 1e-9.

    Args:
        probability: Above 0.5, below 1.
        degrees: Of freedom, at least 1.
    """
    if degrees > FEW_DEGREES:
        return _expanded(NormalDist().inv_cdf(probability), degrees)
    low, high = 0.0, 1.0
    while _cdf(high, degrees) < probability:
        low, high = high, 2 * high
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if _cdf(middle, degrees) < probability else (low, middle)
    return high


def _cdf(t: float, degrees: int) -> float:
    """Probability of a value below ``t``, for ``t`` of 0 or more."""
    theta = math.atan(t / math.sqrt(degrees))
    sine, cosine = math.sin(theta), math.cos(theta)
    is_odd = degrees % 2
    term, total = (cosine, 0.0) if is_odd else (1.0, 0.0)
    for number in range(1 + is_odd, degrees, 2):
        total += term
        term *= cosine * cosine * number / (number + 1)
    inside = (theta + sine * total) * 2 / math.pi if is_odd else sine * total
    return (1 + inside) / 2


def _expanded(z: float, degrees: int) -> float:
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum(term / float(degrees) ** power for power, term in enumerate(terms, 1))
