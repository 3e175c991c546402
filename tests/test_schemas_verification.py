"""No change to a committed build goes unnoticed, and the file that differs is named."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from schemas.documents import read_document, write_document
from schemas.errors import IntegrityError, PipelineError
from schemas.folders import Build, open_build
from schemas.manifests import BuildManifest, Commit, DepartmentView
from schemas.seals import seal_file
from schemas.verification import json_digest, verify_build
from tests.builds import build, some_rows, write_rows


@pytest.fixture(scope="module")
def committed(tmp_path_factory: pytest.TempPathFactory, scheduler: str) -> Build:
    """A build of two departments with several shards and blocks."""
    folder = tmp_path_factory.mktemp("committed")
    source = write_rows(folder / "in.csv", some_rows(60))
    return build([source], folder / "corpus", scheduler, target_tokens=1_000, block_tokens=300)


@pytest.fixture
def copy(committed: Build, tmp_path: Path) -> Path:
    """A copy of the build's folder that a test may damage."""
    return shutil.copytree(committed.folder, tmp_path / "builds" / committed.folder.name)


def verify(folder: Path, *, deep: bool = False) -> dict[str, int]:
    """As the command does."""
    return verify_build(open_build(folder), deep=deep)


def test_an_untouched_build_is_as_sealed(copy: Path) -> None:
    """All files, shards, blocks and records are checked."""
    checked = verify(copy, deep=True)

    assert checked["files"] == sum(path.is_file() for path in copy.rglob("*"))
    assert checked["records"] == 60
    assert checked["blocks"] > checked["shards"] > checked["departments"] == 2


def test_a_flipped_bit_anywhere_is_found(copy: Path) -> None:
    """One bit in the first, a middle or the last byte of any file fails the check and names that file."""
    for path in sorted(item for item in copy.rglob("*") if item.is_file()):
        content = path.read_bytes()
        for place in (0, len(content) // 3, len(content) // 2, len(content) - 1):
            path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
            with pytest.raises(IntegrityError, match=path.name):
                verify(copy)
        path.write_bytes(content)
    assert verify(copy)


@pytest.mark.parametrize("damage", ["truncate", "empty", "delete", "grow", "duplicate", "folder"])
def test_damage_of_every_kind_to_any_file_is_found(copy: Path, damage: str) -> None:
    """A file cut, emptied, removed, grown, copied beside, or replaced by a folder is found, and named."""
    for path in sorted(item for item in copy.rglob("*") if item.is_file() and item.name != "COMMITTED"):
        content = path.read_bytes()
        beside = path.with_name("copy-of-" + path.name)
        if damage == "truncate":
            path.write_bytes(content[:-1])
        elif damage == "empty":
            path.write_bytes(b"")
        elif damage == "grow":
            path.write_bytes(content + b"\n")
        elif damage == "duplicate":
            beside.write_bytes(content)
        else:
            path.unlink()
            if damage == "folder":
                path.mkdir()
        with pytest.raises(IntegrityError, match=path.name):
            verify(copy)
        beside.unlink(missing_ok=True)
        if path.is_dir():
            path.rmdir()
        path.write_bytes(content)
    assert verify(copy)


def test_swapped_shards_are_found(copy: Path) -> None:
    """Two shards that trade names are both intact Parquet files, but neither is the one that was sealed."""
    one, two = sorted((copy / "shards").rglob("*.parquet"))[:2]
    aside = copy.parent / "aside"
    one.rename(aside)
    two.rename(one)
    aside.rename(two)

    with pytest.raises(IntegrityError, match=one.name):
        verify(copy)


def test_an_empty_folder_is_not_part_of_a_build(copy: Path) -> None:
    """A folder that holds no listed file is reported."""
    (copy / "shards" / "d-000000000000").mkdir()

    with pytest.raises(IntegrityError, match="not listed"):
        verify(copy)


def test_a_link_is_not_a_file(copy: Path) -> None:
    """A shard replaced by a link to the same bytes elsewhere is reported."""
    path = next((copy / "shards").rglob("*.parquet"))
    elsewhere = copy.parent / "elsewhere.parquet"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)

    with pytest.raises(IntegrityError, match=path.name):
        verify(copy)


def _edit_manifest(folder: Path, change: Callable[[dict], None]) -> None:
    """Change the manifest and seal it again, as someone would who wants to hide it."""
    body = read_document(folder / "manifest.json", BuildManifest).model_dump()
    change(body)
    body["config_digest"] = json_digest(body["config"])
    seal = write_document(folder / "manifest.json", BuildManifest.model_validate(body), replace=True)
    commit = read_document(folder / "COMMITTED", Commit)
    changed = {"manifest": seal, "num_shards": len(body["shards"]), "merkle_root": body["merkle_root"]}
    write_document(folder / "COMMITTED", commit.model_copy(update=changed), replace=True)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (lambda body: body["ledger"].update(num_read=61), "ledger"),
        (lambda body: body["ledger"].update(num_kept=59, rejected={"null_text": 1}), "num_kept"),
        (lambda body: body["side_rows"].update(rejected={"malformed": 1}), "side_rows"),
        (lambda body: body["side_rows"].update(rejected={"malformed": -1}), "side_rows"),
        (lambda body: body["inputs"][0].update(num_read=59), "inputs"),
        (lambda body: body["shards"].append(body["shards"][0]), "shards"),
        (lambda body: body["departments"][0].update(num_records=1), "departments"),
        (lambda body: body["shards"][0]["blocks"][0].update(num_records=1), "shards"),
        (lambda body: body.update(features=["sex"]), "schema_fingerprint"),
        (lambda body: body.update(content_digest="0" * 64), "content_digest"),
    ],
)
def test_a_manifest_that_contradicts_itself_is_refused(copy: Path, change: Callable, word: str) -> None:
    """Even under fresh seals, a ledger, count or digest that does not fit the rest is found."""
    _edit_manifest(copy, change)

    with pytest.raises(IntegrityError, match=word):
        verify(copy)


def test_only_a_deep_check_sees_other_rows_under_fresh_seals(copy: Path) -> None:
    """A multiset digest that is not that of the rows passes the seals and fails the deep check."""
    _edit_manifest(copy, lambda body: body.update(multiset_digest="0" * 32))

    checked = verify(copy)

    assert checked["shards"] > 0
    with pytest.raises(IntegrityError, match="multiset"):
        verify(copy, deep=True)


def test_a_view_must_agree_with_the_manifest(copy: Path) -> None:
    """A view without one of its shards is refused, though its seal is right."""
    path = next((copy / "views").iterdir())
    view = read_document(path, DepartmentView)
    write_document(path, view.model_copy(update={"shards": view.shards[1:]}), replace=True)
    commit = read_document(copy / "COMMITTED", Commit)
    views = {**commit.views, view.code: seal_file(path)}
    write_document(copy / "COMMITTED", commit.model_copy(update={"views": views}), replace=True)

    with pytest.raises(IntegrityError, match="shards differ"):
        verify(copy)


def test_a_damaged_current_file_names_no_build(committed: Build, tmp_path: Path) -> None:
    """Any flipped bit in CURRENT leads to an error, never to another build."""
    corpus = committed.folder.parents[1]
    current = (corpus / "CURRENT").read_bytes()
    (tmp_path / "builds").symlink_to(corpus / "builds")

    for place in range(len(current) - 1):
        (tmp_path / "CURRENT").write_bytes(current[:place] + bytes([current[place] ^ 1]) + current[place + 1 :])
        with pytest.raises(PipelineError):
            open_build(tmp_path)
