"""Scores of earlier runs, so that tomorrow's build costs no more than its new notes.

``CACHE/<method id>/<department code>/`` holds segments: tables of (digest of a token sequence, its loss) that one rank
of one run has computed. The method id is that of everything a loss depends on but the build: model, tokenizer, windows,
tiles, precision, libraries, device; so a score comes back only where computing it again would give the same bits.

The segments of an encrypted build are encrypted under a key that only readers of the department's notes can derive, and
signed by who scored them. A segment that is damaged, or that this principal cannot open, is left out: it costs time,
never a number.
"""

from __future__ import annotations

import base64
import hashlib
import io
import logging
import secrets
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain, cycle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field

from schemas.access import Access
from schemas.build_keys import shard_context
from schemas.canonical import canonical_json
from schemas.ciphers import derived_key, opened_content, sealed_content
from schemas.documents import Document, read_document, write_document
from schemas.errors import AccessDeniedError, IntegrityError, TemporaryError, UsageError
from schemas.folders import Build
from schemas.keys import WrappedKey
from schemas.parts import part_columns
from schemas.patterns import CODE, SHARD_ID
from schemas.seals import label
from schemas.signing import SUFFIX
from schemas.tables import STATUS_SCORED
from scoring.sequences import DIGEST_BYTES, SequenceKey, SequenceScore
from scoring.split import PartLoss

MAX_UNWRITTEN = 4096
SEGMENT_SCHEMA = pa.schema(
    [
        pa.field("digest", pa.binary(DIGEST_BYTES), nullable=False),
        pa.field("loss_nats", pa.float64(), nullable=False),
        pa.field("num_tokens", pa.int64(), nullable=False),
        pa.field("num_windows", pa.int64(), nullable=False),
    ]
)
Entry = tuple[Any, ...]
"""A row of ``segment_schema``."""

logger = logging.getLogger("scoring.cache")


class CacheSegment(Document):
    """Scores that one rank has computed.

    Attributes:
        method_id: What they depend on.
        code: Of their department.
        build_id: The build whose key encrypts them.
        shard_id: The shard whose data key the segment's is derived from.
        wrapped: That data key, wrapped; None in the clear.
        salt: Makes the segment's key its own.
        content: Base64 of a Parquet file of ``segment_schema``, encrypted if there is a key.
    """

    kind = "exactppl.cache-segment"

    method_id: str = Field(pattern=r"^m-[0-9a-f]{16}$")
    code: str = Field(pattern=CODE)
    build_id: str = Field(pattern=r"^b-[0-9a-f]{16}$")
    shard_id: str = Field(pattern=SHARD_ID)
    wrapped: WrappedKey | None
    salt: str = Field(pattern=r"^[0-9a-f]{32}$")
    content: str


def segment_schema(parts: Sequence[str]) -> pa.Schema:
    """Columns of a segment: the score of a sequence, and those of the parts that a run splits losses into."""
    kinds = (pa.float64(), pa.int64())
    fields = [pa.field(name, kind, nullable=False) for name, kind in zip(part_columns(parts), cycle(kinds))]
    return pa.schema([*SEGMENT_SCHEMA, *fields])


def method_id_of(fingerprint: dict[str, object]) -> str:
    """``m-`` and 16 hex digits of the SHA-256 of a fingerprint without its build."""
    method = {name: part for name, part in fingerprint.items() if name != "build"}
    return "m-" + hashlib.sha256(canonical_json(method)).hexdigest()[:16]


def require_cache_folder(cache: Path, build: Build, run: Path) -> None:
    """The cache can be made where it is wanted.

    Raises:
        UsageError: it is inside a build or a run, or is no folder.
    """
    if cache.resolve().is_relative_to(build.folder.resolve()):
        raise UsageError(f"{label(cache)}: inside a build, which is sealed; name a folder beside it with --cache")
    if cache.resolve().is_relative_to(run.resolve()):
        raise UsageError(f"{label(cache)}: inside the run's own folder; name a folder beside it with --cache")
    try:
        cache.mkdir(parents=True, exist_ok=True)
    except OSError:
        raise UsageError(f"{label(cache)}: cannot be made a folder; name another with --cache") from None


@dataclass(slots=True)
class ScoreCache:
    """One rank's view of a cache; a department's segments are read when the first of its records comes.

    Attributes:
        folder: Of the method.
        build: What is scored; its keys open and make segments.
        method_id: Of this run.
        access: Signs and believes; None for builds in the clear.
        parts: What the run splits losses into: further columns of its segments.
    """

    folder: Path
    build: Build
    method_id: str
    access: Access | None
    parts: tuple[str, ...] = ()
    _known: dict[str, dict[bytes, SequenceScore]] = field(default_factory=dict)
    _is_failing: bool = False
    _unwritten: dict[str, list[Entry]] = field(default_factory=lambda: defaultdict(list))

    def find(self, key: SequenceKey) -> SequenceScore | None:
        """The score of an equal sequence of an earlier run."""
        if key.department not in self._known:
            self._known = {key.department: self._read(key.department)}  # blocks come by department: one is enough
        return self._known[key.department].get(key.digest)

    def keep(self, key: SequenceKey, score: SequenceScore) -> None:
        """Take a new score along; what is not finite is computed again every time."""
        if self._is_failing or score.status != STATUS_SCORED or score.loss_nats is None:
            return
        unwritten = self._unwritten[key.department]
        unwritten.append((key.digest, score.loss_nats, score.num_tokens, score.num_windows, *chain(*score.parts)))
        if len(unwritten) >= MAX_UNWRITTEN:
            self._write(key.department)

    def flush(self) -> None:
        """Publish what is not written yet."""
        for code in sorted(code for code, entries in self._unwritten.items() if entries):
            self._write(code)

    def _read(self, code: str) -> dict[bytes, SequenceScore]:
        found: dict[bytes, SequenceScore] = {}
        suffix = f".json{SUFFIX}" if self.build.is_encrypted else ".json"
        for path in sorted((self.folder / self.method_id / code).glob("*.json*")):
            if not path.name.endswith(suffix):
                continue
            try:
                table = self._open(path, code)
            except (AccessDeniedError, IntegrityError) as error:
                logger.warning("a cache segment that does not open is left out: %s", path)
                logger.debug("reason: %s", type(error).__name__)
                continue
            for entry in zip(*(column.to_pylist() for column in table.columns), strict=True):
                _remember(found, entry, path)
        return found

    def _open(self, path: Path, code: str) -> pa.Table:
        if self.access is not None and self.build.is_encrypted:
            segment = self.access.read_signed(path, CacheSegment, by=self.access.scorers)
        else:
            segment = read_document(path, CacheSegment)
        if (segment.method_id, segment.code) != (self.method_id, code) or path.name.partition(".")[0] != segment.salt:
            raise IntegrityError(f"{label(path)}: of another method or department; remove it")
        content = base64.b64decode(segment.content)
        if segment.wrapped is not None and self.access is not None:
            context = shard_context(segment.build_id, segment.shard_id)
            key = _segment_key(self.access.keys.decrypt(segment.wrapped, context), segment)
            content = opened_content(content, key, bound_to=_place(segment), where=label(path))
        elif self.build.is_encrypted:
            raise IntegrityError(f"{label(path)}: not encrypted, unlike its build; remove it")
        return _parsed(content, path, segment_schema(self.parts))

    def _write(self, code: str) -> None:
        """Publish a department's new scores; a cache that cannot be written to costs time later, never the run."""
        entries = self._unwritten.pop(code)
        if self._is_failing:
            return
        try:
            self._publish(code, entries)
        except (TemporaryError, UsageError) as error:
            self._is_failing = True
            logger.warning("the cache is written to no more: %s", error)

    def _publish(self, code: str, entries: list[Entry]) -> None:
        schema = segment_schema(self.parts)
        columns = [pa.array([entry[at] for entry in entries], item.type) for at, item in enumerate(schema)]
        sink = io.BytesIO()
        pq.write_table(pa.Table.from_arrays(columns, schema=schema), sink, compression="zstd")
        segment = CacheSegment(
            method_id=self.method_id,
            code=code,
            build_id=self.build.manifest.build_id,
            shard_id=next(shard.shard_id for shard in self.build.manifest.shards if shard.department == code),
            wrapped=None,
            salt=secrets.token_hex(16),
            content=base64.b64encode(sink.getvalue()).decode(),
        )
        path = self.folder / self.method_id / code / f"{segment.salt}.json"
        if self.access is None or self.build.keys is None or not self.build.is_encrypted:
            write_document(path, segment)
            return
        shard = next(shard for shard in self.build.manifest.shards if shard.shard_id == segment.shard_id)
        key = _segment_key(self.build.keys.shard_key(shard), segment)
        sealed = sealed_content(sink.getvalue(), key, bound_to=_place(segment))
        wrapped = self.build.keys.document(code).shards[shard.shard_id]
        update = {"wrapped": wrapped, "content": base64.b64encode(sealed).decode()}
        self.access.publish_signed(path.with_name(path.name + SUFFIX), segment.model_copy(update=update))


def _segment_key(shard_key: bytes, segment: CacheSegment) -> bytes:
    return derived_key(shard_key, "cache", segment.method_id, segment.salt)


def _place(segment: CacheSegment) -> bytes:
    return f"{segment.method_id}/{segment.code}/{segment.salt}".encode()


def _remember(found: dict[bytes, SequenceScore], entry: Entry, path: Path) -> None:
    digest, loss_nats, num_tokens, num_windows, *parts = entry
    losses = tuple(map(PartLoss, parts[::2], parts[1::2]))
    score = SequenceScore(STATUS_SCORED, loss_nats, num_tokens, num_windows, losses)
    if found.setdefault(digest, score) != score:
        raise IntegrityError(
            f"{label(path)}: another loss of a sequence than an earlier segment has; remove the cache, score again"
        )


def _parsed(content: bytes, path: Path, schema: pa.Schema) -> pa.Table:
    try:
        table = pq.read_table(pa.BufferReader(content))
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError):
        raise IntegrityError(f"{label(path)}: no readable Parquet file; remove it") from None
    if not table.schema.equals(schema):
        raise IntegrityError(f"{label(path)}: columns differ from those of a cache segment; remove it")
    return table
