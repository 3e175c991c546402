"""Digests that never move: not with a platform, a release of a library, or a hash seed."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest
import xxhash

from schemas.seals import seal_bytes

ROOT = Path(__file__).parents[1]
EMPTY = b""
ABC = b"abc"


@pytest.mark.parametrize(
    ("content", "expected"),
    [(ABC, "78af5f94892f3950"), (EMPTY, "2d06800538d394c2")],
)
def test_xxh3_64(content: bytes, expected: str) -> None:
    """The digest by which records are placed."""
    assert xxhash.xxh3_64_hexdigest(content) == expected


@pytest.mark.parametrize(
    ("content", "expected"),
    [(ABC, "06b05ab6733a618578af5f94892f3950"), (EMPTY, "99aa06d3014798d86001c324468d497f")],
)
def test_xxh3_128(content: bytes, expected: str) -> None:
    """The digest that finds accidents, and names partials."""
    assert xxhash.xxh3_128_hexdigest(content) == expected
    assert seal_bytes(content).xxh3_128 == expected


def test_sha256() -> None:
    """The evidence of an auditor; FIPS 180-4, "abc"."""
    expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"

    assert hashlib.sha256(ABC).hexdigest() == expected
    assert seal_bytes(ABC).sha256 == expected


def test_blake2b() -> None:
    """The hash under record ids; RFC 7693 appendix A, "abc"."""
    assert hashlib.blake2b(ABC).hexdigest() == (
        "ba80a53f981c4d0d6a2797b69f12f6e94c212f14685ac4b74b12bb6fdbffa2d1"
        "7d87c5392aab792dc252d5de4533cc9518d38aa8dbf1925ab92386edd4009923"
    )


def test_keyed_blake2b() -> None:
    """With a key, as ids use it; BLAKE2 known-answer test, key 00…3f and empty input."""
    assert hashlib.blake2b(EMPTY, key=bytes(range(64))).hexdigest() == (
        "10ebb67700b1868efb4417987acf4690ae9d972fb7a590c2f02871799aaa4786"
        "b5e996e8f0f4eb981fc214b005f42d2ff4233499391653df7aefcbc13fc51568"
    )


def test_a_tagged_and_prefixed_digest_is_not_a_joined_one() -> None:
    """The ambiguity that length prefixes remove: joined, ("ab", "c") and ("a", "bc") are one string."""
    pairs = [(b"ab", b"c"), (b"a", b"bc")]

    prefixed = {b"".join(len(part).to_bytes(8, "little") + part for part in pair) for pair in pairs}

    assert len({b"".join(pair) for pair in pairs}) == 1
    assert len({hashlib.blake2b(value, digest_size=16, key=bytes(32)).digest() for value in prefixed}) == 2


@pytest.mark.parametrize("seed", ["0", "1", "4294967295", "random"])
def test_no_digest_depends_on_the_hash_seed(seed: str) -> None:
    """Documents and content digests made under another PYTHONHASHSEED are the same bytes."""
    program = (
        "import pyarrow as pa, sys\n"
        "from schemas.canonical import canonical_json\n"
        "from schemas.seals import seal_bytes\n"
        "from schemas.tables import content_digest\n"
        "value = {name: sorted({name, 'x', 'y'}) for name in {'b', 'a', 'c'}}\n"
        "table = pa.table({'x': pa.array(['1', '1.0', None], pa.large_string())})\n"
        "sys.stdout.write(seal_bytes(canonical_json(value)).sha256 + content_digest(table))"
    )

    digests = {
        subprocess.run(
            [sys.executable, "-c", program],
            check=True,
            capture_output=True,
            text=True,
            cwd=ROOT,
            env={"PYTHONHASHSEED": value},
        ).stdout
        for value in ("0", seed)
    }

    assert len(digests) == 1
    assert len(digests.pop()) == 128
