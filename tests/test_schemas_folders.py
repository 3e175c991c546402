"""A build is opened whole and as committed, by its corpus or its own name, or refused with what is wrong."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from schemas.balance import Balance
from schemas.documents import write_document
from schemas.errors import IntegrityError, PipelineError, UsageError
from schemas.folders import Build, current_build_id, open_build
from schemas.ledgers import BuildLedger
from schemas.manifests import (
    BUILDS_FOLDER,
    COMMITTED_FILE,
    CURRENT_FILE,
    MANIFEST_FILE,
    VIEWS_FOLDER,
    BlockEntry,
    BuildManifest,
    Commit,
    DepartmentEntry,
    DepartmentView,
    ShardEntry,
    ShardProof,
)
from schemas.seals import Seal, seal_bytes

BUILD_ID = "b-0123456789abcdef"
OTHER_ID = "b-fedcba9876543210"
CODES = ("d-00000000000a", "d-00000000000b")
NOTHING = "0" * 64


def shard_of(code: str) -> ShardEntry:
    """The only shard of a department."""
    return ShardEntry(
        shard_id=f"{code}-00000",
        path=f"shards/{code}/{code}-00000.parquet",
        department=code,
        num_records=2,
        estimated_tokens=10,
        seal=seal_bytes(b"parquet"),
        content_digest=NOTHING,
        blocks=[
            BlockEntry(
                num_records=2,
                num_text_bytes=40,
                estimated_tokens=10,
                content_digest=NOTHING,
                carried_digest=NOTHING,
            )
        ],
    )


def manifest_of(build_id: str, **changes: Any) -> BuildManifest:
    """The manifest of a build of two departments with one shard each."""
    manifest = BuildManifest(
        build_id=build_id,
        exactppl_version="0.1.0",
        config={},
        config_digest=NOTHING,
        inputs=[],
        inputs_digest=NOTHING,
        schema_fingerprint=NOTHING,
        features=[],
        encryption="none",
        merkle_root=NOTHING,
        limited_to=None,
        ledger=BuildLedger(num_read=4, num_kept=4, duplicates={}, rejected={}),
        unresolved={},
        balance=Balance(departments=[], ranks=[]),
        multiset_digest="0" * 32,
        content_digest=NOTHING,
        departments=[DepartmentEntry(code=code, num_records=2, num_shards=1, estimated_tokens=10) for code in CODES],
        shards=[shard_of(code) for code in CODES],
    )
    return manifest.model_copy(update=changes)


def view_of(build_id: str, code: str) -> DepartmentView:
    """The view of one department."""
    ledger = BuildLedger(num_read=2, num_kept=2, duplicates={}, rejected={})
    proofs = [ShardProof(index=0, path=[])]
    return DepartmentView(
        build_id=build_id, code=code, name="Cardiology", ledger=ledger, shards=[shard_of(code)], proofs=proofs
    )


def commit_of(build_id: str, manifest: Seal, views: dict[str, Seal]) -> Commit:
    """What seals the build."""
    return Commit(build_id=build_id, manifest=manifest, views=views, merkle_root=NOTHING, num_shards=len(CODES))


def commit_build(corpus: Path, build_id: str = BUILD_ID, **changes: Any) -> Path:
    """Write a build as the sharding stage does: views, manifest, commit, and last the pointer to it."""
    folder = corpus / BUILDS_FOLDER / build_id
    views = {code: write_document(folder / VIEWS_FOLDER / f"{code}.json", view_of(build_id, code)) for code in CODES}
    manifest = write_document(folder / MANIFEST_FILE, manifest_of(build_id, **changes))
    write_document(folder / COMMITTED_FILE, commit_of(build_id, manifest, views))
    (corpus / CURRENT_FILE).write_text(f"{build_id}\n")
    return folder


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """A corpus with one committed build, which is current."""
    folder = tmp_path / "corpus"
    commit_build(folder)
    return folder


def emptied(path: Path) -> None:
    """Leave a file of no bytes."""
    path.write_bytes(b"")


def replaced(path: Path) -> None:
    """Put another JSON value in its place."""
    path.write_bytes(b"{}\n")


def refusal(path: Path, error_class: type[PipelineError] = IntegrityError) -> str:
    """The message with which a folder is refused."""
    with pytest.raises(error_class) as caught:
        open_build(path)
    assert caught.type is error_class
    return str(caught.value)


def test_a_corpus_opens_its_current_build(corpus: Path) -> None:
    """The corpus folder stands for the build that CURRENT names; the build folder for itself."""
    commit_build(corpus, OTHER_ID)

    assert open_build(corpus).manifest.build_id == OTHER_ID
    assert open_build(corpus / BUILDS_FOLDER / BUILD_ID).manifest == manifest_of(BUILD_ID)


def test_a_build_knows_its_files(corpus: Path) -> None:
    """Shards and views are found below the build folder, and a view is that of its department."""
    build: Build = open_build(corpus)
    shard = build.manifest.shards[0]

    assert build.shard_path(shard) == corpus.resolve() / BUILDS_FOLDER / BUILD_ID / shard.path
    assert [build.view(code) for code in CODES] == [view_of(BUILD_ID, code) for code in CODES]


@pytest.mark.parametrize("place", [".", "..", "../.."])
def test_a_relative_place_is_as_good(place: str, corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Standing inside a build, its folder is ``.``; from its shards ``..``; the corpus is two folders up."""
    folder = corpus / BUILDS_FOLDER / BUILD_ID
    monkeypatch.chdir({".": folder, "..": folder / VIEWS_FOLDER, "../..": folder}[place])

    assert open_build(Path(place)).manifest.build_id == BUILD_ID


def test_a_corpus_may_lie_anywhere(tmp_path: Path) -> None:
    """A corpus below a folder called ``builds``, or itself called so, is opened by its pointer."""
    corpora = [tmp_path / BUILDS_FOLDER / "corpus", tmp_path / "other" / BUILDS_FOLDER, tmp_path / f"x-{BUILD_ID}"]
    for corpus in corpora:
        commit_build(corpus)

    assert [open_build(corpus).manifest.build_id for corpus in corpora] == [BUILD_ID] * 3


def test_a_folder_of_builds_without_a_pointer_is_no_build(tmp_path: Path) -> None:
    """A folder below ``builds`` that is not named as a build is called what it is: no build."""
    (tmp_path / BUILDS_FOLDER / "corpus").mkdir(parents=True)

    assert "no build here" in refusal(tmp_path / BUILDS_FOLDER / "corpus", UsageError)


def test_the_current_build_is_told_only_if_it_is_committed(corpus: Path) -> None:
    """Its id; nothing where the pointer is absent or damaged, or names what is not committed."""
    told = [current_build_id(corpus)]
    (corpus / BUILDS_FOLDER / BUILD_ID / COMMITTED_FILE).unlink()
    told.append(current_build_id(corpus))
    (corpus / CURRENT_FILE).write_text("../x")
    told.append(current_build_id(corpus))
    (corpus / CURRENT_FILE).unlink()
    told.append(current_build_id(corpus))

    assert told == [BUILD_ID, None, None, None]


def test_a_link_to_a_build_is_as_good(corpus: Path) -> None:
    """A symbolic link with another name leads to the build itself."""
    (corpus / "latest").symlink_to(corpus / BUILDS_FOLDER / BUILD_ID)

    assert open_build(corpus / "latest").manifest.build_id == BUILD_ID


def test_a_link_in_the_place_of_a_build_is_refused(corpus: Path, tmp_path: Path) -> None:
    """A build whose folder leads out of the corpus may be anything at the next look."""
    folder = corpus / BUILDS_FOLDER / BUILD_ID
    folder.rename(tmp_path / BUILD_ID)
    folder.symlink_to(tmp_path / BUILD_ID)

    for path in (corpus, folder):
        with pytest.raises(UsageError, match="a link, not a build folder"):
            open_build(path)


@pytest.mark.parametrize("name", ["", "empty", "absent", "file", "x" * 300])
def test_what_is_no_build_is_a_usage_error(name: str, tmp_path: Path) -> None:
    """A folder without a build, no folder, a file, or an impossible name: code 2 and what to name instead."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_bytes(b"")

    message = refusal(tmp_path / name, UsageError)

    assert ": no build here; name a corpus folder with CURRENT" in message or "File name too long" in message


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n",
        b"b-\n",
        OTHER_ID.encode() + b"\n",
        BUILD_ID.encode() + b"\n\n",
        BUILD_ID.encode() + b"\r\n",
        b" " + BUILD_ID.encode(),
        b"../builds/" + BUILD_ID.encode(),
        b"b-/../" + BUILD_ID.encode(),
        b"/etc\n",
        b"b-\xff\xfe\n",
        b"b-\x00\n",
        b"b-" + b"0" * 1000,
    ],
)
def test_a_damaged_pointer_is_refused(content: bytes, corpus: Path) -> None:
    """CURRENT names one build of this corpus by its plain id, or nothing is opened."""
    (corpus / CURRENT_FILE).write_bytes(content)

    assert refusal(corpus).endswith("corpus/CURRENT: names no build of this corpus; restore it or run the build again")


def test_a_pointer_that_is_a_folder_is_refused(corpus: Path) -> None:
    """CURRENT as a folder is an error line."""
    (corpus / CURRENT_FILE).unlink()
    (corpus / CURRENT_FILE).mkdir()

    assert "CURRENT: no such file" in refusal(corpus)


def test_an_unfinished_build_is_refused(corpus: Path) -> None:
    """Without COMMITTED there is no build, even if all else is there."""
    folder = corpus / BUILDS_FOLDER / BUILD_ID
    (folder / COMMITTED_FILE).unlink()

    assert "COMMITTED: no such file" in refusal(corpus)
    assert "COMMITTED: no such file" in refusal(folder)


@pytest.mark.parametrize("name", [COMMITTED_FILE, MANIFEST_FILE])
@pytest.mark.parametrize("place", [0, 40, -2])
def test_one_changed_byte_is_refused(name: str, place: int, corpus: Path) -> None:
    """A flipped bit in the commit or the manifest names that file."""
    path = corpus / BUILDS_FOLDER / BUILD_ID / name
    content = bytearray(path.read_bytes())
    content[place] ^= 4
    path.write_bytes(content)

    assert refusal(corpus).startswith(f"builds/{BUILD_ID}/{name}: ")


@pytest.mark.parametrize("name", [COMMITTED_FILE, MANIFEST_FILE])
@pytest.mark.parametrize("damage", [emptied, Path.unlink, replaced])
def test_an_empty_or_missing_document_is_refused(name: str, damage: Callable[[Path], Any], corpus: Path) -> None:
    """A document of no bytes, none at all, or another one names its file."""
    damage(corpus / BUILDS_FOLDER / BUILD_ID / name)

    assert f"{name}: " in refusal(corpus)


def test_a_renamed_build_is_refused(corpus: Path) -> None:
    """A build folder carries the id of what it holds."""
    (corpus / BUILDS_FOLDER / BUILD_ID).rename(corpus / BUILDS_FOLDER / OTHER_ID)

    assert "name different builds" in refusal(corpus / BUILDS_FOLDER / OTHER_ID)


def test_a_manifest_of_another_build_is_refused(corpus: Path) -> None:
    """A valid manifest that is not the one that was committed does not match the commit's seal."""
    other = commit_build(corpus, OTHER_ID)
    shutil.copy(other / MANIFEST_FILE, corpus / BUILDS_FOLDER / BUILD_ID / MANIFEST_FILE)

    assert "sha256 is" in refusal(corpus / BUILDS_FOLDER / BUILD_ID)


def test_a_commit_of_other_departments_is_refused(tmp_path: Path) -> None:
    """The sealed views are those of the manifest's departments, none more and none less."""
    commit_build(tmp_path, departments=manifest_of(BUILD_ID).departments[:1])

    assert "departments differ from the sealed views" in refusal(tmp_path)


def test_a_view_that_was_not_sealed_is_refused(corpus: Path) -> None:
    """A view file beside the committed ones is not read, and neither is a path."""
    build = open_build(corpus)
    stranger = "d-00000000000c"
    write_document(build.folder / VIEWS_FOLDER / f"{stranger}.json", view_of(BUILD_ID, stranger))

    for code in (stranger, f"../{VIEWS_FOLDER}/{CODES[0]}", ""):
        with pytest.raises(IntegrityError, match="not sealed by COMMITTED"):
            build.view(code)


def test_swapped_views_are_refused(corpus: Path) -> None:
    """Two departments' views exchanged on disk do not match their seals."""
    build = open_build(corpus)
    first, second = (build.folder / VIEWS_FOLDER / f"{code}.json" for code in CODES)
    first.rename(first.with_name("x"))
    second.rename(first)
    first.with_name("x").rename(second)

    for code in CODES:
        with pytest.raises(IntegrityError, match=rf"{code}\.json: "):
            build.view(code)


@pytest.mark.parametrize(("build_id", "code"), [(OTHER_ID, CODES[0]), (BUILD_ID, CODES[1])])
def test_a_view_sealed_under_another_name_is_refused(build_id: str, code: str, tmp_path: Path) -> None:
    """Even with a matching seal, a view must be of the department and build that it is asked for."""
    folder = commit_build(tmp_path)
    build = open_build(tmp_path)
    path = folder / VIEWS_FOLDER / f"{CODES[0]}.json"
    seal = write_document(path, view_of(build_id, code), replace=True)
    resealed = build.commit.model_copy(update={"views": build.commit.views | {CODES[0]: seal}})
    write_document(folder / COMMITTED_FILE, resealed, replace=True)

    with pytest.raises(IntegrityError, match="belongs to another department or build"):
        open_build(tmp_path).view(CODES[0])
