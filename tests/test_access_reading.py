"""Who was not granted a department cannot read it: by no principal, tool or process, with all files at hand."""

from __future__ import annotations

import base64
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from schemas.access import Access, KeySource
from schemas.errors import AccessDeniedError, IntegrityError, UsageError
from schemas.folders import Build, open_build
from schemas.granting import carry_out, codes_of, read_corpus_policy
from schemas.keys import PURPOSES, kek_of
from schemas.keys_local import LocalAdministration
from schemas.manifests import ShardEntry
from schemas.parquet import open_parquet
from schemas.policy import Grant, Policy
from schemas.rotation import rotate
from schemas.shard_files import read_shard
from schemas.signing import make_signing_key, payload_of
from schemas.verification import verify_build
from sharding.build import build_corpus
from sharding.cli import cli
from sharding.corpus_keys import ready_keys
from sharding.identity import load_key
from tests.builds import request, some_rows, write_rows
from tests.commands import run_command
from tests.secured import DEPARTMENTS, GRANTS, POLICY, Secured, make_secured

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory, scheduler: str) -> Secured:
    """An encrypted build; read only."""
    return make_secured(tmp_path_factory.mktemp("secured"), scheduler)


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory, secured: Secured) -> dict[str, tuple[Path, Access]]:
    """A node for each principal, all opened in this one process."""
    return {name: secured.node_of(name, tmp_path_factory.mktemp(name)) for name in (*GRANTS, "auditor")}


def shard_of(build: Build, code: str) -> ShardEntry:
    """The first shard of a department."""
    return next(shard for shard in build.manifest.shards if shard.department == code)


@pytest.mark.parametrize("principal", GRANTS)
@pytest.mark.parametrize("number", range(len(DEPARTMENTS)))
def test_each_principal_reads_what_it_was_granted_and_nothing_else(
    secured: Secured, nodes: dict[str, tuple[Path, Access]], principal: str, number: int
) -> None:
    """Every pair of four principals and six departments, in one process, with every file copied."""
    build, code = open_build(*nodes[principal]), secured.code_of[DEPARTMENTS[number]]
    shard = shard_of(build, code)

    if number in GRANTS[principal]:
        assert read_shard(build, shard).column("department").unique().to_pylist() == [DEPARTMENTS[number]]
        assert build.department_name(code) == DEPARTMENTS[number]
        return
    with pytest.raises(AccessDeniedError, match=f"{code}/text"):
        read_shard(build, shard)
    with pytest.raises(AccessDeniedError, match=f"{code}/results"):
        build.department_name(code)


def test_an_aggregator_reads_losses_and_names_and_no_note(
    secured: Secured, nodes: dict[str, tuple[Path, Access]]
) -> None:
    """Its keys are for losses alone."""
    build = open_build(*nodes["auditor"])

    for name, code in secured.code_of.items():
        assert build.department_name(code) == name
        with pytest.raises(AccessDeniedError, match=f"{code}/text"):
            read_shard(build, shard_of(build, code))


def test_no_tool_reads_a_shard_without_its_key(secured: Secured, nodes: dict[str, tuple[Path, Access]]) -> None:
    """Neither pyarrow nor polars nor duckdb; and the bytes show no text, no id, no name and no column."""
    corpus, access = nodes["west"]
    build = open_build(corpus, access)
    paths = [build.shard_path(shard) for shard in build.manifest.shards]

    for path in paths:
        with pytest.raises((OSError, pa.ArrowException)):
            pq.read_table(path)
        with pytest.raises(pl.exceptions.ComputeError):
            pl.read_parquet(path)
        content = path.read_bytes()
        assert not [mark for mark in (b"note ", b"canary", b"record_id", b"raw_id") if mark in content]
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    for path in paths:
        with pytest.raises(duckdb.Error):
            duckdb.sql(f"select * from read_parquet('{path}')").fetchall()


def test_a_key_of_one_shard_opens_no_other(secured: Secured) -> None:
    """Each shard has its own key, and is bound to its place."""
    build = secured.opened()
    one, other = build.manifest.shards[:2]
    key = build.shard_key(one)

    with pytest.raises(IntegrityError, match="under its key"):
        open_parquet(build.shard_path(other), key, f"{build.manifest.build_id}/{other.shard_id}", where="x")
    with pytest.raises(IntegrityError, match="under its key"):
        open_parquet(build.shard_path(one), key, f"{build.manifest.build_id}/{other.shard_id}", where="x")


def test_a_fresh_process_without_a_grant_is_denied(nodes: dict[str, tuple[Path, Access]]) -> None:
    """With code 77 and one line that names the key; it may check the seals all the same."""
    corpus, access = nodes["south"]
    options = [str(corpus), "--keyring", str(access.source.folder)]

    shallow, deep = (
        subprocess.run(
            [sys.executable, "-m", "sharding", "verify", *options, *more],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        for more in ([], ["--deep"])
    )

    assert shallow.returncode == 0, shallow.stderr
    assert deep.returncode == 77
    assert "not granted to south" in deep.stderr
    assert "canary" not in shallow.stdout + deep.stdout + deep.stderr


def test_without_a_keyring_nothing_is_read_and_nothing_is_named(secured: Secured) -> None:
    """The manifest can be seen, no shard and no name."""
    build = open_build(secured.corpus)

    assert verify_build(build, deep=False)["shards"] == len(build.manifest.shards)
    with pytest.raises(AccessDeniedError, match="no keyring was named"):
        verify_build(build, deep=True)


def test_no_name_of_a_department_lies_outside_the_keys(secured: Secured) -> None:
    """In no file of the corpus, plain or as base64 of a document."""
    marks = [b"canary", *(base64.b64encode(b"x" * shift + b"canary ward")[4:-4] for shift in range(3))]

    found = [
        path.name for path in secured.corpus.rglob("*") if path.is_file() for mark in marks if mark in path.read_bytes()
    ]

    assert found == []


def test_only_who_administers_changes_the_policy(tmp_path: Path, scheduler: str) -> None:
    """A builder who brings a policy of his own is denied, and nothing is changed."""
    secured = make_secured(tmp_path, scheduler, num_rows=12)
    owner = KeySource(secured.keyrings, "owner")
    policy = read_corpus_policy(secured.corpus, owner.open())
    carry_out(secured.corpus, owner, with_grant(policy, "builder", Grant(build=True)), codes_of(secured.corpus, owner))
    before = (secured.corpus / "policy.json.dsse").read_bytes()
    builder = KeySource(secured.keyrings, "builder")
    greedy = with_grant(policy, "builder", Grant(build=True, administer=True))

    with pytest.raises(AccessDeniedError, match="principal builder: may not administer keys"):
        carry_out(secured.corpus, builder, greedy, codes_of(secured.corpus, owner))
    builder.open().publish_signed(secured.corpus / "policy.json.dsse", greedy)
    with pytest.raises(IntegrityError, match="no valid signature by a trusted key"):
        read_corpus_policy(secured.corpus, owner.open())

    assert before != (secured.corpus / "policy.json.dsse").read_bytes()


def test_a_revoked_principal_is_out_and_what_it_built_stays(tmp_path: Path, scheduler: str) -> None:
    """Its old keyring opens nothing after a rotation; builds that it signed are believed by their administrator."""
    secured = make_secured(tmp_path, scheduler, num_rows=12)
    owner, old = KeySource(secured.keyrings, "owner"), secured.access("north")
    policy = read_corpus_policy(secured.corpus, owner.open())
    codes = codes_of(secured.corpus, owner)
    carry_out(secured.corpus, owner, with_grant(policy, "second", Grant(build=True, administer=True)), codes)
    committed = secured.opened().folder / "COMMITTED"
    secured.access("second").sign(committed, committed.read_bytes())

    carry_out(secured.corpus, owner, with_grant(policy, "north", None), codes)
    rotate(secured.corpus, owner, codes, retire=True)

    build = secured.opened()
    assert verify_build(build, deep=True)["records"] == 12
    assert not (secured.keyrings / "north.json").exists()
    stale = replace(build, keys=replace(build.keys, access=replace(old, builders=build.keys.access.builders)))
    with pytest.raises(AccessDeniedError, match="version 2 is not in the keyring of north"):
        read_shard(stale, shard_of(build, secured.code_of[DEPARTMENTS[0]]))


def test_a_build_in_the_clear_does_not_become_current_where_there_are_keys(tmp_path: Path, scheduler: str) -> None:
    """It is refused before anything is made; one that was put there by hand is, and the next build is current again."""
    secured = make_secured(tmp_path, scheduler, num_rows=12)
    asked = request([tmp_path / "rows.jsonl"], secured.corpus, scheduler)
    files = sorted(secured.corpus.rglob("*"))
    other = build_corpus(replace(asked, corpus=tmp_path / "other"))[0]

    with pytest.raises(UsageError, match="whoever reads them takes none in the clear; leave out --plaintext"):
        build_corpus(asked)
    assert sorted(secured.corpus.rglob("*")) == files
    (secured.corpus / "policy.json.dsse").rename(tmp_path / "policy")
    with pytest.raises(UsageError, match="its builds are encrypted"):
        build_corpus(asked)
    (tmp_path / "policy").rename(secured.corpus / "policy.json.dsse")
    shutil.copytree(other.folder, secured.corpus / "builds" / other.folder.name)
    (secured.corpus / "CURRENT").write_text(f"{other.folder.name}\n")
    with pytest.raises(IntegrityError, match="COMMITTED: not signed, though CURRENT names it"):
        secured.opened()
    again, is_new = build_corpus(replace(asked, keys=KeySource(secured.keyrings, "owner")))

    assert not is_new
    assert secured.opened().folder == again.folder


@pytest.mark.parametrize("kind", ["views", "keys"])
@pytest.mark.parametrize("damage", ["removed", "of another file", "by a stranger", "by a node"])
def test_whoever_has_keys_verifies_all_signatures(kind: str, damage: str, secured: Secured, tmp_path: Path) -> None:
    """Those of views and wrapped keys too, by the builders whom the keyring knows, with or without ``deep``."""
    copy = Secured(Path(shutil.copytree(secured.corpus, tmp_path / "corpus")), secured.code_of)
    first, second = sorted((copy.opened().folder / kind).glob("*.dsse"))[:2]
    content = payload_of(first.read_bytes(), copy.access().builders, "")
    left = {
        "of another file": second.read_bytes(),
        "by a stranger": make_signing_key().sign(content),
        "by a node": copy.access("north").signing_key.sign(content),
    }
    first.unlink()
    if damage in left:
        first.write_bytes(left[damage])

    with pytest.raises(IntegrityError, match=re.escape(first.name.removesuffix(".dsse"))) as refused:
        verify_build(copy.opened("auditor"), deep=False)

    assert "\n" not in str(refused.value)
    assert verify_build(secured.opened("auditor"), deep=False)["signatures"] == 1 + 2 * len(DEPARTMENTS)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("none", ""),
        ("edited entry", "is not proved to be of this build"),
        ("foreign proof", "is not proved to be of this build"),
        ("missing signature", "no such file"),
        ("wrong key", "no valid signature by a trusted key"),
        ("shard", "sealed"),
    ],
)
def test_a_node_checks_its_own_view_without_the_manifest(
    damage: str, said: str, secured: Secured, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With COMMITTED, one view and its shards; a builder who signs another view is found out by the proofs."""
    build, code = secured.opened(), secured.code_of[DEPARTMENTS[0]]
    names = ["COMMITTED", "COMMITTED.dsse", f"views/{code}.json", f"views/{code}.json.dsse"]
    for name in [*names, *(shard.path for shard in build.view(code).shards)]:
        (tmp_path / "own" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(build.folder / name, tmp_path / "own" / name)
    path, view, owner = tmp_path / "own" / names[2], build.view(code), secured.access()
    key = make_signing_key() if damage == "wrong key" else owner.signing_key
    (tmp_path / "key").write_text(key.public.hex)
    entry, proof = view.shards[0], view.proofs[0]
    edited = {
        "edited entry": {"shards": [entry.model_copy(update={"num_records": 99}), *view.shards[1:]]},
        "foreign proof": {"proofs": [proof.model_copy(update={"index": proof.index + 1}), *view.proofs[1:]]},
    }
    if damage in edited:
        owner.publish_beside(path, view.model_copy(update=edited[damage]))
    elif damage == "missing signature":
        path.with_name(f"{path.name}.dsse").unlink()
    elif damage == "shard":
        (tmp_path / "own" / entry.path).write_bytes(b"")

    asked = ["verify", tmp_path / "own", "--view", code]
    outcome = run_command(cli, [*asked, "--require-signature", tmp_path / "key"], capsys)
    by_keyring = run_command(cli, [*asked, "--keyring", secured.keyrings, "--principal", "north"], capsys)

    assert outcome.code == (65 if said else 0)
    assert said in outcome.err
    assert outcome.err.count("\n") == (1 if said else 0)
    assert by_keyring.code == (0 if damage == "wrong key" else outcome.code)


def test_keys_that_a_killed_builder_left_half_made_are_finished(tmp_path: Path, scheduler: str) -> None:
    """The next build makes what is absent, and hands out what was not."""
    source = write_rows(tmp_path / "rows.jsonl", some_rows(12, departments=DEPARTMENTS))
    (tmp_path / "policy.toml").write_text(POLICY)
    corpus = tmp_path / "corpus"
    asked = request([source], corpus, scheduler)
    key, keys = load_key(tmp_path / "test.key"), KeySource(corpus / "secret" / "keyring", "owner")
    ready_keys(corpus, keys, tmp_path / "policy.toml", key)
    administration = LocalAdministration(keys.folder, "owner")
    administration.make_kek(kek_of(key.department_code(DEPARTMENTS[0]), "text"))
    for name in DEPARTMENTS[1:]:
        for purpose in PURPOSES:
            administration.make_kek(kek_of(key.department_code(name), purpose))

    build, _ = build_corpus(replace(asked, keys=keys))

    assert verify_build(build, deep=True)["records"] == 12
    node = open_build(corpus, KeySource(keys.folder, "north").open())
    assert [node.may_score(key.department_code(name)) for name in DEPARTMENTS] == [True] * 3 + [False] * 3


def with_grant(policy: Policy, principal: str, grant: Grant | None) -> Policy:
    """The policy with another grant, or none, of one principal."""
    others = {name: held for name, held in policy.principals.items() if name not in (principal, "second")}
    return Policy(principals=others if grant is None else {**others, principal: grant})
