"""A partial is read exactly as its rank wrote it, for the block and run it names, or not at all."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.errors import IntegrityError
from schemas.partials import (
    BlockKey,
    list_partials,
    rank_folder,
    read_partial,
    skipped_of,
    tally_of,
)
from schemas.seals import TEMPORARY_PREFIX, seal_file
from schemas.tables import SKIPPED_STATUSES, STATUS_SCORED, partial_schema
from tests.made_partials import (
    FEATURES,
    KEY,
    ROWS,
    RUN_ID,
    SMALL,
    forged,
    read,
    table_of,
    written,
)


@settings(max_examples=30)
@given(rows=ROWS)
def test_a_partial_round_trips(rows: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> None:
    """What a rank wrote is what is read, and is found by listing the run."""
    run = tmp_path_factory.mktemp("run")

    partial = written(rank_folder(run, 3), rows)
    table, seal = read_partial(partial, run_id=RUN_ID, features=FEATURES)

    assert table.to_pylist() == table_of(rows).to_pylist()
    assert table.schema.equals(partial_schema(FEATURES))
    assert seal == seal_file(partial.path)
    assert seal.xxh3_128 == partial.digest
    assert list_partials(run) == [partial]


@settings(max_examples=30)
@given(rows=ROWS)
def test_equal_rows_give_an_equal_file(rows: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> None:
    """A block scored twice gives one file name and the same bytes, so that duplicates are recognised."""
    first = written(tmp_path_factory.mktemp("run"), rows)

    second = written(tmp_path_factory.mktemp("run"), rows)

    assert first.path.name == second.path.name
    assert first.path.read_bytes() == second.path.read_bytes()


@given(rows=ROWS)
def test_the_tally_of_a_partial_is_exact(rows: list[dict[str, Any]]) -> None:
    """Losses and counts of the scored rows add without rounding; skipped rows add nothing but their reason."""
    table = table_of(rows)
    scored = [item for item in rows if item["status"] == STATUS_SCORED]

    tally, skipped = tally_of(table), skipped_of(table)

    assert Fraction(tally.loss_nats.units, 2**1074) == sum(Fraction(item["loss_nats"]) for item in scored)
    assert tally.num_tokens == sum(item["num_tokens"] for item in scored)
    assert (tally.num_words, tally.num_bytes, tally.num_records) == (2 * len(scored), 9 * len(scored), len(scored))
    assert list(skipped) == list(SKIPPED_STATUSES)
    assert sum(skipped.values()) + tally.num_records == len(rows)


def test_any_changed_byte_is_refused(tmp_path: Path) -> None:
    """One other byte anywhere in the file, and it is not read."""
    partial = written(tmp_path)
    content = partial.path.read_bytes()

    for place in range(len(content)):
        damaged = bytearray(content)
        damaged[place] ^= 1 + place % 255
        partial.path.write_bytes(damaged)
        with pytest.raises(IntegrityError, match="content does not match the digest in its name"):
            read(partial)


def test_any_truncation_is_refused(tmp_path: Path) -> None:
    """A file cut at any byte, or grown by one, is not read."""
    partial = written(tmp_path)
    content = partial.path.read_bytes()

    for damaged in (*(content[:length] for length in range(len(content))), content + b"\0"):
        partial.path.write_bytes(damaged)
        with pytest.raises(IntegrityError, match="content does not match the digest in its name"):
            read(partial)


def test_damage_under_a_fitting_name_is_one_error_line(tmp_path: Path) -> None:
    """Bytes that name themselves rightly but are no sound Parquet are refused, without the parser's words."""
    content = written(tmp_path).path.read_bytes()
    chance = random.Random(7)

    for place in range(0, len(content), 3):
        damaged = bytearray(content)
        damaged[place] ^= chance.randrange(1, 256)
        partial = forged(tmp_path, bytes(damaged))
        try:
            table = read(partial)
        except IntegrityError as error:
            assert str(error).startswith(f"{partial.path.parts[-3]}/")  # noqa: PT017 - either outcome is right
            assert error.__suppress_context__ or error.__context__ is None  # noqa: PT017
        else:
            assert table.schema.equals(partial_schema(FEATURES))
        partial.path.unlink()


# --- foreign, swapped and repeated files


def test_a_foreign_run_is_refused(tmp_path: Path) -> None:
    """A partial of another run is never reused."""
    partial = written(tmp_path)

    with pytest.raises(IntegrityError, match="belongs to another run than r-ffffffffffffffff"):
        read(partial, run_id="r-ffffffffffffffff")


@pytest.mark.parametrize("key", [BlockKey(KEY.shard_id, 8), BlockKey("d-0123456789ab-00004", 7)])
def test_a_renamed_block_is_refused(key: BlockKey, tmp_path: Path) -> None:
    """A partial under another block's name, of this shard or a sibling, is found by what the file itself says."""
    run = tmp_path / "run"
    partial = written(rank_folder(run, 0))
    partial.path.rename(partial.path.with_name(partial.path.name.replace(str(KEY), str(key))))

    [listed] = list_partials(run)

    assert listed.key == key
    with pytest.raises(IntegrityError, match="holds another block than its name says"):
        read(listed)


def test_a_partial_without_its_labels_is_refused(tmp_path: Path) -> None:
    """A table that was not written as a partial has no run and block, so it is nobody's."""
    path = tmp_path / "x.parquet"
    pq.write_table(table_of(SMALL), path)

    with pytest.raises(IntegrityError, match="belongs to another run"):
        read(forged(tmp_path, path.read_bytes()))


def test_a_block_scored_by_two_ranks_is_listed_twice(tmp_path: Path) -> None:
    """Listing hides nothing: who pools must decide, and can, since equal work has an equal name."""
    first, second = (written(rank_folder(tmp_path, rank)) for rank in (0, 1))

    listed = list_partials(tmp_path)

    assert listed == sorted([first, second], key=lambda partial: partial.path.name)
    assert {partial.key for partial in listed} == {KEY}
    assert first.digest == second.digest


@settings(max_examples=15)  # each example is six flushed files
@given(order=st.permutations(range(6)))
def test_listing_is_in_block_order(order: list[int], tmp_path_factory: pytest.TempPathFactory) -> None:
    """Whichever rank wrote what and when, partials are listed by shard and block."""
    run = tmp_path_factory.mktemp("run")
    keys = [BlockKey(f"d-0123456789ab-{number // 3:05d}", number % 3) for number in range(6)]
    for number in order:
        written(rank_folder(run, order[number] % 2), key=keys[number])

    listed = list_partials(run)

    assert [partial.key for partial in listed] == keys == sorted(keys)


def test_a_run_without_partials_is_empty(tmp_path: Path) -> None:
    """A run that just began has none, and that is no error."""
    assert list_partials(tmp_path) == []
    rank_folder(tmp_path, 0).mkdir(parents=True)
    assert list_partials(tmp_path) == []


def test_what_a_killed_rank_left_is_no_partial(tmp_path: Path) -> None:
    """An unfinished file beside the partials does not stop the resume that replaces it."""
    partial = written(rank_folder(tmp_path, 0))
    (rank_folder(tmp_path, 0) / f"{TEMPORARY_PREFIX}4711-0badcafe").write_bytes(b"half")

    assert list_partials(tmp_path) == [partial]


@pytest.mark.parametrize(
    "name",
    [
        "notes.txt",
        f"{KEY}.parquet",
        f"{KEY}.{'0' * 31}.parquet",
        f"{KEY}.{'A' * 32}.parquet",
        f"{KEY}.{'0' * 32}.parquet.bak",
        f"x{KEY}.{'0' * 32}.parquet",
        f"{KEY}.{'0' * 32}.parquet\n",
    ],
)
def test_a_stranger_among_the_partials_is_named(name: str, tmp_path: Path) -> None:
    """Nothing is skipped silently: a file that is no partial stops the reader."""
    folder = rank_folder(tmp_path, 0)
    folder.mkdir(parents=True)
    (folder / name).write_bytes(b"")

    with pytest.raises(IntegrityError, match="does not belong among the partials; remove it"):
        list_partials(tmp_path)


@pytest.mark.parametrize("make", [Path.mkdir, Path.touch])
@pytest.mark.parametrize("name", ["rank-3", "rank-000003", "other", "rank-00003x"])
def test_a_stranger_among_the_ranks_is_named(name: str, make: Callable[[Path], None], tmp_path: Path) -> None:
    """The same holds one folder up."""
    (tmp_path / "partials").mkdir()
    make(tmp_path / "partials" / name)

    with pytest.raises(IntegrityError, match="does not belong"):
        list_partials(tmp_path)


def test_a_folder_named_like_a_partial_is_named(tmp_path: Path) -> None:
    """A folder under a partial's name is no partial."""
    partial = written(rank_folder(tmp_path, 0))
    partial.path.unlink()
    partial.path.mkdir()

    with pytest.raises(IntegrityError, match="does not belong"):
        list_partials(tmp_path)


def test_another_tables_copy_is_another_file(tmp_path: Path) -> None:
    """Copying a partial into another rank's folder keeps it valid: blocks, not ranks, own results."""
    partial = written(rank_folder(tmp_path, 0))
    rank_folder(tmp_path, 9).mkdir()
    shutil.move(partial.path, rank_folder(tmp_path, 9) / partial.path.name)

    [moved] = list_partials(tmp_path)

    assert read(moved).num_rows == len(SMALL)
