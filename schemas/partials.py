"""Partials: the per-record losses of one block, as one Parquet file that carries its own proof.

The file name is ``<shard_id>.<block>.<xxh3_128>.parquet``, where the digest is that of the file's bytes, so a partial
appears together with its seal in one atomic step, and a short, flipped or swapped file is known by its name alone. The
run and block that it belongs to stand in the Parquet key-value metadata too, under the same digest. Of an encrypted
build it is ``….parquet.sealed``: the same file under a key of this block and run (``schemas.build_keys.partial_key``,
AES-256-GCM-SIV), so that equal rows still give an equal file.
"""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import xxhash

from schemas.build_keys import partial_key
from schemas.ciphers import opened_content, sealed_content
from schemas.errors import IntegrityError
from schemas.manifests import PARTIALS_FOLDER
from schemas.parts import parts_add_up, parts_of
from schemas.seals import TEMPORARY_PREFIX, Seal, label, opened, publish, seal_bytes
from schemas.tables import SKIPPED_STATUSES, STATUS_SCORED, check, feature_columns, partial_schema
from schemas.tally import ExactSum, Tally

PARTIAL_NAME = re.compile(
    r"(?P<shard>d-[0-9a-f]{12}-[0-9]{5})\.(?P<block>[0-9]{5})\.(?P<digest>[0-9a-f]{32})\.parquet(?P<sealed>\.sealed)?"
)
RANK_FOLDER = re.compile(r"rank-[0-9]{5}")


@dataclass(frozen=True, order=True, slots=True)
class BlockKey:
    """One row group of one shard."""

    shard_id: str
    block: int

    @property
    def department(self) -> str:
        """Code of the block's department."""
        return self.shard_id.rpartition("-")[0]

    def __str__(self) -> str:
        """As in messages and partial names."""
        return f"{self.shard_id}.{self.block:05d}"


@dataclass(frozen=True, slots=True)
class PartialFile:
    """A file that claims, by its name, to be the partial of a block."""

    key: BlockKey
    path: Path
    digest: str

    @property
    def is_sealed(self) -> bool:
        """Whether it is encrypted."""
        return self.path.suffix == ".sealed"


def rank_folder(run: Path, rank: int) -> Path:
    """Where a rank writes its partials."""
    return run / PARTIALS_FOLDER / f"rank-{rank:05d}"


def write_partial(
    folder: Path, table: pa.Table, *, run_id: str, key: BlockKey, results_key: bytes | None = None
) -> PartialFile:
    """Publish the partial of one block; equal rows give an equal file.

    Args:
        folder: Of the rank.
        table: Rows of ``partial_schema``.
        run_id: Of the run.
        key: Of the block.
        results_key: Data key of the department's losses; without, the partial is in the clear.

    Raises:
        IntegrityError: the table breaks ``partial_schema`` or the rules of its rows.
        TemporaryError: the disk failed.
    """
    check(table, partial_schema(feature_columns(table.schema), parts_of(table.schema)), str(key))
    _check_rows(table, str(key))
    metadata = {b"exactppl.run_id": run_id.encode(), b"exactppl.block": str(key).encode()}
    tagged = table.replace_schema_metadata({**(table.schema.metadata or {}), **metadata})
    sink = io.BytesIO()
    pq.write_table(tagged, sink, compression="zstd", version="2.6", store_schema=True)
    content, suffix = sink.getvalue(), "parquet"
    if results_key is not None:
        secret = partial_key(results_key, run_id, str(key))
        content, suffix = sealed_content(content, secret, bound_to=_place(run_id, key)), "parquet.sealed"
    digest = xxhash.xxh3_128_hexdigest(content)
    path = folder / f"{key}.{digest}.{suffix}"
    publish(path, content)
    return PartialFile(key=key, path=path, digest=digest)


def list_partials(run: Path) -> list[PartialFile]:
    """Every published partial under a run, by name only, ordered by block.

    Raises:
        IntegrityError: something else lies among the partials.
    """
    root = run / PARTIALS_FOLDER
    found: list[PartialFile] = []
    for folder in sorted(root.iterdir()) if root.is_dir() else []:
        if not RANK_FOLDER.fullmatch(folder.name) or not folder.is_dir():
            raise IntegrityError(f"{label(folder)}: does not belong among the partials; remove it")
        # What a killed writer left behind was never published: it is nobody's partial and no reason to stop.
        names = sorted(path for path in folder.iterdir() if not path.name.startswith(TEMPORARY_PREFIX))
        found.extend(map(_named, names))
    return sorted(found, key=lambda partial: (partial.key, partial.path.name))


def read_partial(
    partial: PartialFile,
    *,
    run_id: str,
    features: list[str],
    parts: Sequence[str] = (),
    results_key: bytes | None = None,
) -> tuple[pa.Table, Seal]:
    """The verified rows of a partial.

    Args:
        partial: From ``list_partials``.
        run_id: The run it must belong to.
        features: Case features of the build, in the manifest's order.
        parts: What the run splits losses into, see ``schemas.parts``.
        results_key: Data key of the department's losses; a partial in the clear is refused then.

    Returns:
        A table of ``partial_schema(features, parts)`` and the file's seal.

    Raises:
        IntegrityError: names the file and what is wrong with it.
    """
    where = label(partial.path)
    with opened(partial.path) as file:
        content = file.read()
    seal = seal_bytes(content)
    if seal.xxh3_128 != partial.digest:
        raise IntegrityError(f"{where}: content does not match the digest in its name; remove it and score again")
    if partial.is_sealed != (results_key is not None):
        raise IntegrityError(
            f"{where}: {'encrypted' if partial.is_sealed else 'not encrypted'}, unlike its build; remove it and score "
            "again"
        )
    if results_key is not None:
        secret = partial_key(results_key, run_id, str(partial.key))
        content = opened_content(content, secret, bound_to=_place(run_id, partial.key), where=where)
    table = _parsed(content, where)
    metadata: dict[bytes, bytes] = table.schema.metadata or {}
    if metadata.get(b"exactppl.run_id") != run_id.encode():
        raise IntegrityError(f"{where}: belongs to another run than {run_id}; remove it and score again")
    if metadata.get(b"exactppl.block") != str(partial.key).encode():
        raise IntegrityError(f"{where}: holds another block than its name says; remove it and score again")
    table = table.replace_schema_metadata(None)
    check(table, partial_schema(features, parts), where)
    _check_rows(table, where)
    return table, seal


def tally_of(table: pa.Table) -> Tally:
    """The exact tally of the scored rows of a partial."""
    losses = table.column("loss_nats").drop_null().to_numpy()
    counts = {name: pc.sum(table.column(name)).as_py() or 0 for name in ("num_tokens", "num_words", "num_bytes")}
    return Tally(loss_nats=ExactSum.of_array(losses), num_records=len(losses), **counts)


def skipped_of(table: pa.Table) -> dict[str, int]:
    """How many rows were skipped, by every known reason."""
    counts: Counter[Any] = Counter(table.column("status").to_pylist())
    return {status: counts[status] for status in SKIPPED_STATUSES}


def _place(run_id: str, key: BlockKey) -> bytes:
    return f"{run_id}/{key}".encode()


def _named(path: Path) -> PartialFile:
    match = PARTIAL_NAME.fullmatch(path.name)
    if match is None or not path.is_file():
        raise IntegrityError(f"{label(path)}: does not belong among the partials; remove it")
    return PartialFile(key=BlockKey(match["shard"], int(match["block"])), path=path, digest=match["digest"])


def _parsed(content: bytes, where: str) -> pa.Table:
    try:
        table = pq.read_table(pa.BufferReader(content))
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError):  # Arrow reports a damaged page as any of the three
        raise IntegrityError(f"{where}: no readable Parquet file; remove it and score again") from None
    return table


def _check_rows(table: pa.Table, where: str) -> None:
    """A row has a finite loss over at least one token exactly if it was scored; counts are never negative.

    Only a scored row has a loss of the precision check too; parts of a loss add up to it, bit for bit.
    """
    status = table.column("status").to_numpy(zero_copy_only=False)
    scored = status == STATUS_SCORED
    losses, checks = table.column("loss_nats"), table.column("check_loss_nats")
    tokens = table.column("num_tokens").to_numpy()
    counts = np.stack([table.column(name).to_numpy() for name in ("num_tokens", "num_words", "num_bytes")])
    sound = (
        np.isin(status, (STATUS_SCORED, *SKIPPED_STATUSES)).all()
        and (losses.is_valid().to_numpy() == scored).all()
        and np.isfinite(losses.drop_null().to_numpy()).all()
        and not checks.is_valid().to_numpy()[~scored].any()
        and np.isfinite(checks.drop_null().to_numpy()).all()
        and ((tokens > 0) == scored).all()
        and (counts >= 0).all()
        and not counts[:, ~scored].any()
        and parts_add_up(table)
    )
    if not sound:
        raise IntegrityError(f"{where}: rows break the rules of a partial; remove it and score again")
