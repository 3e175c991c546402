"""Counts that account for every record of a build: what was read, and what became of it."""

from __future__ import annotations

from pydantic import Field

from schemas.documents import Value


class BuildLedger(Value):
    """read = kept + duplicates + rejected, each by reason."""

    num_read: int = Field(ge=0)
    num_kept: int = Field(ge=0)
    duplicates: dict[str, int]
    rejected: dict[str, int]

    @property
    def balances(self) -> bool:
        """Every record that was read is accounted for."""
        return self.num_read == self.num_kept + sum(self.duplicates.values()) + sum(self.rejected.values())


class SideLedger(Value):
    """Rows of the files that say more about notes, and those of them that could not be read, by reason.

    They are no records, so they are in no ``BuildLedger``.
    """

    num_read: int = Field(default=0, ge=0)
    rejected: dict[str, int] = Field(default_factory=dict)


class PhiCount(Value):
    """What has the form of an identifier of one kind: stretches of text, and records with at least one."""

    findings: int = Field(ge=0)
    records: int = Field(ge=0)
