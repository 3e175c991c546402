"""``sharding keys`` as administrators and others call it; no build is needed for that."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from schemas.access import KeySource
from schemas.granting import carry_out, read_corpus_policy
from schemas.keyrings import keyring_path, read_keyring, write_keyring
from schemas.policy import Grant, Policy
from schemas.signing import SigningKey
from sharding.cli import cli
from tests.commands import Outcome, run_command

CODES = ("d-00000000000a", "d-00000000000b")


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus without builds, with keys of two departments, two administrators and a node; it is only copied."""
    corpus = tmp_path_factory.mktemp("begun") / "corpus"
    owner = KeySource(keyrings_of(corpus), "owner")
    everything = Grant(score=("*",), aggregate=True, build=True, administer=True)
    policy = Policy(principals={"owner": everything, "second": everything, "node": Grant(score=CODES[:1])})
    corpus.mkdir()
    carry_out(corpus, owner, policy, CODES)
    return corpus


@pytest.fixture
def corpus(begun: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(begun, tmp_path / "corpus"))


@pytest.mark.parametrize(
    "arguments",
    [
        ["grant", "node", "--score", CODES[1]],
        ["grant", "new", "--aggregate"],
        ["revoke", "node", "--score", CODES[0]],
        ["revoke", "node"],
        ["rotate"],
    ],
    ids=" ".join,
)
def test_who_lacks_keyrings_of_others_does_not_administer(
    arguments: list[str], corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An administrator with no file but its own is denied, and neither keyring nor policy is changed."""
    alone = tmp_path / "alone"
    alone.mkdir(mode=0o700)
    shutil.copy2(keyring_path(keyrings_of(corpus), "second"), alone)
    before = contents(corpus), contents(alone)

    outcome = keys(corpus, arguments, capsys, principal="second", keyring=alone)

    assert (outcome.code, outcome.err.count("\n")) == (77, 1)
    assert "keyrings of the policy's principals are not there; administer keys in the folder" in outcome.err
    assert (contents(corpus), contents(alone)) == before


def test_a_second_administrator_with_the_whole_folder_may_do_all(
    corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody's signing key changes, and all have the same keys under each version."""
    before = seeds_of(corpus)

    codes = [
        keys(corpus, arguments, capsys, principal="second").code
        for arguments in (["grant", "node", "--score", CODES[1]], ["rotate"], ["grant", "new", "--aggregate"])
    ]

    assert codes == [0, 0, 0]
    assert {name: seed for name, seed in seeds_of(corpus).items() if name != "new"} == before
    rings = [read_keyring(keyring_path(keyrings_of(corpus), name)).keks for name in ("owner", "second", "node")]
    assert rings[0] == rings[1]
    assert all(rings[0][kek_id] == versions for kek_id, versions in rings[2].items())


def test_the_list_names_who_signed_the_policy(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And not who asks; public keys are there for all who sign, by name."""
    by_owner = json.loads(keys(corpus, ["list"], capsys, principal="second").out)
    keys(corpus, ["grant", "new", "--aggregate"], capsys, principal="second")

    by_second = json.loads(keys(corpus, ["list"], capsys).out)

    assert (by_owner["signed_by"], by_second["signed_by"]) == ("owner", "second")
    assert by_second["public_keys"].keys() == {"owner", "second", "node", "new"}
    assert by_second["public_key"] == by_second["public_keys"]["second"]


@pytest.mark.parametrize(("mode", "is_refused"), [(0o770, True), (0o702, True), (0o755, False), (0o1777, False)])
def test_a_keyring_in_a_folder_that_others_may_write_to_is_refused(
    mode: int, is_refused: bool, corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They could put another in its place, but where the sticky bit keeps what is not theirs."""
    keyrings_of(corpus).chmod(mode)

    outcome = keys(corpus, ["list"], capsys)

    if is_refused:
        assert (outcome.code, outcome.err.count("\n")) == (2, 1)
        assert f"mode is {mode:04o}, others may write to this keyring folder; set 0700" in outcome.err
    else:
        assert outcome.code == 0


@pytest.mark.parametrize(("code", "is_told"), [(CODES[1], False), ("d-00000000000c", True)])
def test_a_grant_of_a_department_that_nothing_has_is_told(
    code: str, is_told: bool, corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A misspelt name becomes a code like any other; grants before the first build are wanted all the same."""
    outcome = keys(corpus, ["grant", "node", "--score", code], capsys)

    assert outcome.code == 0
    assert (f"department {code}: nothing has it yet" in outcome.err) == is_told


def test_a_lost_keyring_is_revoked_and_granted_anew(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Until its principal is revoked, no other keyring is changed in its absence."""
    seed = seeds_of(corpus)["node"]
    keyring_path(keyrings_of(corpus), "node").unlink()

    denied = keys(corpus, ["grant", "new", "--aggregate"], capsys)
    revoked = keys(corpus, ["revoke", "node"], capsys)
    granted = keys(corpus, ["grant", "node", "--score", CODES[0]], capsys)

    assert (denied.code, revoked.code, granted.code) == (77, 0, 0)
    assert seeds_of(corpus)["node"] not in (None, seed)


@pytest.mark.parametrize("seed", [None, "5a" * 32])
def test_a_keyring_with_another_signing_key_is_refused(
    seed: str | None, corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A keyring that was made anew, here or elsewhere, is not taken for the one that others know."""
    ring = read_keyring(keyring_path(keyrings_of(corpus), "node"))
    write_keyring(keyrings_of(corpus), ring.model_copy(update={"seed": seed}))
    before = contents(corpus)

    outcome = keys(corpus, ["grant", "new", "--aggregate"], capsys)

    assert (outcome.code, outcome.err.count("\n")) == (65, 1)
    assert "node.json: its signing key is not the one that owner knows" in outcome.err
    assert contents(corpus) == before


def test_whoever_was_killed_while_keyrings_were_written_goes_on(corpus: Path) -> None:
    """The administrator's own file is written last, so that nobody is known whose signing key is lost."""
    owner = KeySource(keyrings_of(corpus), "owner")
    policy = read_corpus_policy(corpus, owner.open())
    wider = Policy(principals={**policy.principals, "new": Grant(aggregate=True), "newer": Grant(aggregate=True)})
    left = {path: path.read_bytes() for path in (corpus / "policy.json.dsse", keyring_path(owner.folder, "owner"))}
    carry_out(corpus, owner, wider, CODES)
    for path, content in left.items():  # as they were when only some of the others had been written
        path.write_bytes(content)
    ring = read_keyring(keyring_path(owner.folder, "newer"))
    write_keyring(owner.folder, ring.model_copy(update={"seed": None, "signers": {}}))
    written = seeds_of(corpus)["new"]

    carry_out(corpus, owner, wider, CODES)

    assert seeds_of(corpus)["new"] == written
    assert read_corpus_policy(corpus, owner.open()) == wider
    for name, seed in seeds_of(corpus).items():
        public = SigningKey(bytes.fromhex(str(seed))).public.hex
        assert read_keyring(keyring_path(owner.folder, "node")).signers[name].public_key == public


@pytest.mark.parametrize("arguments", [["revoke", "owner"], ["revoke", "nobody"], ["grant", "no name"], ["rotate"]])
def test_who_does_not_administer_is_denied(
    arguments: list[str], corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever is asked for, and be it what no administrator could do either."""
    before = contents(corpus)

    outcome = keys(corpus, arguments, capsys, principal="node")

    assert (outcome.code, outcome.err.count("\n")) == (77, 1)
    assert "principal node: may not administer keys" in outcome.err
    assert contents(corpus) == before


def keyrings_of(corpus: Path) -> Path:
    """Folder of all keyrings."""
    return corpus / "secret" / "keyring"


def seeds_of(corpus: Path) -> dict[str, str | None]:
    """Signing keys, by principal."""
    found = map(read_keyring, keyrings_of(corpus).glob("*.json"))
    return {ring.principal: ring.seed for ring in found}


def contents(folder: Path) -> dict[str, bytes]:
    """All files but locks, by name."""
    files = [path for path in folder.rglob("*") if path.is_file() and "lock" not in path.name]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def keys(
    corpus: Path,
    arguments: Sequence[object],
    capsys: pytest.CaptureFixture[str],
    *,
    principal: str = "owner",
    keyring: Path | None = None,
) -> Outcome:
    """``sharding keys COMMAND CORPUS ...`` by a principal."""
    who = ["--principal", principal, "--keyring", keyring or keyrings_of(corpus), "--json"]
    return run_command(cli, ["keys", arguments[0], *who, corpus, *arguments[1:]], capsys)


def test_what_a_killed_administrator_left_half_written_is_removed(
    corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Unfinished files of keyrings hold keys that later rotations are to retire."""
    left = keyrings_of(corpus) / ".writing-4711-0a1b2c3d"
    left.write_bytes(keyring_path(keyrings_of(corpus), "owner").read_bytes())

    done = keys(corpus, ["grant", "new", "--aggregate"], capsys)

    assert done.code == 0
    assert not left.exists()
