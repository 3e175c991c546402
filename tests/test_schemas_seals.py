"""A file appears whole under its name or not at all, and is read back as sealed or not at all."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from schemas.audit import head_of
from schemas.errors import IntegrityError, PipelineError, TemporaryError, UsageError
from schemas.seals import (
    CHUNK_BYTES,
    TEMPORARY_ERRNOS,
    TEMPORARY_PREFIX,
    Seal,
    check_seal,
    label,
    publish,
    publish_with,
    read_verified,
    seal_bytes,
    seal_file,
)
from schemas.toml import read_toml
from scoring.lexicons import read_lexicon

SECRET = b"synthetic note: chest pain since Monday"


def leftovers(folder: Path) -> list[str]:
    """Names of unfinished files in a folder."""
    return [path.name for path in folder.iterdir() if path.name.startswith(TEMPORARY_PREFIX)]


@given(content=st.binary(max_size=200))
def test_a_sealed_file_round_trips(content: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    """What was published is read back byte for byte, and both ways of sealing agree."""
    path = tmp_path_factory.mktemp("seals") / "a" / "b.bin"

    seal = publish(path, content)

    assert read_verified(path, seal) == content
    assert seal == seal_file(path) == seal_bytes(content)
    assert leftovers(path.parent) == []


@pytest.mark.parametrize("size", [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 2 * CHUNK_BYTES])
def test_sealing_in_chunks_equals_sealing_at_once(size: int, tmp_path: Path) -> None:
    """A chunk's border does not change a digest."""
    content = bytes(range(256)) * (size // 256) + bytes(size % 256)
    path = tmp_path / "file.bin"
    path.write_bytes(content)

    assert seal_file(path) == seal_bytes(content)


@given(content=st.binary(min_size=1, max_size=64), data=st.data())
def test_any_flipped_bit_is_found(
    content: bytes, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """One bit anywhere, and the reader names the file and gives nothing."""
    path = tmp_path_factory.mktemp("seals") / "shard.bin"
    seal = publish(path, content)
    place = data.draw(st.integers(0, len(content) * 8 - 1))
    damaged = bytearray(content)
    damaged[place // 8] ^= 1 << place % 8
    path.write_bytes(damaged)

    with pytest.raises(IntegrityError, match=r"shard\.bin: sha256 is [0-9a-f]{16}…, [0-9a-f]{16}… was sealed"):
        read_verified(path, seal)
    with pytest.raises(IntegrityError, match="shard"):
        check_seal(path, seal)


@given(content=st.binary(min_size=1, max_size=64), data=st.data())
def test_any_other_length_is_found(
    content: bytes, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A cut or grown file is refused, also when it was cut to nothing."""
    path = tmp_path_factory.mktemp("seals") / "shard.bin"
    seal = publish(path, content)
    cut = data.draw(st.integers(0, len(content) - 1))

    path.write_bytes(content[:cut])
    with pytest.raises(IntegrityError, match=f"size is {cut} bytes, {len(content)} bytes were sealed"):
        read_verified(path, seal)
    path.write_bytes(content + b"x")
    with pytest.raises(IntegrityError, match="size is larger"):
        read_verified(path, seal)


def test_each_digest_is_checked_by_itself(tmp_path: Path) -> None:
    """A seal with one wrong digest does not pass because the other is right."""
    path = tmp_path / "file.bin"
    seal = publish(path, SECRET)

    wrongs = {"xxh3_128 is": {"xxh3_128": "0" * 32}, "sha256 is": {"sha256": "0" * 64}, "size is": {"num_bytes": 1}}
    for said, wrong in wrongs.items():
        with pytest.raises(IntegrityError, match=said):
            check_seal(path, seal.model_copy(update=wrong))
        with pytest.raises(IntegrityError, match=said):
            read_verified(path, seal.model_copy(update=wrong))


@pytest.mark.parametrize("field", ["xxh3_128", "sha256"])
@pytest.mark.parametrize("value", ["", "G" * 64, "A" * 64, "0" * 63, "0" * 64 + "\n", "0" * 65])
def test_a_digest_is_lower_case_hex_of_its_length(field: str, value: str) -> None:
    """Another spelling of a digest is no seal."""
    seal = seal_bytes(b"").model_dump()

    with pytest.raises(ValidationError):
        Seal.model_validate(seal | {field: value})


# --- publishing


def test_the_first_content_wins(tmp_path: Path) -> None:
    """Publishing again with equal content is a no-op; with other content an error that keeps the first."""
    path = tmp_path / "file.bin"
    seal = publish(path, b"first")

    again = publish(path, b"first")

    assert again == seal
    with pytest.raises(IntegrityError, match=r"exists with other content"):
        publish(path, b"other")
    assert path.read_bytes() == b"first"
    assert leftovers(tmp_path) == []


def test_replacing_swaps_in_one_step(tmp_path: Path) -> None:
    """With ``replace`` the last content wins and nothing unfinished stays."""
    path = tmp_path / "file.bin"
    publish(path, b"first")

    publish(path, b"second", replace=True)

    assert path.read_bytes() == b"second"
    assert leftovers(tmp_path) == []


def test_a_writer_that_fails_leaves_nothing(tmp_path: Path) -> None:
    """An exception half way through leaves neither the name nor a temporary file."""

    def write(file: BinaryIO) -> None:
        file.write(SECRET)
        raise KeyError("half way")

    with pytest.raises(KeyError):
        publish_with(tmp_path / "file.bin", write)

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("code", sorted(TEMPORARY_ERRNOS))
def test_a_full_or_failing_disk_is_temporary(code: int, tmp_path: Path) -> None:
    """Errors that pass by themselves or by an administrator's hand have their own exit code."""

    def write(_: BinaryIO) -> None:
        raise OSError(code, os.strerror(code), "/secret/place")

    with pytest.raises(TemporaryError, match="run the command again") as caught:
        publish_with(tmp_path / "file.bin", write)

    assert caught.value.exit_code == 75
    assert "/secret/place" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("code", [errno.EACCES, errno.EROFS, errno.ENAMETOOLONG])
def test_a_disk_that_refuses_is_not_temporary(code: int, tmp_path: Path) -> None:
    """Running again would not help, so the code is another."""

    def write(_: BinaryIO) -> None:
        raise OSError(code, os.strerror(code))

    with pytest.raises(UsageError, match="permissions"):
        publish_with(tmp_path / "file.bin", write)


def test_a_folder_that_cannot_be_made_is_one_of_our_errors(tmp_path: Path) -> None:
    """A file where a folder belongs is an error line, not a bug report."""
    (tmp_path / "taken").write_bytes(b"")

    with pytest.raises(PipelineError, match="taken/deep/file"):
        publish(tmp_path / "taken" / "deep" / "file.bin", b"content")


def test_many_writers_of_one_name_agree(tmp_path: Path) -> None:
    """Sixteen threads that publish equal content under one name all succeed, and one file stays."""
    path = tmp_path / "file.bin"
    seals: list[Seal] = []
    threads = [threading.Thread(target=lambda: seals.append(publish(path, SECRET))) for _ in range(16)]

    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert seals == [seal_bytes(SECRET)] * 16
    assert [file.name for file in tmp_path.iterdir()] == ["file.bin"]


def test_of_rival_contents_exactly_one_wins(tmp_path: Path) -> None:
    """Sixteen writers with different content under one name: one succeeds, fifteen are told."""
    path = tmp_path / "file.bin"
    outcomes: list[bytes | None] = []

    def write(content: bytes) -> None:
        try:
            publish(path, content)
            outcomes.append(content)
        except IntegrityError:
            outcomes.append(None)

    threads = [threading.Thread(target=write, args=(b"%d" % number,)) for number in range(16)]

    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [outcome for outcome in outcomes if outcome is not None] == [path.read_bytes()]


def test_a_killed_writer_publishes_nothing(tmp_path: Path) -> None:
    """SIGKILL half way through a write leaves no file under the final name, and the next writer succeeds."""
    program = (
        "import os, signal, sys; from pathlib import Path; from schemas.seals import publish_with\n"
        "def write(file):\n"
        "    file.write(b'half'); file.flush(); os.kill(os.getpid(), signal.SIGKILL)\n"
        "publish_with(Path(sys.argv[1]), write)"
    )
    path = tmp_path / "file.bin"

    killed = subprocess.run([sys.executable, "-c", program, str(path)], check=False, cwd=Path(__file__).parents[1])

    assert killed.returncode == -signal.SIGKILL
    assert not path.exists()
    assert len(leftovers(tmp_path)) == 1
    publish(path, SECRET)
    assert path.read_bytes() == SECRET


# --- reading and naming


@pytest.mark.parametrize("make", ["absent", "folder", "below_a_file"])
def test_what_is_no_file_is_an_error_line(make: str, tmp_path: Path) -> None:
    """An absent file, a folder, and a path below a file are all named, with exit code 65."""
    path = tmp_path / "thing"
    if make == "folder":
        path.mkdir()
    if make == "below_a_file":
        path.write_bytes(b"")
        path = path / "inner"

    with pytest.raises(IntegrityError, match=r": no such file; restore it") as caught:
        seal_file(path)

    assert caught.value.exit_code == 65
    assert label(path) in str(caught.value)


def test_reading_stops_at_the_sealed_size(tmp_path: Path) -> None:
    """A file that grew without end is not read without end."""
    path = tmp_path / "endless"
    path.touch()
    os.truncate(path, 1 << 40)

    with pytest.raises(IntegrityError, match="larger"):
        read_verified(path, seal_bytes(bytes(10)))


def test_messages_hold_no_content_and_no_machine_path(tmp_path: Path) -> None:
    """A damaged file's message names its last three parts and digests, nothing else."""
    path = tmp_path / "builds" / "b-1" / "shards" / "x.parquet"
    seal = publish(path, SECRET)
    path.write_bytes(SECRET[::-1])

    with pytest.raises(IntegrityError) as caught:
        check_seal(path, seal)

    message = str(caught.value)
    assert message.startswith("b-1/shards/x.parquet: ")
    assert str(tmp_path) not in message
    assert "chest" not in message
    assert SECRET[::-1].decode() not in message


def read_policy(path: Path) -> object:
    """A TOML file."""
    return read_toml(path, "policy")


def read_terms(path: Path) -> object:
    """A lexicon."""
    return read_lexicon(str(path))


@pytest.mark.parametrize("read", [seal_file, read_policy, head_of, read_terms])
def test_a_pipe_in_place_of_a_file_is_refused(read: Callable[[Path], object], tmp_path: Path) -> None:
    """What would hold a reader for ever ends with one line at once."""
    os.mkfifo(tmp_path / "pipe")

    with pytest.raises(IntegrityError, match="pipe: no regular file; restore it"):
        read(tmp_path / "pipe")
