"""Whoever can write all files and holds no signing key: every edit, sealed anew with care, is refused and named."""

from __future__ import annotations

import base64
import copy
import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from aggregate.cli import cli as aggregate_cli
from aggregate.collect import collect
from aggregate.runs import open_run
from schemas.audit_events import AuditEvent, event_line
from schemas.canonical import canonical_json
from schemas.documents import document_bytes, read_document
from schemas.errors import IntegrityError, PipelineError
from schemas.folders import open_build
from schemas.granting import read_corpus_policy
from schemas.manifests import Commit, RunManifest
from schemas.partials import list_partials, read_partial, write_partial
from schemas.seals import seal_bytes
from schemas.signing import make_signing_key, signature_path
from schemas.verification import json_digest, verify_build
from scoring.assignment import RankIdentity
from scoring.run import run_rank
from sharding.cli import cli as sharding_cli
from tests.commands import run_command
from tests.launches import settings_of
from tests.secured import Secured, make_secured

Edit = Callable[[], None]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory, scheduler: str, tiny_llama: Path) -> tuple[Secured, Path]:
    """An encrypted build and its run; read only."""
    folder = tmp_path_factory.mktemp("original")
    secured = make_secured(folder, scheduler, num_rows=18)
    run_rank(secured.corpus, folder / "run", settings_of(tiny_llama), identity=RankIdentity(), access=secured.access())
    return secured, folder / "run"


@pytest.fixture
def copied(original: tuple[Secured, Path], tmp_path: Path) -> tuple[Secured, Path]:
    """Copies to tamper with; the reader's keyring is the untouched one."""
    shutil.copytree(original[0].corpus, tmp_path / "corpus")
    shutil.copytree(original[1], tmp_path / "run")
    return Secured(tmp_path / "corpus", original[0].code_of), tmp_path / "run"


def resealed(content: bytes, body: Any) -> bytes:
    """A document with another body and a seal that fits it."""
    return canonical_json({**json.loads(content), "body": body, "sha256": json_digest(body)})


def edits_of(value: Any) -> Iterator[Any]:
    """The value with one of its fields changed, for each field at any depth; empty lists and tables get an item."""
    if isinstance(value, dict):
        for key in value:
            for changed in edits_of(value[key]):
                yield {**value, key: changed}
        yield {**value, "added": 0}
    elif isinstance(value, list):
        for index, item in enumerate(value):
            for changed in edits_of(item):
                yield [*value[:index], changed, *value[index + 1 :]]
            yield [*value[:index], *value[index + 1 :]]
    elif isinstance(value, bool):
        yield not value
    elif isinstance(value, int | float):
        yield value + 1
    elif isinstance(value, str):
        yield ("0" if value[:1] != "0" else "1") + value[1:]
    else:
        yield 0


def open_all(secured: Secured, run: Path) -> None:
    """Everything that a reader checks before it believes a figure."""
    access = secured.access()
    read_corpus_policy(secured.corpus, access)
    build = open_build(secured.corpus, access)
    verify_build(build, deep=True)
    collect(build, open_run(run, access))


def test_untouched_copies_are_believed(copied: tuple[Secured, Path]) -> None:
    """Or the tests below would show nothing."""
    open_all(*copied)


@pytest.mark.parametrize("name", ["COMMITTED", "manifest.json", "views", "keys"])
def test_every_edit_of_a_build_is_refused(copied: tuple[Secured, Path], name: str) -> None:
    """Each field of commit, manifest, views and wrapped keys, with all seals made to fit."""
    secured, _ = copied
    access, folder = secured.access(), secured.opened().folder
    path = folder / name if not (folder / name).is_dir() else sorted((folder / name).glob("*.json*"))[0]
    whole, num_edits = path.read_bytes(), 0
    commit = (folder / "COMMITTED").read_bytes()
    code = path.name.partition(".")[0]

    for body in edits_of(_body_of(whole)):
        _write_edit(path, whole, body, commit=commit)
        with pytest.raises(PipelineError) as refused:
            _open_department(secured, access, code if name in ("views", "keys") else None)
        assert "\n" not in str(refused.value)
        num_edits += 1

    path.write_bytes(whole)
    (folder / "COMMITTED").write_bytes(commit)
    assert num_edits > 10
    verify_build(open_build(secured.corpus, access), deep=False)


def test_every_edit_of_the_policy_is_refused(copied: tuple[Secured, Path]) -> None:
    """Nobody grants himself anything."""
    secured, _ = copied
    access, path = secured.access(), secured.corpus / "policy.json.dsse"
    whole = path.read_bytes()

    for body in edits_of(_body_of(whole)):
        _write_edit(path, whole, body, commit=b"")
        with pytest.raises(IntegrityError, match="no valid signature by a trusted key"):
            read_corpus_policy(secured.corpus, access)


@pytest.mark.parametrize("damage", ["edited", "removed", "linked"])
def test_a_policy_that_nobody_signed_is_found_by_verify(
    damage: str, copied: tuple[Secured, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """Of build and run, wherever a keyring is at hand; the file is named."""
    secured, run = copied
    path = secured.corpus / "policy.json.dsse"
    whole = path.read_bytes()
    if damage == "edited":
        _write_edit(path, whole, next(edits_of(_body_of(whole))), commit=b"")
    else:
        moved = path.rename(path.with_name("moved"))
        if damage == "linked":
            path.symlink_to(moved)

    outcomes = [run_command(*command, capsys) for command in verify_commands(secured.corpus, run)]

    assert [outcome.code for outcome in outcomes] == [65, 65]
    assert all("policy.json.dsse: " in outcome.err.splitlines()[-1] for outcome in outcomes)


def test_a_policy_that_is_newer_than_the_build_is_believed(
    copied: tuple[Secured, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Grants change it; of a build that was copied without its corpus, verify says that there was none to check."""
    secured, run = copied
    access, path = secured.access(), secured.corpus / "policy.json.dsse"
    newer = read_corpus_policy(secured.corpus, access)
    access.publish_signed(path, newer.model_copy(update={"principals": {"owner": newer.principals["owner"]}}))
    alone = Path(shutil.copytree(secured.opened().folder, tmp_path / "alone" / "builds" / secured.opened().folder.name))

    beside = [run_command(*command, capsys) for command in verify_commands(secured.corpus, run)]
    apart = [run_command(*command, capsys) for command in verify_commands(alone, run, keyrings=secured.keyrings)]

    assert [outcome.code for outcome in (*beside, *apart)] == [0] * 4
    assert ["policy.json.dsse: not checked" in outcome.err for outcome in (*beside, *apart)] == [False] * 2 + [True] * 2


def verify_commands(build: Path, run: Path, *, keyrings: Path | None = None) -> list[tuple[click.Group, list[object]]]:
    """``verify`` of a build, and of a run of it, by its owner."""
    who = ["--principal", "owner", "--keyring", keyrings or build / "secret" / "keyring"]
    return [(sharding_cli, ["verify", build, *who]), (aggregate_cli, ["verify", build, run, *who])]


@pytest.mark.parametrize("name", ["run.json", "COMPLETE"])
def test_every_edit_of_a_run_is_refused(copied: tuple[Secured, Path], name: str) -> None:
    """Each field of header and totals, with the seals made to fit."""
    secured, run = copied
    access = secured.access()
    whole, complete = (run / name).read_bytes(), (run / "COMPLETE").read_bytes()

    for body in edits_of(_body_of(whole)):
        changed = resealed(whole, body)
        (run / name).write_bytes(changed)
        if name == "run.json":
            sealed = _body_of(complete)
            sealed["header"] = seal_bytes(changed).model_dump(mode="json")
            (run / "COMPLETE").write_bytes(resealed(complete, sealed))
        with pytest.raises(IntegrityError, match="COMPLETE: differs from what was signed"):
            open_run(run, access)


def test_a_signature_of_a_stranger_is_refused(copied: tuple[Secured, Path]) -> None:
    """A key of one's own is nobody's whom the keyring knows."""
    secured, _ = copied
    path = secured.opened().folder / "COMMITTED"
    signature_path(path).write_bytes(make_signing_key().sign(path.read_bytes()))

    with pytest.raises(IntegrityError, match="no valid signature by a trusted key"):
        secured.opened()


def test_a_node_cannot_sign_a_build(copied: tuple[Secured, Path]) -> None:
    """Who may only score signs runs, and nothing that others are to score."""
    secured, _ = copied
    path = secured.opened().folder / "COMMITTED"
    node = secured.access("north")
    node.sign(path, path.read_bytes())

    with pytest.raises(IntegrityError, match="no valid signature by a trusted key"):
        secured.opened()


def test_removed_signatures_are_refused(copied: tuple[Secured, Path]) -> None:
    """What a keyring is named for must be signed: no way back to builds in the clear."""
    secured, run = copied
    signature_path(secured.opened().folder / "COMMITTED").unlink()
    signature_path(run / "COMPLETE").unlink()

    with pytest.raises(IntegrityError, match="COMMITTED: not signed"):
        secured.opened()
    with pytest.raises(IntegrityError, match="COMPLETE: not signed"):
        open_run(run, secured.access())


def test_losses_cannot_be_made_up(copied: tuple[Secured, Path]) -> None:
    """A partial in the clear, or under another department's key, is no partial of an encrypted build."""
    secured, run = copied
    build, sealed = secured.opened(), read_document(run / "COMPLETE", RunManifest)
    one = list_partials(run)[0]
    other = next(code for code in build.codes if code != one.key.department)
    key = build.results_key(one.key.department)
    table, _ = read_partial(one, run_id=sealed.run_id, features=build.manifest.features, results_key=key)

    for results_key in (None, build.results_key(other)):
        made = write_partial(one.path.parent, table, run_id=sealed.run_id, key=one.key, results_key=results_key)
        with pytest.raises(IntegrityError, match=r"unlike its build|does not open with its department's key"):
            read_partial(made, run_id=sealed.run_id, features=build.manifest.features, results_key=key)


def test_a_log_written_anew_is_refused(copied: tuple[Secured, Path]) -> None:
    """With every event chained again behind an edited one, it lacks the head that was signed."""
    secured, run = copied
    build = secured.opened()

    for path in (run / "audit" / "rank-00000.jsonl", secured.corpus / "audit" / "corpus.jsonl"):
        path.write_bytes(_rechained(path.read_bytes()))
        with pytest.raises(IntegrityError, match=f"{path.name}: head in the signed manifest does not match"):
            collect(build, open_run(run, secured.access()))


def _body_of(content: bytes) -> Any:
    """Of a document, or of the one within a signature."""
    envelope = json.loads(content)
    if "payload" in envelope:
        envelope = json.loads(base64.b64decode(envelope["payload"]))
    return copy.deepcopy(envelope["body"])


def _write_edit(path: Path, whole: bytes, body: Any, *, commit: bytes) -> None:
    """Put an edited document in place, with all seals above it."""
    envelope = json.loads(whole)
    if "payload" in envelope:
        inner = resealed(base64.b64decode(envelope["payload"]), body)
        path.write_bytes(canonical_json({**envelope, "payload": base64.b64encode(inner).decode()}))
        return
    changed = resealed(whole, body)
    path.write_bytes(changed)
    if path.name != "COMMITTED":
        folder = path.parent if path.name == "manifest.json" else path.parents[1]
        above = _body_of(commit)
        seal = seal_bytes(changed).model_dump(mode="json")
        if path.name == "manifest.json":
            above["manifest"] = seal
        else:
            above["views"][path.stem] = seal
        (folder / "COMMITTED").write_bytes(resealed(commit, above))


def _open_department(secured: Secured, access: Any, code: str | None) -> None:
    build = open_build(secured.corpus, access)
    if code is not None:
        build.view(code)
        build.department_name(code)
        for shard in build.manifest.shards:
            if shard.department == code:
                build.shard_key(shard)


def _rechained(content: bytes) -> bytes:
    """The same events by another principal, chained as an attacker would."""
    lines, previous = [], "0" * 64
    for line in content.splitlines():
        event = AuditEvent.model_validate({**json.loads(line), "who": "stranger", "previous": previous})
        lines.append(event_line(event))
        previous = hashlib.sha256(lines[-1]).hexdigest()
    return b"".join(lines)


def test_the_attackers_tools_work(copied: tuple[Secured, Path]) -> None:
    """Without signatures asked for, a document that was sealed anew passes its seal: it is the signature that tells."""
    secured, _ = copied
    folder = secured.opened().folder
    commit = read_document(folder / "COMMITTED", Commit)

    assert resealed(document_bytes(commit), _body_of(document_bytes(commit))) == document_bytes(commit)
