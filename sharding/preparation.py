"""What can be known of a build before a record is read: what is asked for, what is there, and what it will be."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from schemas.access import KeySource
from schemas.console import notice
from schemas.errors import IntegrityError
from schemas.folders import open_build
from schemas.manifests import SECRET_FOLDER
from schemas.seals import label
from sharding.cluster import ClusterOptions
from sharding.commit import Identity, has_builds, identify
from sharding.config import ShardingSettings
from sharding.corpus_keys import believed_current, ready_keys, require_no_keys
from sharding.identity import KEY_FILE, RecordKey, corpus_key_path, load_key, make_key
from sharding.inputs import check_apart, find_files
from sharding.phi import require_presidio
from sharding.recognition import Recognised, notices_of, recognise
from sharding.scratch import Scratch, scratch_of
from sharding.survey import SealedFile, seal_inputs

DEFAULT_BLOCK_BYTES = 16 << 20

log = logging.getLogger("sharding.build")


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked for.

    Attributes:
        inputs: Files, globs and folders.
        corpus: Folder of all builds.
        settings: What the result depends on.
        cluster: Where the work runs.
        key_path: A record key from elsewhere; the corpus' own when absent.
        block_bytes: Size of the parts in which text files are read.
        scratch: Folder on another disk for unfinished work; in the corpus when absent.
        ignore_space: Whether to begin although a disk is too small.
        keys: The builder's keyring, made with the first build of a corpus; None for builds in the clear.
        policy: TOML file of who may do what; that of the corpus when absent, at first all for the builder.
    """

    inputs: Sequence[str]
    corpus: Path
    settings: ShardingSettings
    cluster: ClusterOptions
    key_path: Path | None = None
    block_bytes: int = DEFAULT_BLOCK_BYTES
    scratch: Path | None = None
    ignore_space: bool = False
    keys: KeySource | None = None
    policy: Path | None = None


@dataclass(frozen=True, slots=True)
class Prepared:
    """Inputs that were found, recognised, checked and sealed, and the build that they make."""

    recognised: Recognised
    sealed: list[SealedFile]
    key_path: Path
    identity: Identity
    scratch: Scratch
    policy_digest: str | None = None


def prepare(request: Request) -> Prepared:
    """Find, recognise, check and seal the inputs, and name the build that they make.

    Raises:
        PipelineError: the inputs, the key or the settings do not go together.
    """
    if request.keys is None:
        require_no_keys(request.corpus)
    if request.settings.phi_scan:
        require_presidio()
    found = find_files(request.inputs, request.settings.format)
    check_apart(found, request.corpus)
    if request.scratch:
        check_apart(found, request.scratch, "--scratch")
    recognised = recognise(found.files, request.settings)
    for line in notices_of(recognised):
        notice(line)
    if found.num_unknown:
        notice(f"inputs: {found.num_unknown} files of no known format in the folders are left out")
    if found.num_hidden:
        notice(f"inputs: {found.num_hidden} files or folders whose names begin with . or _ are left out")
    key, key_path = _record_key(request)
    _check_same_key(request, key)
    policy_digest = ready_keys(request.corpus, request.keys, request.policy, key) if request.keys else None
    sealed = seal_inputs(recognised.files)
    identity = identify(recognised.settings, sealed, key, is_encrypted=request.keys is not None)
    log.info("build %s of %d files", identity.build_id, len(sealed))
    scratch = scratch_of(request.corpus, identity.build_id, request.keys)
    return Prepared(recognised, sealed, key_path, identity, scratch, policy_digest)


def _record_key(request: Request) -> tuple[RecordKey, Path]:
    if request.key_path:
        return load_key(request.key_path), request.key_path.absolute()
    path = corpus_key_path(request.corpus)
    if has_builds(request.corpus) and not path.exists():
        raise IntegrityError(
            f"{label(path)}: absent, but there are builds whose record ids depend on it; "
            "restore it from a backup, or give --record-key, or name a new corpus with --out"
        )
    if make_key(path):
        notice("made the record key of this corpus in its secret folder; back it up: all record ids depend on it")
    return load_key(path), path.absolute()


def _check_same_key(request: Request, key: RecordKey) -> None:
    """Ids stay the same from build to build, so the key does; a damaged build has its own error."""
    corpus = request.corpus
    try:
        is_there = believed_current(corpus, request.keys) is not None
        current = open_build(corpus).manifest.config.get("key_id") if is_there else None
    except IntegrityError:
        return
    if current not in (None, key.key_id):
        raise IntegrityError(
            f"record key: its id is {key.key_id}, the current build was made with {current}; "
            f"restore {SECRET_FOLDER}/{KEY_FILE} from your backup, or name a new corpus"
        )
