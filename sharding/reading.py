"""The records of a block as rows of roles: one way for both passes, so that they cannot differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from sharding.jobs import BlockJob
from sharding.sources.adapters import ADAPTERS
from sharding.sources.opening import opening_through
from sharding.sources.source import Rows


def read_block(job: BlockJob) -> Iterator[Rows]:
    """Read a block; of a family of files its adapter turns rows of notes into rows of roles.

    Raises:
        DataError: the file cannot be read as its format.
        IntegrityError: a lookup table cannot be read.
    """
    with opening_through(job.scratch.opened):
        yield from _rows(job)


def _rows(job: BlockJob) -> Iterator[Rows]:
    adapter = ADAPTERS.get(job.settings.source)
    found = job.source.read(job.path, job.span, columns=job.columns)
    if adapter is None:
        yield from found
        return
    from sharding.lookups import open_lookups  # what makes lookups needs polars, which plain tables do not

    lookups = open_lookups(job.scratch, job.lookups)
    for rows in found:
        rejected = rows.rejected
        for part in adapter.parts(rows.table, lookups):
            adapted = adapter.records(part, lookups)
            yield Rows(adapted.table, rejected + adapted.rejected, rows.roles_seen, adapted.unresolved)
            rejected = Counter()
