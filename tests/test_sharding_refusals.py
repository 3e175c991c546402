"""A build that passes a limit is refused, and what was read is accounted for all the same."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.documents import read_document
from schemas.errors import DataError, UsageError
from schemas.folders import open_build
from schemas.ledgers import BuildLedger
from schemas.manifests import Refusal
from schemas.verification import verify_build
from sharding.build import build_corpus, plan_corpus
from sharding.cli import cli
from sharding.config import ShardingSettings
from sharding.limits import Counted, breaches, check_limits
from sharding.purge import builds_named, purge
from sharding.scratch import scratch_of
from tests.builds import request, write_rows
from tests.commands import run_command

BUILD_ID = "b-0123456789abcdef"
ROWS = [
    ("1", "secret words", "Cardiology", "p"),
    ("1", "other words", "Cardiology", "p"),
    ("2", "", "Cardiology", "p"),
    ("3", "third words", "Derma", "p"),
]
REFUSED: dict[str, tuple[dict[str, Any], int, int]] = {
    "on_conflict": ({}, 1, 0),
    "max_rejects": ({"on_conflict": "keep", "max_rejects": "0"}, 1, 0),
    "on_unknown": ({"on_conflict": "keep", "departments": {"Cardiology": "C"}, "on_unknown": "fail"}, 1, 0),
    "num_kept": ({"on_conflict": "keep", "max_record_bytes": 1}, 0, 0),
}


@pytest.mark.parametrize("limit", REFUSED)
def test_a_refused_build_leaves_its_ledger(
    tmp_path: Path, scheduler: str, capsys: pytest.CaptureFixture[str], limit: str
) -> None:
    """A sealed file that the message names and ``inspect`` shows, the same each time, without a word of the records."""
    changes, num_found, num_allowed = REFUSED[limit]
    wanted = request([write_rows(tmp_path / "in.csv", ROWS)], tmp_path / "corpus", scheduler, **changes)

    with pytest.raises(DataError) as caught:
        build_corpus(wanted)
    (path,) = (wanted.corpus / "refused").iterdir()
    content = path.read_bytes()
    with pytest.raises(DataError) as again:
        build_corpus(wanted)
    shown = run_command(cli, ["inspect", path], capsys)
    as_json = json.loads(run_command(cli, ["inspect", path, "--json"], capsys).out)

    refusal = read_document(path, Refusal)
    assert str(caught.value) == str(again.value)
    assert f"the ledger is in corpus/refused/{path.name}" in str(caught.value)
    assert path.read_bytes() == content
    assert (refusal.limit, refusal.num_found, refusal.num_allowed) == (limit, num_found, num_allowed)
    assert refusal.ledger.balances
    assert refusal.ledger.num_read == 4
    assert as_json == {**refusal.model_dump(mode="json"), "status": "refused"}
    assert f"{'limit passed':<28}{limit:>12}" in shown.out.splitlines()
    assert not any(word in content.decode() for word in ("words", "Cardiology", "Derma"))


def test_a_refusal_does_not_hinder_others(tmp_path: Path, scheduler: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A build with other settings is made beside it; ``purge`` removes a refused build by its id, and nothing else."""
    source = write_rows(tmp_path / "in.csv", ROWS)
    refused = request([source], tmp_path / "corpus", scheduler)
    with pytest.raises(DataError):
        build_corpus(refused)
    (path,) = (refused.corpus / "refused").iterdir()

    made, _ = build_corpus(request([source], refused.corpus, scheduler, on_conflict="keep"))
    kept = run_command(cli, ["purge", refused.corpus, "--keep", "1"], capsys)
    is_kept = path.exists()
    purged = run_command(cli, ["purge", refused.corpus, path.stem], capsys)

    assert verify_build(made, deep=True)["records"] == 2
    assert is_kept
    assert kept.code == purged.code == 0
    assert path.stem in purged.out
    assert list(path.parent.iterdir()) == []
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert [folder.name for folder in (refused.corpus / "builds").iterdir()] == [made.manifest.build_id]
    assert open_build(refused.corpus).manifest == made.manifest


def test_a_refused_plan_can_be_purged_where_there_is_no_build(tmp_path: Path, scheduler: str) -> None:
    """A plan makes no folder of builds; its ledger goes by the same command, and an unknown id is refused."""
    wanted = request([write_rows(tmp_path / "in.csv", ROWS)], tmp_path / "corpus", scheduler)
    with pytest.raises(DataError):
        plan_corpus(wanted)
    (path,) = (wanted.corpus / "refused").iterdir()

    with pytest.raises(UsageError, match="no build b-0123456789abcdef among its 1"):
        builds_named(wanted.corpus, [BUILD_ID])
    (purged,) = purge(wanted.corpus, builds_named(wanted.corpus, [path.stem]), dry_run=False)

    assert purged.num_bytes > 0
    assert list(path.parent.iterdir()) == []
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert not (wanted.corpus / "builds").exists()
    assert not (wanted.corpus / "scratch").exists()


@given(
    num_kept=st.integers(0, 200),
    rejected=st.dictionaries(st.sampled_from(["malformed", "null_text", "over_limit", "no_text"]), st.integers(1, 9)),
    max_rejects=st.sampled_from(["0", "3", "1%", "100%"]),
)
def test_a_build_is_refused_just_if_a_limit_is_passed(
    tmp_path_factory: pytest.TempPathFactory, num_kept: int, rejected: dict[str, int], max_rejects: str
) -> None:
    """What was meant to be dropped is no reject; within all limits nothing is written."""
    settings = ShardingSettings.model_validate({"columns": {"text": "t"}, "max_rejects": max_rejects})
    num_read = num_kept + sum(rejected.values())
    ledger = BuildLedger(num_read=num_read, num_kept=num_kept, duplicates={}, rejected=rejected)
    counted = Counted(ledger, [], unresolved=Counter(), num_conflicts=0)
    scratch = scratch_of(tmp_path_factory.mktemp("corpus"), BUILD_ID)

    found = [breach.limit for breach in breaches(counted, settings)]
    try:
        check_limits(counted, settings, scratch)
        is_refused = False
    except DataError:
        is_refused = True

    num_rejected = rejected.get("malformed", 0) + rejected.get("null_text", 0)
    allowed = settings.allowed_rejects(num_read - rejected.get("no_text", 0))
    wanted = ["max_rejects"] * (num_rejected > allowed) + ["num_kept"] * (num_kept == 0)
    assert found == wanted
    assert is_refused == bool(wanted)
    assert scratch.refusal().exists() == is_refused
