"""A compressed text file gives what the plain one gives, or an error that names it; never fewer records."""

from __future__ import annotations

import gzip
import random
import re
import zlib
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import DataError, IntegrityError, UsageError
from schemas.seals import publish_with
from sharding.config import ShardingSettings
from sharding.inputs import check_columns, find_files
from sharding.sources.compression import plain_chunks, plain_head
from sharding.sources.encodings import transcode
from tests.builds import COLUMNS, build, csv_bytes, request, some_rows, write_rows

SETTINGS = ShardingSettings.model_validate({"columns": COLUMNS})


def zstd(content: bytes) -> bytes:
    """One Zstandard frame."""
    out = pa.BufferOutputStream()
    with pa.CompressedOutputStream(out, "zstd") as stream:
        stream.write(content)
    return out.getvalue().to_pybytes()


COMPRESS: dict[str, Callable[[bytes], bytes]] = {".gz": gzip.compress, ".zst": zstd}


@given(
    st.lists(st.binary(max_size=200), min_size=1, max_size=5), st.sampled_from(sorted(COMPRESS)), st.integers(0, 300)
)
def test_all_members_are_read(parts: list[bytes], suffix: str, num_bytes: int) -> None:
    """Streams one after another in a file give their contents one after another, and so does the file's head."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"in.csv{suffix}"
        path.write_bytes(b"".join(map(COMPRESS[suffix], parts)))

        whole, head = b"".join(plain_chunks(path)), plain_head(path, num_bytes)

    assert whole == b"".join(parts)
    assert head == whole[:num_bytes]


@pytest.mark.parametrize("suffix", sorted(COMPRESS))
def test_parts_stay_small_however_far_a_file_expands(tmp_path: Path, suffix: str) -> None:
    """Twenty megabytes out of a few kilobytes come in parts of one, so memory is bounded."""
    path = tmp_path / f"in.csv{suffix}"
    path.write_bytes(COMPRESS[suffix](b"a" * 20_000_000))

    sizes = [len(chunk) for chunk in plain_chunks(path)]

    assert sum(sizes) == 20_000_000
    assert max(sizes) <= 1 << 20


@pytest.mark.parametrize("suffix", sorted(COMPRESS))
@pytest.mark.parametrize("damage", ["empty", "cut", "cut in the second", "flipped", "plain text", "trailing text"])
def test_a_damaged_stream_is_an_error_that_names_the_file(tmp_path: Path, suffix: str, damage: str) -> None:
    """Nothing is made of the part that can still be read, and the parser's own words stay inside."""
    content = csv_bytes(some_rows(500))
    packed = COMPRESS[suffix](content)
    middle = len(packed) // 2 if suffix == ".gz" else 4  # a frame need not have a checksum, but it has a header
    path, target = tmp_path / f"in.csv{suffix}", tmp_path / "out.txt"
    path.write_bytes(
        {
            "empty": b"",
            "cut": packed[:-3],
            "cut in the second": packed + packed[:middle],
            "flipped": packed[:middle] + bytes([packed[middle] ^ 255]) * 4 + packed[middle + 4 :],
            "plain text": content,
            "trailing text": packed + b"zebra words",
        }[damage]
    )

    with pytest.raises(IntegrityError, match=rf"in\.csv\{suffix}: cut or damaged after") as caught:
        publish_with(target, lambda out: transcode(path, out, "utf-8"))

    assert list(tmp_path.iterdir()) == [path]
    assert "zebra" not in str(caught.value)
    assert caught.value.__suppress_context__


@pytest.mark.parametrize("suffix", sorted(COMPRESS))
@pytest.mark.parametrize("share", [0.3, 0.9])
def test_an_error_says_how_far_a_stream_was_whole(tmp_path: Path, suffix: str, share: float) -> None:
    """No more plain bytes than there were, and most of those before the damage."""
    content = random.Random(0).randbytes(2_000_000)  # does not shrink, so shares of both sizes are alike
    path = tmp_path / f"in.csv{suffix}"
    packed = COMPRESS[suffix](content)
    path.write_bytes(packed[: int(share * len(packed))])

    with pytest.raises(IntegrityError, match=r"after at least [0-9]+ plain bytes") as caught:
        list(plain_chunks(path))

    found = int(re.findall(r"at least ([0-9]+) plain", str(caught.value))[0])
    assert share * len(content) - 300_000 <= found <= int(share * len(packed))


def test_what_gzip_pads_with_is_no_damage(tmp_path: Path) -> None:
    """Zeros after the last member, as tapes and block devices leave them, are read over as gzip does."""
    path = tmp_path / "in.csv.gz"
    path.write_bytes(gzip.compress(b"a,b\n") + bytes(512))

    assert b"".join(plain_chunks(path)) == b"a,b\n"


@pytest.mark.parametrize("suffix", sorted(COMPRESS))
@pytest.mark.parametrize("name", ["in.csv", "in.tsv", "in.jsonl", "in.ndjson", "IN.CSV"])
def test_the_suffix_before_the_last_names_the_format(tmp_path: Path, name: str, suffix: str) -> None:
    """Compressed files are found in folders as plain ones are."""
    path = tmp_path / (name + suffix)
    path.write_bytes(b"")

    (file,) = find_files([str(tmp_path)], "auto").files

    assert file.format == {"csv": "csv", "tsv": "tsv"}.get(name[3:].lower(), "jsonl")
    assert file.compression == {".gz": "gzip", ".zst": "zstd"}[suffix]


@pytest.mark.parametrize("name", ["in.parquet.gz", "in.gz", "in.csv.bz2"])
def test_other_compressed_files_are_of_no_known_format(tmp_path: Path, name: str) -> None:
    """Parquet compresses its pages itself; what cannot be read is refused by name."""
    (tmp_path / name).write_bytes(b"")

    with pytest.raises(UsageError, match="no known suffix"):
        find_files([str(tmp_path / name)], "auto")


@pytest.mark.parametrize("suffix", sorted(COMPRESS))
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "gb18030"])
def test_columns_are_checked_in_the_plain_head(tmp_path: Path, suffix: str, encoding: str) -> None:
    """A missing column is said before anything is read, in any encoding."""
    path = tmp_path / f"in.csv{suffix}"
    path.write_bytes(COMPRESS[suffix]("note_id,note,dept,科室\n".encode(encoding)))
    settings = SETTINGS.model_copy(update={"encoding": encoding})

    with pytest.raises(UsageError, match=r"'mrn' \(--patient\)"):
        check_columns(find_files([str(path)], "auto").files, settings)


@pytest.mark.parametrize("name", ["in.csv", "in.jsonl"])
@pytest.mark.parametrize("suffix", sorted(COMPRESS))
@pytest.mark.parametrize("encoding", ["utf-8", "gb18030"])
def test_content_digests_are_those_of_the_plain_file(
    tmp_path: Path, scheduler: str, name: str, suffix: str, encoding: str
) -> None:
    """Any split into members, in any encoding and block size: the same records, bit for bit."""
    plain = write_rows(tmp_path / name, some_rows(60, departments=("心内科", "Oncology", "", None)))
    content = plain.read_bytes().decode().encode(encoding)
    packed = tmp_path / f"{name}{suffix}"
    packed.write_bytes(b"".join(COMPRESS[suffix](part) for part in (content[:1_001], content[1_001:])))

    one = build([plain], tmp_path / "one", scheduler).manifest
    two = build([packed], tmp_path / "two", scheduler, encoding=encoding, block_bytes=999).manifest

    assert two.content_digest == one.content_digest
    assert two.multiset_digest == one.multiset_digest
    assert two.ledger == one.ledger
    assert two.inputs[0].seal.num_bytes == packed.stat().st_size


def test_bytes_that_are_no_utf8_are_rejects_of_their_own_record(tmp_path: Path, scheduler: str) -> None:
    """A compressed file in UTF-8 loses the record with the broken bytes and no other."""
    path = tmp_path / "in.csv.gz"
    path.write_bytes(gzip.compress(b"\xef\xbb\xbf" + csv_bytes(some_rows(9)) + b'"x","\xff\xfe","d","p"\n'))

    ledger = build([path], tmp_path / "corpus", scheduler).manifest.ledger

    assert (ledger.num_kept, ledger.rejected) == (9, {"undecodable": 1})


def test_an_error_names_the_file_and_not_its_copy(tmp_path: Path, scheduler: str) -> None:
    """A quote that is never closed is looked for in the file that was given."""
    path = tmp_path / "in.csv.gz"
    path.write_bytes(gzip.compress(csv_bytes(some_rows(3)) + b'"x","zebra\n'))

    with pytest.raises(DataError, match=r"/in\.csv\.gz: a quoted field .* is never closed") as caught:
        build([path], tmp_path / "corpus", scheduler)

    assert "utf8" not in str(caught.value)
    assert "zebra" not in str(caught.value)


def test_the_same_bytes_under_another_suffix_are_another_build(tmp_path: Path) -> None:
    """How bytes are read is part of the build's identity, so unfinished work of one is never taken for the other's."""
    from sharding.commit import identify
    from sharding.identity import load_key
    from sharding.survey import seal_inputs

    content = zlib.compress(b"x")
    for name in ("a.jsonl", "b.jsonl.gz", "c.jsonl.zst"):
        (tmp_path / name).write_bytes(content)
    key = load_key(request([], tmp_path / "corpus", "127.0.0.1:1").key_path)
    files = find_files([str(tmp_path / "*.jsonl*")], "auto").files

    ids = {identify(SETTINGS, seal_inputs([file]), key).build_id for file in files}

    assert len(ids) == 3
