"""Keys are changed in many files: a command that was killed between two of them is finished by giving it again."""

from __future__ import annotations

from pathlib import Path

import pytest

from schemas.access import KeySource
from schemas.granting import read_corpus_policy
from schemas.keyrings import principals_in
from sharding.corpus_keys import ready_keys
from sharding.identity import load_key, make_key

POLICY = "[principals.owner]\nbuild = true\nadminister = true\n[principals.builder]\nbuild = true\n"
POLICY += '[principals.north]\nscore = ["Ward"]\n'


class KilledError(BaseException):
    """What no code of ours catches, as a kill."""


@pytest.mark.parametrize("num_written", range(7))
def test_a_corpus_whose_beginning_was_killed_is_begun_by_the_same_command(
    num_written: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever of the seven files that it writes had their names: nobody is left without a signing key."""
    corpus, key = tmp_path / "corpus", tmp_path / "record.key"
    owner = KeySource(corpus / "secret" / "keyring", "owner")
    (tmp_path / "policy.toml").write_text(POLICY)
    make_key(key)
    with monkeypatch.context() as killing:
        kill_after(num_written, killing)
        with pytest.raises(KilledError):
            ready_keys(corpus, owner, tmp_path / "policy.toml", load_key(key))

    digest = ready_keys(corpus, owner, tmp_path / "policy.toml", load_key(key))

    assert read_corpus_policy(corpus, owner.open()).digest == digest
    assert principals_in(owner.folder) == ["builder", "north", "owner"]
    assert all(KeySource(owner.folder, name).open().signing_key for name in principals_in(owner.folder))


def kill_after(num_written: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this many files get their names, and the next one not."""
    left, replace = iter(range(num_written)), Path.replace

    def replaced(path: Path, target: Path) -> Path:
        if next(left, None) is None:
            raise KilledError
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", replaced)
