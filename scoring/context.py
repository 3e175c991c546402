"""Earlier notes of an encounter as context: they stand before a record and are never scored with it.

A build made with ``--group encounter`` holds what a department has of an encounter side by side, in the order of time;
so what was written before a note stands before it in its shard. The positions of a record are then

    prefix, earlier notes from the first to the last with a separator after each, the record's own tokens

with one prefix at the very start, as without context. The earlier notes are cut from the left to the room that the
record leaves in a window: no window grows or is added, and a token is predicted from all that it is predicted from
without context, at least. A record that fills a window has none, and the bits that it has without.

What is scored is what is scored without context: without a prefix the first token of a record is not, although there is
something to predict it from now, so that tokens, words and bytes of two runs cover the same text.

The separator is a line break, as the tokenizer encodes it alone: run together, the last word of one note and the first
of the next would be one. Notes are encoded each by itself, so a record's own tokens are those that it has alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from schemas.errors import UsageError
from schemas.manifests import BuildManifest
from scoring.blocks import Block
from scoring.tokens import Encoded, Encoder

SEPARATOR = "\n"
# Families of files have their notes' times always; of tables, those with a column for it.
TABLE = "table"

Ids = NDArray[np.int64]


def require_encounters(manifest: BuildManifest) -> None:
    """The blocks of a build hold encounters side by side, in the order of time.

    Patients do not do: an encounter has notes of other patients where an id is wrong or absent.

    Raises:
        UsageError: they do not, and how to make a build of which they do.
    """
    config = manifest.config
    group = config.get("group", "none")
    has_times = config.get("source", TABLE) != TABLE or config.get("columns", {}).get("time") is not None
    if group == "encounter" and has_times:
        return
    found = f"made with --group {group}" if group != "encounter" else "made without --time"
    raise UsageError(
        f"context encounter: {manifest.build_id} was {found}, so which notes are earlier is not known; build it again "
        "with --group encounter and --time, or leave out --context"
    )


def separator_ids(encoder: Encoder) -> list[int]:
    """Token ids between two notes; none where the tokenizer makes nothing of a line break."""
    return list(encoder.tokenizer.encode(SEPARATOR, add_special_tokens=False).ids)


@dataclass(frozen=True, slots=True)
class EncounterContext:
    """Encodes records behind the earlier notes of their encounters.

    Attributes:
        encoder: Of single notes.
        max_length: Most inputs of a window.
    """

    encoder: Encoder
    max_length: int

    def is_enough(self, texts: Sequence[str]) -> bool:
        """Whether these notes fill a window, so that what was written before them can have no say."""
        return len(self._told(texts)) >= self.max_length

    def encode(self, block: Block) -> list[Encoded]:
        """Encode the records of a block; each result depends on its own text and those before it alone."""
        last, told, records = next(iter(block.encounters), None), self._told(block.earlier), []
        for encounter, own in zip(block.encounters, self.encoder.encode(block.texts), strict=True):
            if encounter is None or encounter != last:
                told = _nothing()
            records.append(self._behind(told, own))
            last, told = encounter, self._with(told, own)
        return records

    def _told(self, texts: Sequence[str]) -> Ids:
        """The last ids of notes with their separators, as many as a window can hold."""
        told = _nothing()
        for own in self.encoder.encode(texts):
            told = self._with(told, own)
        return told

    def _with(self, told: Ids, own: Encoded) -> Ids:
        if not own.num_tokens:
            return told
        tokens = own.positions[self._num_prefixes :]
        return np.concatenate([told, tokens, np.array(separator_ids(self.encoder), dtype=np.int64)])[-self.max_length :]

    def _behind(self, told: Ids, own: Encoded) -> Encoded:
        num_targets = len(own.positions) - 1
        num_context = min(len(told), self.max_length - num_targets)
        if num_targets < 1 or num_context < 1:
            return own
        prefix, tokens = np.split(own.positions, [self._num_prefixes])
        return replace(own, positions=np.concatenate([prefix, told[-num_context:], tokens]), num_context=num_context)

    @property
    def _num_prefixes(self) -> int:
        return 0 if self.encoder.prefix_id is None else 1


def _nothing() -> Ids:
    return np.empty(0, dtype=np.int64)
