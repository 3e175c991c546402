"""Ids are keyed, domain-separated, unambiguous and the same on every machine."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import IntegrityError, UsageError
from sharding.identity import DEPARTMENT, PATIENT, RECORD, RecordKey, load_key, make_key

KEY = RecordKey(bytes(range(32)))
PARTS = st.lists(st.none() | st.binary(max_size=4), max_size=4)


@given(PARTS, PARTS)
def test_different_parts_have_different_ids(one: list[bytes | None], two: list[bytes | None]) -> None:
    """Concatenation is never ambiguous, and null is not the empty string."""
    same_id = KEY.digest(RECORD, one) == KEY.digest(RECORD, two)

    assert same_id == (one == two)


def test_concatenation_is_not_ambiguous() -> None:
    """("ab", "c") and ("a", "bc") are two records."""
    assert KEY.digest(RECORD, [b"ab", b"c"]) != KEY.digest(RECORD, [b"a", b"bc"])


def test_domains_and_keys_separate_ids() -> None:
    """One value has another id as a patient than as a record, and another under another key."""
    ids = {KEY.digest(domain, [b"1"]) for domain in (RECORD, PATIENT, DEPARTMENT)}
    ids.add(RecordKey(bytes(32)).digest(RECORD, [b"1"]))

    assert len(ids) == 4


def test_hashes_do_not_move() -> None:
    """Golden values: ids and placement hashes are the same on every platform and in every release."""
    assert xxhash.xxh3_64_hexdigest(b"abc") == "78af5f94892f3950"
    assert xxhash.xxh3_128_hexdigest(b"abc") == "06b05ab6733a618578af5f94892f3950"
    assert KEY.digest(RECORD, [b"1"]).hex() == "cc92bf1e142a5426a46e773a86e71df0"
    assert KEY.department_code("Cardiology") == "d-6fa712d80e7c"


@pytest.mark.parametrize(
    ("one", "two"),
    [("001", "1"), (None, ""), ("OB/GYN", "ob/gyn"), ("科室", "__HIVE_DEFAULT_PARTITION__"), ("..", "a=b")],
)
def test_department_codes_are_opaque_and_distinct(one: str | None, two: str | None) -> None:
    """Names that file systems or parsers would confuse have codes of their own, which show nothing of them."""
    codes = [KEY.department_code(name) for name in (one, two)]

    assert codes[0] != codes[1]
    assert all(len(code) == 14 and code.startswith("d-") for code in codes)


def test_a_key_is_made_once_and_closed_to_others(tmp_path: Path) -> None:
    """The first build makes the key with mode 0600; later ones find it."""
    path = tmp_path / "secret" / "record-id.key"

    made = [make_key(path), make_key(path)]

    assert made == [True, False]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert len(load_key(path).secret) == 32
    assert [item.name for item in path.parent.iterdir()] == [path.name]


def test_a_key_never_shows(tmp_path: Path) -> None:
    """Neither a repr nor an error holds the key or the content of a file that is none."""
    path = tmp_path / "wrong.key"
    path.write_text("secret words")

    with pytest.raises(IntegrityError) as caught:
        load_key(path)

    assert "secret" not in str(caught.value)
    assert KEY.secret.hex() not in repr(KEY)
    assert repr(KEY.secret) not in repr(KEY)


def test_an_absent_key_file_is_a_usage_error(tmp_path: Path) -> None:
    """The message names the file and the flag."""
    with pytest.raises(UsageError, match="--record-key"):
        load_key(tmp_path / "no.key")
