"""How even a build is: tokens and case mix of shards, and of ranks that would share them."""

from __future__ import annotations

from pydantic import Field

from schemas.documents import Value
from schemas.patterns import CODE


class DepartmentBalance(Value):
    """How even the shards of one department are.

    ``total_variation`` is that of the shard whose case mix is furthest from the department's: half the sum over all
    strata of the differences of their shares. ``chi_square`` is Pearson's statistic for equal case mixes.
    """

    code: str = Field(pattern=CODE)
    num_shards: int = Field(gt=0)
    num_strata: int = Field(gt=0)
    token_max_over_mean: float = Field(ge=1)
    total_variation: float = Field(ge=0, le=1)
    chi_square: float = Field(ge=0)
    degrees_of_freedom: int = Field(ge=0)


class RankBalance(Value):
    """How even so many ranks would be that share the blocks longest first; ``total_variation`` from the whole build."""

    num_ranks: int = Field(gt=0)
    token_max_over_mean: float = Field(ge=1)
    total_variation: float = Field(ge=0, le=1)


class Balance(Value):
    """Estimated tokens and case mix, as they were planned."""

    departments: list[DepartmentBalance]
    ranks: list[RankBalance]
