"""A keyring file is its principal's secret, or it is refused in one line."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.documents import document_bytes
from schemas.errors import AccessDeniedError, IntegrityError, PipelineError, UsageError
from schemas.keyrings import Keyring, keyring_path, principals_in, read_keyring, write_keyring

KEY = "5a" * 32
KEK = "d-0123456789ab/text"


def a_keyring(folder: Path, principal: str = "node-1") -> Path:
    """A sound keyring file."""
    return write_keyring(folder, Keyring(principal=principal, keks={KEK: {1: KEY}}))


@given(versions=st.dictionaries(st.integers(1, 200), st.just(KEY), min_size=1, max_size=15))
def test_keyring_reads_back_as_written(tmp_path_factory: pytest.TempPathFactory, versions: dict[int, str]) -> None:
    """Whatever versions there are, also ten and more, whose order differs as numbers and as text."""
    keyring = Keyring(principal="node-1", keks={KEK: versions})

    path = write_keyring(tmp_path_factory.mktemp("keys"), keyring)

    assert read_keyring(path) == keyring


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o777])
def test_keyring_is_closed_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    """File and folder are their owner's alone, and nothing half written stays."""
    before = os.umask(umask & 0o077)
    try:
        path = a_keyring(tmp_path / "keys")
    finally:
        os.umask(before)

    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("mode", [0o604, 0o640, 0o660, 0o644, 0o602, 0o677])
def test_loose_mode_is_refused(tmp_path: Path, mode: int) -> None:
    """A key that others may have read or changed is no secret."""
    path = a_keyring(tmp_path)
    path.chmod(mode)

    with pytest.raises(UsageError, match=f"mode is {mode:04o}, others may use this keyring; set 0600"):
        read_keyring(path)


def test_link_to_a_keyring_is_refused(tmp_path: Path) -> None:
    """A link could lead to another principal's file."""
    path = a_keyring(tmp_path)
    link = tmp_path / "links" / path.name
    link.parent.mkdir()
    link.symlink_to(path)

    with pytest.raises(UsageError, match="a link, not a keyring file"):
        read_keyring(link)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    """A folder or a pipe of that name gives an error, and no wait for a writer."""
    (tmp_path / "folder.json").mkdir(mode=0o700)
    os.mkfifo(tmp_path / "pipe.json", 0o600)

    for name in ("folder", "pipe"):
        with pytest.raises(UsageError, match="no regular file"):
            read_keyring(tmp_path / f"{name}.json")


def test_absent_keyring_is_denied_access(tmp_path: Path) -> None:
    """Without a keyring a principal has no access: exit code 77."""
    with pytest.raises(AccessDeniedError, match="no such keyring") as raised:
        read_keyring(tmp_path / "node-1.json")

    assert raised.value.exit_code == 77


def test_renamed_keyring_is_refused(tmp_path: Path) -> None:
    """Nobody becomes another principal by renaming a file."""
    path = a_keyring(tmp_path)
    other = path.rename(tmp_path / "node-2.json")

    with pytest.raises(IntegrityError, match="another principal"):
        read_keyring(other)


@pytest.mark.parametrize(
    "keks",
    [
        {"x/text": {1: KEY}},
        {"d-0123456789ab/notes": {1: KEY}},
        {KEK: {}},
        {KEK: {0: KEY}},
        {KEK: {1: "5a"}},
        {KEK: {1: KEY.upper()}},
    ],
)
def test_unsound_keks_are_refused(keks: dict[str, dict[int, str]]) -> None:
    """Unknown ids, no versions, version 0 and short or upper-case keys are no KEKs, and no message has a key."""
    with pytest.raises(ValueError, match="no KEKs by id and version") as raised:
        Keyring(principal="node-1", keks=keks)

    assert "no KEKs by id and version" in str(raised.value)


@given(data=st.data())
def test_any_changed_byte_is_found_and_no_key_is_told(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """A keyring is sealed, and the error holds no piece of a key."""
    path = a_keyring(tmp_path_factory.mktemp("keys"))
    content = bytearray(path.read_bytes())
    content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(bytes(content))

    with pytest.raises(PipelineError) as raised:
        read_keyring(path)

    assert KEY[:8] not in str(raised.value)


@pytest.mark.parametrize("content", [b"", b"[" * 1_000_000, b"{}", b"\xff" * 64])
def test_foreign_content_is_refused_in_one_line(tmp_path: Path, content: bytes) -> None:
    """Nothing, a million brackets, an empty object, noise."""
    path = a_keyring(tmp_path)
    path.write_bytes(content)

    with pytest.raises(IntegrityError) as raised:
        read_keyring(path)

    assert "\n" not in str(raised.value)


def test_endless_file_is_not_read_to_its_end(tmp_path: Path) -> None:
    """A file that claims 10 GB is refused without being held in memory."""
    path = a_keyring(tmp_path)
    os.truncate(path, 10 << 30)

    with pytest.raises(IntegrityError, match="no keyring"):
        read_keyring(path)


@pytest.mark.parametrize("name", ["", "../node", "a/b", "node.1", "-x", "é", "x" * 65, "node\n"])
def test_name_that_no_principal_can_have_is_refused(tmp_path: Path, name: str) -> None:
    """Names of principals are names of files, so they hold nothing that leads elsewhere."""
    with pytest.raises(UsageError, match="principal"):
        keyring_path(tmp_path, name)


def test_no_key_shows_in_a_repr() -> None:
    """What may come into a log by accident tells no key."""
    keyring = Keyring(principal="node-1", keks={KEK: {1: KEY}})

    assert KEY not in repr(keyring)
    assert KEY not in str(keyring)
    assert KEY.encode() in document_bytes(keyring)


def test_principals_of_a_folder_are_listed(tmp_path: Path) -> None:
    """By name; other files are no principals', and an absent folder has none."""
    for principal in ("b", "a"):
        a_keyring(tmp_path / "keys", principal)
    (tmp_path / "keys" / "lock").touch()

    assert principals_in(tmp_path / "keys") == ["a", "b"]
    assert principals_in(tmp_path / "absent") == []
