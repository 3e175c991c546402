"""Rows of side files, counted: one that cannot be read says nothing of any note, and too many of them stop a build.

They are no records, so the ledger of records does not know them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from schemas.ledgers import SideLedger
from schemas.seals import label
from sharding.config import ShardingSettings
from sharding.sources.source import UNDECODABLE

MAX_FILES_SAID = 8


@dataclass(frozen=True, slots=True)
class SideRows:
    """What became of the rows of one side file."""

    path: Path
    ledger: SideLedger


def whole_of(sides: Iterable[SideRows]) -> SideLedger:
    """The ledger of all side files."""
    num_read = 0
    rejected: Counter[str] = Counter()
    for side in sides:
        num_read += side.ledger.num_read
        rejected.update(side.ledger.rejected)
    return SideLedger(num_read=num_read, rejected=dict(sorted(rejected.items())))


def said_of(ledger: SideLedger) -> str:
    """What was rejected, by reason, in one line."""
    return ", ".join(f"{count} {reason}" for reason, count in sorted(ledger.rejected.items()))


def said_of_rejects(sides: Sequence[SideRows], settings: ShardingSettings, *, whole: SideLedger) -> str:
    """That more rows were rejected than ``--max-rejects`` allows, of which files, and what to do.

    Args:
        sides: All side files.
        settings: Of the build.
        whole: The ledger of all side files.
    """
    names = [label(side.path) for side in sides if side.ledger.rejected]
    more = f" and {len(names) - MAX_FILES_SAID} more" if len(names) > MAX_FILES_SAID else ""
    cure = f"set --encoding (it is {settings.encoding}), " if whole.rejected.get(UNDECODABLE) else ""
    num_rejected = sum(whole.rejected.values())
    return (
        f"{', '.join(names[:MAX_FILES_SAID])}{more}: {num_rejected} of {whole.num_read} rows of side files rejected "
        f"({said_of(whole)}), at most {settings.max_rejects} are allowed; {cure}mend the files, or raise --max-rejects"
    )
