"""A build that was stopped before its commit, and the tasks that it would run next."""

from __future__ import annotations

import pytest

from sharding.build import build_corpus
from sharding.jobs import ShardJob, told
from sharding.preparation import Prepared, Request, prepare
from sharding.scratch_documents import Plan
from sharding.scratch_folders import make_folder
from sharding.spill import shard_parts


def stop_before_commit(wanted: Request, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run everything but the commit."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("sharding.build.commit_build", stop)
        with pytest.raises(KeyboardInterrupt):
            build_corpus(wanted)


def stopped_build(wanted: Request, monkeypatch: pytest.MonkeyPatch) -> Prepared:
    """A build without its commit, in the hands of another client, who may run its tasks."""
    stop_before_commit(wanted, monkeypatch)
    prepared = prepare(wanted)
    make_folder(prepared.scratch)
    return prepared


def shard_job(stopped: Prepared) -> ShardJob:
    """The task of the first shard."""
    plan = stopped.scratch.read_document(stopped.scratch.plan(), Plan)
    corpus = stopped.scratch.folder.parents[1]
    num_spills = len(list(stopped.scratch.spill(0).parent.glob("*.arrow")))
    return ShardJob(
        shard=plan.shards[0],
        number=0,
        parts=shard_parts(stopped.scratch, num_spills=num_spills, num_shards=len(plan.shards))[0],
        block_tokens=plan.block_tokens,
        settings=told(stopped.recognised.settings),
        key_path=stopped.key_path,
        scratch=stopped.scratch,
        build=stopped.identity.folder(corpus),
    )
