"""That a department's view lists entries of the build and no others, shown without the entries of other departments."""

from __future__ import annotations

import json
from collections.abc import Sequence

from schemas.errors import IntegrityError
from schemas.manifests import Commit, DepartmentView, ShardEntry, ShardProof
from schemas.merkle import merkle_proofs, merkle_root, proves


def root_of(shards: Sequence[ShardEntry]) -> str:
    """The Merkle root of a build's entries."""
    return merkle_root([_leaf(shard) for shard in shards])


def proofs_of(shards: Sequence[ShardEntry]) -> dict[str, ShardProof]:
    """The proof of each of a build's entries, by shard."""
    paths = merkle_proofs([_leaf(shard) for shard in shards])
    return {
        shard.shard_id: ShardProof(index=index, path=path)
        for index, (shard, path) in enumerate(zip(shards, paths, strict=True))
    }


def require_proofs(view: DepartmentView, commit: Commit, where: str) -> None:
    """Each of a view's entries is one of the build's.

    Raises:
        IntegrityError: names the first that is not proved.
    """
    if len(view.proofs) != len(view.shards):
        raise IntegrityError(f"{where}: {len(view.proofs)} proofs of {len(view.shards)} shards; restore the file")
    for shard, proof in zip(view.shards, view.proofs, strict=True):
        if not proves(_leaf(shard), proof.index, commit.num_shards, proof=proof.path, root=commit.merkle_root):
            raise IntegrityError(f"{where}: {shard.shard_id} is not proved to be of this build; restore the file")


def _leaf(shard: ShardEntry) -> bytes:
    """An entry as JSON of sorted keys without spaces, which is some twenty times faster than with an indent."""
    return json.dumps(shard.model_dump(mode="json"), sort_keys=True, separators=(",", ":")).encode()
