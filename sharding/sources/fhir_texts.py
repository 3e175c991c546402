"""The text of each document: of its attachments, which are formats of one text, the one that is best to read.

Texts by ``url`` lie in Binary resources, whose size says nothing of the size of the notes' own lines: rows are taken in
parts that refer to so much of them and no more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sharding.intended import OTHER_FORMAT
from sharding.sources.fhir_attachments import MEDIA_RANKS, NO_CONTENT, media_and_charset, text_of
from sharding.sources.fhir_lookups import AMBIGUOUS, binary_data, find_resources
from sharding.sources.fhir_notes import DOCUMENT, PROBLEM
from sharding.sources.fhir_references import reference_key
from sharding.sources.fhir_types import BINARY

PART_BYTES = 16 << 20
AMBIGUOUS_BINARY = "ambiguous_binary"


@dataclass(frozen=True, slots=True)
class Texts:
    """One text per document.

    Attributes:
        rows: The attachment that was taken of each document that has a text, in their order, without its data.
        texts: Its text.
        rejected: One reason per document without a text, and ``other_format`` for whatever was not taken.
    """

    rows: pa.Table
    texts: pa.Array
    rejected: Counter[str]


def parts(rows: pa.Table, lookups: Mapping[str, pa.Table], *, max_bytes: int = PART_BYTES) -> Iterator[pa.Table]:
    """Rows in parts that refer to at most ``max_bytes`` of binaries, or are one document; documents stay whole."""
    sizes = lookups[BINARY].column("num_bytes").take(_binaries(rows, lookups)).to_pylist()
    first = start = num_bytes = 0
    for _, group in groupby(rows.column(DOCUMENT).to_pylist()):
        stop = start + sum(1 for _ in group)
        added = sum(int(size) for size in sizes[start:stop] if size is not None)
        if num_bytes + added > max_bytes and first < start:
            yield rows.slice(first, start - first)
            first, num_bytes = start, 0
        start, num_bytes = stop, num_bytes + added
    yield rows.slice(first)


def texts_of(rows: pa.Table, lookups: Mapping[str, pa.Table]) -> Texts:
    """Take one attachment of each document: text before none, then plain text before marked-up text, then the first."""
    read = _read(rows, lookups)
    documents = rows.column(DOCUMENT).to_pylist()
    groups = groupby(range(len(documents)), key=documents.__getitem__)
    best = [min(group, key=lambda row: read[row].order) for _, group in groups]
    rejected = Counter(reason for row in best if (reason := read[row].reason))
    rejected[OTHER_FORMAT] = len(documents) - len(best)
    taken = [row for row in best if not read[row].reason]
    texts = pa.array([read[row].text for row in taken], pa.large_string())
    return Texts(rows.drop_columns(["data"]).take(pa.array(taken, pa.int64())), texts, +rejected)


@dataclass(frozen=True, slots=True)
class _Read:
    """What became of an attachment: a text or a reason."""

    text: str | None
    reason: str | None
    media: str

    @property
    def order(self) -> tuple[bool, bool, int]:
        """Ascending from what is best to read."""
        return self.text is None, not self.text, MEDIA_RANKS.get(self.media, len(MEDIA_RANKS))


def _read(rows: pa.Table, lookups: Mapping[str, pa.Table]) -> list[_Read]:
    found = _binaries(rows, lookups)
    binaries = lookups[BINARY]
    ambiguous = binaries.column(AMBIGUOUS).take(found).fill_null(False)
    sound = pc.if_else(ambiguous, pa.scalar(None, pa.int64()), found)
    columns = (
        rows.column("data").to_pylist(),
        rows.column("content_type").to_pylist(),
        rows.column(PROBLEM).to_pylist(),
        binary_data(lookups, sound),
        binaries.column("content_type").take(found).to_pylist(),
        ambiguous.to_pylist(),
    )
    return [_outcome(cells) for cells in zip(*columns, strict=True)]


def _outcome(cells: tuple[Any, ...]) -> _Read:
    """From an attachment's data, content type and problem, and its binary's data, content type and ambiguity."""
    own, kind, problem, held, held_kind, is_ambiguous = cells
    kinds = (kind,) if own is not None else (held_kind, kind)
    media = media_and_charset(*kinds)[0]
    data = own if own is not None else held
    missing = AMBIGUOUS_BINARY if is_ambiguous else NO_CONTENT
    text, reason = (None, problem or missing) if problem or data is None else text_of(data, *kinds)
    return _Read(text, reason, media)


def _binaries(rows: pa.Table, lookups: Mapping[str, pa.Table]) -> pa.Array:
    """Row of the binary that each attachment without data of its own refers to, int64; null where there is none."""
    pairs = zip(rows.column("url").to_pylist(), rows.column("data").is_null().to_pylist(), strict=True)
    keys = [reference_key({"reference": url}, BINARY) if url and is_apart else None for url, is_apart in pairs]
    return find_resources(lookups, BINARY, keys)
