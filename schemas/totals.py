"""Exact totals of a run, as they stand in its manifest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from schemas.documents import Value
from schemas.parts import PartTally


class PartTotals(Value):
    """Exact totals of one part of the losses; ``loss_nats`` is an ``ExactSumJSON``."""

    loss_nats: dict[str, Any]
    num_tokens: int = Field(ge=0)
    num_records: int = Field(ge=0)


class RunTotals(Value):
    """Exact totals over all partials, and those of their parts; ``loss_nats`` is an ``ExactSumJSON``."""

    loss_nats: dict[str, Any]
    num_tokens: int = Field(ge=0)
    num_words: int = Field(ge=0)
    num_bytes: int = Field(ge=0)
    num_records: int = Field(ge=0)
    skipped: dict[str, int]
    parts: dict[str, PartTotals] = Field(default_factory=dict)


def part_totals(parts: Mapping[str, PartTally]) -> dict[str, PartTotals]:
    """The parts of losses as they stand in the document."""
    return {
        name: PartTotals(
            loss_nats=dict(part.loss_nats.to_json()), num_tokens=part.num_tokens, num_records=part.num_records
        )
        for name, part in parts.items()
    }
