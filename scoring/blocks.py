"""Reading blocks of verified shards: no byte of a shard is used before its seal holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

import pyarrow as pa
import pyarrow.parquet as pq

from schemas.audit_events import Action, Outcome
from schemas.errors import IntegrityError
from schemas.folders import Build
from schemas.manifests import ShardEntry
from schemas.partials import BlockKey
from schemas.seals import label, read_verified
from schemas.shard_files import open_shard
from schemas.tables import carried_columns, check, content_digest, shard_schema


@dataclass(frozen=True, slots=True)
class Block:
    """The rows of one block that scoring needs.

    Attributes:
        key: Which block.
        carried: record_id, patient_id, encounter_id and the features, which go into the partial as they are.
        texts: The notes.
        earlier: Notes of blocks before that are of the encounter of the first record, in their order; none unless
            they are asked for.
    """

    key: BlockKey
    carried: pa.Table
    texts: list[str]
    earlier: Sequence[str] = ()

    @property
    def encounters(self) -> list[bytes | None]:
        """The encounter of each record; None where it is unknown."""
        found: list[bytes | None] = self.carried.column("encounter_id").to_pylist()
        return found


Audited = Callable[[Action, str, Outcome], None]
IsEnough = Callable[[Sequence[str]], bool]


def _unaudited(_action: Action, _what: str, _outcome: Outcome) -> None:
    """Where there is no principal, there is no log."""


def read_blocks(
    build: Build,
    keys: Iterable[BlockKey],
    *,
    broken: MutableMapping[str, str],
    audited: Audited = _unaudited,
    is_enough: IsEnough | None = None,
) -> Iterator[Block]:
    """Read blocks in the given order, keeping one verified shard in memory at a time.

    Args:
        build: Whose blocks.
        keys: Sorted, so that each shard is opened once.
        broken: Takes the shards of which something is not what the manifest seals, each with what was found; no further
            block of such a shard is given.
        audited: Hears of each shard that is opened.
        is_enough: Whether these earlier notes do as context, or those before them are wanted too; None asks for none.

    Raises:
        AccessDeniedError: a shard's department was not granted; it is not read then.
        TemporaryError: the file system failed.
    """
    shards = {shard.shard_id: shard for shard in build.manifest.shards}
    opened: tuple[str, pq.ParquetFile] | None = None
    for key in keys:
        if key.shard_id in broken:
            continue
        try:
            if opened is None or opened[0] != key.shard_id:
                audited(
                    "read", f"{build.manifest.build_id}/{key.shard_id}", "done"
                )  # noted first: no read goes unnoted
                opened = (key.shard_id, _open_shard(build, shards[key.shard_id]))
            block = _read_block(build, shards[key.shard_id], opened[1], key)
            if is_enough is not None:
                block = _with_earlier(block, opened[1], build=build, shard=shards[key.shard_id], is_enough=is_enough)
        except IntegrityError as error:
            broken[key.shard_id] = str(error)
            continue
        yield block


def require_sound(broken: Iterable[Mapping[str, str]]) -> None:
    """No rank has left a shard out.

    Args:
        broken: Of each rank, its broken shards with what was found.

    Raises:
        IntegrityError: lists the shards of all ranks.
    """
    found = {shard_id: message for part in broken for shard_id, message in part.items()}
    if found:
        first = min(found)
        raise IntegrityError(
            f"{len(found)} shards are not what was sealed; they were left out, all others are scored and kept: "
            f"{', '.join(sorted(found))}; of {found[first]}; then run the same command again"
        )


def _open_shard(build: Build, shard: ShardEntry) -> pq.ParquetFile:
    path = build.shard_path(shard)
    build.shard_key(shard)  # before any byte is read
    file = open_shard(build, shard, read_verified(path, shard.seal))
    if file.num_row_groups != len(shard.blocks):
        raise IntegrityError(f"{label(path)}: {file.num_row_groups} blocks, {len(shard.blocks)} were sealed")
    return file


def _read_block(build: Build, shard: ShardEntry, file: pq.ParquetFile, key: BlockKey) -> Block:
    where = f"{label(build.shard_path(shard))} block {key.block}"
    features = list(build.manifest.features)
    table = file.read_row_group(key.block).replace_schema_metadata(None)
    check(table, shard_schema(features), where)
    if content_digest(table) != shard.blocks[key.block].content_digest:
        raise IntegrityError(f"{where}: rows differ from the sealed digest; restore the file or build again")
    return Block(key=key, carried=table.select(carried_columns(features)), texts=table.column("text").to_pylist())


def _with_earlier(block: Block, file: pq.ParquetFile, *, build: Build, shard: ShardEntry, is_enough: IsEnough) -> Block:
    """The block with what earlier blocks hold of its first record's encounter, where that is too large for a block."""
    encounter, at, texts = next(iter(block.encounters), None), block.key.block, list[str]()
    while encounter is not None and at > 0 and not is_enough(texts):
        at -= 1
        before = _read_block(build, shard, file, BlockKey(shard.shard_id, at))
        num_own = sum(1 for _ in takewhile(lambda other: other == encounter, reversed(before.encounters)))
        texts = before.texts[len(before.texts) - num_own :] + texts
        if num_own < len(before.texts):
            break
    return replace(block, earlier=texts)
