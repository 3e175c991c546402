"""The engine: a record's loss has the same bits whatever it is scored with, and no record is lost on the way."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from schemas.partials import BlockKey
from schemas.tables import STATUS_NO_SCORED_TOKENS, STATUS_NO_TOKENS, STATUS_NON_FINITE, STATUS_SCORED
from scoring.engine import MAX_OPEN_BLOCKS, RecordResult, score_blocks
from scoring.method import Lane, Method, Windowing
from scoring.recall import Recall
from scoring.sequences import Remembered
from scoring.session import Session
from scoring.tiles import Row, make_menu
from tests.models import MODEL_KINDS, SENTENCES
from tests.sessions import encoded, encoder_of, key_of, score, score_texts, scoring

ModelOf = Callable[[str], Path]
NOTES = [SENTENCES[at % 6][at % 5 : 20 + 7 * at] for at in range(12)] + [" ".join(SENTENCES), "", "a", SENTENCES[0]]
SETTINGS = {"max_length": 48, "stride": 30, "tile_tokens": 192}


def uniform(length: int, rows: Sequence[Row]) -> list[NDArray[np.float64]]:
    """A tile of a model that holds eight tokens equally likely."""
    assert all(0 < len(row.inputs) <= length for row in rows)
    return [np.full(len(row.targets), math.log(8)) for row in rows]


@pytest.fixture(scope="module")
def llama(tiny_llama: Path) -> Iterator[Session]:
    """An open fp32 session with short windows and small tiles."""
    with scoring(tiny_llama, **SETTINGS) as session:
        yield session


@pytest.fixture(scope="module")
def expected(llama: Session) -> list[RecordResult]:
    """Every note scored in a block of its own, which no other note shares."""
    return [score(llama, [[text]])[0][0] for text in NOTES]


@settings(max_examples=25)
@given(
    order=st.permutations(range(len(NOTES))), cuts=st.lists(st.integers(0, len(NOTES)), max_size=5), turn=st.randoms()
)
def test_bits_do_not_depend_on_company(
    order: list[int], cuts: list[int], turn: Any, llama: Session, expected: list[RecordResult]
) -> None:
    """Any order of records, cut into blocks anywhere, fed in any order, gives each record the result it has alone."""
    edges = [0, *sorted(cuts), len(NOTES)]
    shares = [order[start:stop] for start, stop in pairwise(edges)]
    feeding = list(range(len(shares)))
    turn.shuffle(feeding)

    blocks = score(llama, [[NOTES[at] for at in share] for share in shares], feeding)

    assert blocks == [[expected[at] for at in share] for share in shares]


@settings(max_examples=15)
@given(neighbours=st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=80), max_size=12))
def test_bits_do_not_depend_on_neighbours(neighbours: list[str], llama: Session, expected: list[RecordResult]) -> None:
    """Strangers of any text before, between and after change nothing of a record."""
    half = len(neighbours) // 2

    results = score_texts(llama, [*neighbours[:half], *NOTES, *neighbours[half:]])

    assert results[half : half + len(NOTES)] == expected


@pytest.mark.parametrize("kind", sorted(MODEL_KINDS))
def test_bits_do_not_depend_on_company_for_any_shape(kind: str, model_of: ModelOf) -> None:
    """Alone, all together, in reverse, and in blocks of three: equal results for each kind of model."""
    with scoring(model_of(kind), **SETTINGS) as session:
        alone = [score_texts(session, [text])[0] for text in NOTES]

        together = score_texts(session, NOTES)
        backwards = score_texts(session, NOTES[::-1])[::-1]
        threes = score(session, [NOTES[start : start + 3] for start in range(0, len(NOTES), 3)], [4, 2, 0, 5, 1, 3])

    assert together == alone
    assert backwards == alone
    assert [result for block in threes for result in block] == alone


@pytest.mark.parametrize("precision", ["mixed", "bf16"])
def test_bits_do_not_depend_on_company_in_lower_precision(precision: str, tiny_llama: Path) -> None:
    """The same holds where rounding is coarse."""
    with scoring(tiny_llama, precision=precision, **SETTINGS) as session:
        alone = [score_texts(session, [text])[0] for text in NOTES]

        together = score_texts(session, NOTES)
        backwards = score_texts(session, NOTES[::-1])[::-1]

    assert together == alone
    assert backwards == alone


def test_equal_texts_have_equal_losses(llama: Session) -> None:
    """One note many times, among others, has one result."""
    results = score_texts(llama, [SENTENCES[1], *SENTENCES, *[SENTENCES[1]] * 20])

    assert len({results[0], results[2], *results[7:]}) == 1


def test_counts_are_those_of_the_text(llama: Session) -> None:
    """Words, bytes and windows of a record stand beside its loss."""
    result = score_texts(llama, ["one two\n three"])[0]

    assert (result.status, result.num_words, result.num_bytes, result.num_windows) == (STATUS_SCORED, 3, 14, 1)


@given(
    lengths=st.lists(st.integers(0, 300), max_size=8),
    max_length=st.integers(2, 40),
    data=st.data(),
    prefix=st.sampled_from(["auto", "none"]),
)
def test_a_uniform_model_costs_the_same_for_every_token(
    lengths: list[int], max_length: int, data: st.DataObject, prefix: Any, tiny_llama: Path
) -> None:
    """T tokens cost T·ln 8 with a prefix and (T-1)·ln 8 without: numerator and denominator cover the same tokens."""
    stride = data.draw(st.integers(1, max_length))
    encoder = encoder_of(tiny_llama, prefix)
    texts = ["~" * length for length in lengths]  # each "~" is one token

    [(_, results)] = score_blocks(
        encoded(encoder, [(key_of(0), texts)]),
        Method(Windowing(max_length, stride), (Lane(make_menu(max_length, tokens=128, one_row=False), uniform),)),
    )

    scored = [max(length - (prefix == "none"), 0) for length in lengths]
    assert [result.num_tokens for result in results] == scored
    for result, number in zip(results, scored, strict=True):
        assert result.loss_nats == (pytest.approx(number * math.log(8), rel=1e-15 * number) if number else None)


def test_a_note_without_tokens_is_skipped_with_its_reason(llama: Session, tiny_llama: Path) -> None:
    """No text is no token; one token without a prefix is no scored token; neither has a loss or a count."""
    with scoring(tiny_llama, prefix="none") as bare:
        single = score_texts(bare, ["a"])[0]

    empty = score_texts(llama, [""])[0]

    assert empty == RecordResult(STATUS_NO_TOKENS, None, 0, 0, 0, empty.num_windows)
    assert single == RecordResult(STATUS_NO_SCORED_TOKENS, None, 0, 0, 0, 0)


def test_a_block_without_records_comes_back(llama: Session) -> None:
    """An empty block is a block."""
    assert score(llama, [[], ["a"], []])[::2] == [[], []]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_one_bad_loss_is_enough(bad: float, tiny_llama: Path) -> None:
    """A single loss that is not finite, in any window of a record, quarantines it."""

    def compute(length: int, rows: Sequence[Row]) -> list[NDArray[np.float64]]:
        losses = uniform(length, rows)
        for row, own in zip(rows, losses, strict=True):
            if row.num_context:
                own[-1] = bad
        return losses

    [(_, results)] = score_blocks(
        encoded(encoder_of(tiny_llama), [(key_of(0), ["a" * 9, "b" * 30, "c" * 9])]),
        Method(Windowing(16, 8), (Lane(make_menu(16, tokens=64, one_row=False), compute),)),
    )

    assert [result.status for result in results] == [STATUS_SCORED, STATUS_NON_FINITE, STATUS_SCORED]


def test_open_blocks_are_bounded(tiny_llama: Path) -> None:
    """When tiles never fill, blocks are still handed out: at most MAX_OPEN_BLOCKS and the one at hand are held."""
    num_blocks, waiting, most = 100, 0, 0

    def fed() -> Iterator[tuple[BlockKey, list[str]]]:
        nonlocal waiting, most
        for index in range(num_blocks):
            waiting += 1
            most = max(most, waiting)
            yield key_of(index), ["a" * (1 + index % 50)]

    found = []
    for key, results in score_blocks(
        encoded(encoder_of(tiny_llama), fed()),
        Method(Windowing(64, 64), (Lane(make_menu(64, tokens=1 << 20, one_row=False), uniform),)),
    ):
        waiting -= 1
        found.append((key, [result.num_tokens for result in results]))

    assert sorted(found) == [(key_of(index), [1 + index % 50]) for index in range(num_blocks)]
    assert most == MAX_OPEN_BLOCKS + 1


@settings(max_examples=15)
@given(picks=st.lists(st.integers(0, len(NOTES) - 1), max_size=40), cuts=st.lists(st.integers(0, 40), max_size=4))
def test_bits_do_not_depend_on_what_is_remembered(
    picks: list[int], cuts: list[int], llama: Session, expected: list[RecordResult]
) -> None:
    """Notes that repeat within and across blocks have the results they have alone, however little is remembered."""
    edges = sorted({0, *(min(cut, len(picks)) for cut in cuts), len(picks)})
    shares = [picks[start:stop] for start, stop in pairwise(edges)] or [[]]

    for memory in (None, Recall(), Recall(Remembered(max_remembered=2))):
        blocks = score(llama, [[NOTES[at] for at in share] for share in shares], memory=memory)

        assert blocks == [[expected[at] for at in share] for share in shares]


def test_equal_notes_are_computed_once(llama: Session) -> None:
    """Of three distinct notes in forty records only three are computed, and the others are counted as repeated."""
    rows: list[Row] = []

    def counted(length: int, tile: Sequence[Row]) -> list[NDArray[np.float64]]:
        rows.extend(tile)
        return llama.lanes[0].compute(length, tile)

    recall, texts = Recall(), ([SENTENCES[0], SENTENCES[1], "a"] * 14)[:40]
    blocks = [(key_of(index), texts[index * 8 : index * 8 + 8]) for index in range(5)]

    results = dict(
        score_blocks(
            encoded(llama.encoder, blocks),
            Method(llama.windowing, (Lane(llama.lanes[0].menu, counted),)),
            memory=recall,
        )
    )

    assert len(rows) == sum(result.num_windows for result in results[key_of(0)][:3])
    assert recall.num_repeated == 37
    assert sum(len(block) for block in results.values()) == 40


def test_departments_share_nothing(llama: Session) -> None:
    """An equal note of another department is computed anew: that it is equal would tell of the other's notes."""
    recall = Recall()
    blocks = [(BlockKey(f"d-00000000000{number}-00000", 0), [SENTENCES[0]]) for number in range(3)]

    found = dict(score_blocks(encoded(llama.encoder, blocks), llama.method, memory=recall))

    assert recall.num_repeated == 0
    assert len({tuple(results) for results in found.values()}) == 1
