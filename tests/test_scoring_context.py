"""Earlier notes of an encounter: they stand before a record, have their say, and are never scored with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.tables import STATUS_NO_SCORED_TOKENS, STATUS_SCORED
from scoring.blocks import Block
from scoring.context import EncounterContext, separator_ids
from scoring.engine import RecordResult, score_blocks
from scoring.recall import Recall
from scoring.sequences import Memory, Remembered
from scoring.session import Session
from scoring.tokens import Encoder
from tests.made_runs import digest16
from tests.models import SENTENCES, make_tokenizer
from tests.reference import encounter_losses
from tests.sessions import encoder_of, key_of, scoring

ModelOf = Callable[[str], Path]
Note = tuple[str | None, str]
SETTINGS = {"max_length": 48, "stride": 30, "tile_tokens": 192}
# Repeated across encounters, of no encounter, empty, of one token, longer than a window.
NOTES: list[Note] = [
    *(("one", text) for text in (SENTENCES[0][:30], "a", SENTENCES[1][:25], SENTENCES[0][:30], "")),
    *(("two", text) for text in (SENTENCES[0][:30], "a", SENTENCES[4][:12])),
    *((None, text) for text in (SENTENCES[0][:30], "a")),
    *(("three", text) for text in (" ".join(SENTENCES), SENTENCES[2][:20], "b")),
    *(("four", text) for text in ("x" * 46, "y", "z")),
]
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
# Encounters one after the other, as a build has them; None for notes without one.
shards = st.lists(st.tuples(st.booleans(), st.lists(texts, min_size=1, max_size=5)), max_size=4).map(
    lambda groups: [
        (str(number) if is_known else None, text) for number, (is_known, own) in enumerate(groups) for text in own
    ]
)


def earlier_notes(notes: Sequence[Note], at: int) -> list[str]:
    """What was written before a note in its encounter."""
    encounter = notes[at][0]
    return [] if encounter is None else [text for other, text in notes[:at] if other == encounter]


def blocks_of(notes: Sequence[Note], cuts: Sequence[int] = ()) -> list[Block]:
    """Blocks of a shard that is cut at some places, each with what an encounter has before it."""
    edges = [0, *sorted({cut % len(notes) for cut in cuts} - {0} if notes else ()), len(notes)]
    blocks = []
    for index, (start, stop) in enumerate(pairwise(edges)):
        own = notes[start:stop]
        encounters = [None if name is None else digest16(name) for name, _ in own]
        carried = pa.table({"encounter_id": pa.array(encounters, pa.binary(16))})
        earlier = earlier_notes(notes, start) if own else []
        blocks.append(Block(key_of(index), carried, [text for _, text in own], earlier))
    return blocks


def scored(
    session: Session, notes: Sequence[Note], cuts: Sequence[int] = (), *, memory: Memory | None = None, turn: Any = None
) -> list[RecordResult]:
    """Results of notes in their order, by blocks that are fed in any order."""
    assert session.context is not None
    blocks = blocks_of(notes, cuts)
    feeding = list(blocks)
    if turn is not None:
        turn.shuffle(feeding)
    fed = ((block.key, session.context.encode(block)) for block in feeding)
    found = dict(score_blocks(fed, session.method, memory=memory))
    return [result for block in blocks for result in found[block.key]]


@pytest.fixture(scope="module")
def llama(tiny_llama: Path) -> Iterator[Session]:
    """An open session with context, short windows and small tiles."""
    with scoring(tiny_llama, context="encounter", **SETTINGS) as session:
        yield session


@pytest.fixture(scope="module")
def expected(llama: Session) -> list[RecordResult]:
    """Every note scored alone behind the earlier ones of its encounter, which no other note shares."""
    alone = []
    for at, (encounter, text) in enumerate(NOTES):
        before = [(encounter, earlier) for earlier in earlier_notes(NOTES, at)]
        alone.append(scored(llama, [*before, (encounter, text)])[-1])
    return alone


@pytest.fixture(scope="module", params=["auto", "none"])
def encoder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Encoder:
    """An encoder with a prefix, and one without."""
    return encoder_of(make_tokenizer(tmp_path_factory.mktemp("tokenizer")), request.param)


@given(notes=shards, cuts=st.lists(st.integers(0, 20), max_size=4), max_length=st.integers(2, 60))
def test_before_a_record_stand_the_last_tokens_of_what_was_written_earlier(
    notes: list[Note], cuts: list[int], max_length: int, encoder: Encoder
) -> None:
    """One prefix, as many of the latest ids of earlier notes as the window has room for, and the record as it is."""
    context = EncounterContext(encoder, max_length)

    found = [record for block in blocks_of(notes, cuts) for record in context.encode(block)]

    bare = encoder.encode([text for _, text in notes])
    num_prefixes = 0 if encoder.prefix_id is None else 1
    for at, (behind, own) in enumerate(zip(found, bare, strict=True)):
        ids = [encoder.tokenizer.encode(text, add_special_tokens=False).ids for text in earlier_notes(notes, at)]
        told = [token for note in ids if note for token in (*note, *separator_ids(encoder))]
        room = max_length - (own.num_own - 1) if own.num_own > 1 else 0
        told = told[-room:] if room > 0 else []
        own_ids = own.positions.tolist()
        assert behind.positions.tolist() == [*own_ids[:num_prefixes], *told, *own_ids[num_prefixes:]]
        assert (behind.num_context, behind.num_own) == (len(told), own.num_own)
        counts = (behind.num_tokens, behind.num_words, behind.num_bytes)
        assert counts == (own.num_tokens, own.num_words, own.num_bytes)


@given(earlier=st.lists(texts, max_size=6), older=st.lists(texts, max_size=4), max_length=st.integers(2, 40))
def test_what_is_enough_leaves_no_say_to_older_notes(
    earlier: list[str], older: list[str], max_length: int, encoder: Encoder
) -> None:
    """Once the nearest notes fill a window, those before them change nothing."""
    context = EncounterContext(encoder, max_length)
    [block] = blocks_of([("one", "a note")])
    near, all_of_it = (Block(block.key, block.carried, block.texts, told) for told in (earlier, [*older, *earlier]))

    [one], [two] = context.encode(near), context.encode(all_of_it)

    if context.is_enough(earlier):
        assert one.positions.tolist() == two.positions.tolist()


@pytest.mark.parametrize("prefix", ["auto", "none"])
@pytest.mark.parametrize("kind", ["llama", "gpt2", "gemma2", "qwen2", "mixtral"])
def test_a_loss_is_that_of_the_model_behind_the_earlier_notes(kind: str, prefix: str, model_of: ModelOf) -> None:
    """Each record has the loss of a plain loop over prefix, context and record, and the reference's tokens."""
    with scoring(model_of(kind), context="encounter", prefix=prefix, **SETTINGS) as session:
        results = scored(session, NOTES, [2, 9])

    for at, (result, (_, text)) in enumerate(zip(results, NOTES, strict=True)):
        losses = encounter_losses(
            model_of(kind), [*earlier_notes(NOTES, at), text], prefix=prefix == "auto", max_length=48, stride=30
        )
        assert result.num_tokens == len(losses)
        assert result.loss_nats == (pytest.approx(sum(losses), rel=1e-6) if losses else None)


@settings(max_examples=15)
@given(notes=shards, max_length=st.integers(2, 40), data=st.data(), prefix=st.sampled_from(["auto", "none"]))
def test_any_windowing_scores_what_it_scores_without_context(
    notes: list[Note], max_length: int, data: st.DataObject, prefix: str, tiny_llama: Path
) -> None:
    """Status, tokens, words, bytes and windows are those without context; so are the bits where there is no room."""
    windowing = {"max_length": max_length, "stride": data.draw(st.integers(1, max_length)), "prefix": prefix}
    with scoring(tiny_llama, context="encounter", **windowing) as session:
        assert session.context is not None
        behind = scored(session, notes)
        records = [record for block in blocks_of(notes) for record in session.context.encode(block)]
        bare = session.encoder.encode([text for _, text in notes])
        [(_, without)] = score_blocks([(key_of(0), bare)], session.method)

    for one, two, record in zip(behind, without, records, strict=True):
        names = ("status", "num_tokens", "num_words", "num_bytes", "num_windows")
        assert [getattr(one, name) for name in names] == [getattr(two, name) for name in names]
        if not record.num_context:
            assert one == two


def test_context_has_a_say(llama: Session, expected: list[RecordResult]) -> None:
    """The same note has another loss behind other notes, and the first one of an encounter that of a note alone."""
    losses = [expected[at].loss_nats for at, (_, text) in enumerate(NOTES) if text == SENTENCES[0][:30]]

    assert losses[0] == losses[2] == losses[3] != losses[1]
    assert expected[6].loss_nats != expected[9].loss_nats  # "a" behind a note, and alone


@settings(max_examples=20)
@given(cuts=st.lists(st.integers(0, len(NOTES)), max_size=6), order=st.permutations(range(5)), turn=st.randoms())
def test_bits_do_not_depend_on_cuts_order_or_memory(
    cuts: list[int], order: list[int], turn: Any, llama: Session, expected: list[RecordResult]
) -> None:
    """Encounters in any order, cut into blocks anywhere, fed in any order, remembered or not: each its own result."""
    groups = [
        [at for at, (other, _) in enumerate(NOTES) if other == name] for name in ("one", "two", None, "three", "four")
    ]
    rows = [at for number in order for at in groups[number]]
    notes = [NOTES[at] for at in rows]

    for memory in (None, Recall(), Recall(Remembered(max_remembered=2))):
        assert scored(llama, notes, cuts, memory=memory, turn=turn) == [expected[at] for at in rows]


@settings(max_examples=15)
@given(before=st.lists(texts, max_size=4), after=st.lists(texts, max_size=4), later=st.lists(texts, max_size=3))
def test_other_encounters_and_later_notes_have_no_say(
    before: list[str], after: list[str], later: list[str], llama: Session, expected: list[RecordResult]
) -> None:
    """Strangers before and after, and whatever is written later in the encounter, change nothing of a note."""
    own = NOTES[:4]
    notes = [*(("before", text) for text in before), *own, *(("one", text) for text in later)]
    notes += [(None, text) for text in after]

    results = scored(llama, notes, memory=Recall())

    assert results[len(before) : len(before) + len(own)] == expected[: len(own)]


def test_equal_ids_of_another_context_are_another_sequence(llama: Session) -> None:
    """A note of two lines has the ids of two notes of a line each, and yet more of them are scored."""
    notes: list[Note] = [("one", "a"), ("one", "b"), (None, "a\nb")]
    assert llama.context is not None
    behind, whole = llama.context.encode(blocks_of(notes)[0])[1:]

    results = scored(llama, notes, memory=Recall())

    assert behind.positions.tolist() == whole.positions.tolist()
    assert [result.num_tokens for result in results] == [1, 1, 3]
    assert results == [
        scored(llama, [note for note in notes[: at + 1] if note[0] == notes[at][0]])[-1] for at in range(3)
    ]


def test_equal_notes_behind_equal_notes_are_computed_once(llama: Session) -> None:
    """Of two encounters with the same notes the second is recalled."""
    recall = Recall()
    notes = [(name, text) for name in ("one", "two") for text in SENTENCES[:3]]

    results = scored(llama, notes, memory=recall)

    assert recall.num_repeated == 3
    assert results[:3] == results[3:]


def test_a_single_token_without_a_prefix_stays_unscored(tiny_llama: Path) -> None:
    """There is something to predict it from, and yet what is scored is what is scored without context."""
    with scoring(tiny_llama, context="encounter", prefix="none") as session:
        results = scored(session, [("one", SENTENCES[0]), ("one", "a")])

    assert [result.status for result in results] == [STATUS_SCORED, STATUS_NO_SCORED_TOKENS]
    assert results[1].num_windows == 0


def test_precision_goes_by_the_record_alone(tiny_llama: Path) -> None:
    """A short note behind long ones is computed in the precision that it has without context."""
    notes = [("one", SENTENCES[0]), ("one", "a"), ("one", SENTENCES[1])]

    with scoring(tiny_llama, context="encounter", precision="fp32:8,bf16") as session:
        results = scored(session, notes)

    assert [result.precision for result in results] == ["bf16", "fp32", "bf16"]


def test_parts_of_a_loss_are_of_the_record_alone(tiny_llama: Path) -> None:
    """By class and position tokens are those without context, and losses add up to the record's, bit for bit."""
    with scoring(tiny_llama, context="encounter", token_classes=True, position_bands=(3, 9), **SETTINGS) as session:
        behind = scored(session, NOTES)
        bare = session.encoder.encode([text for _, text in NOTES])
        [(_, without)] = score_blocks([(key_of(0), bare)], session.method)

    for one, two in zip(behind, without, strict=True):
        assert [part.num_tokens for part in one.parts] == [part.num_tokens for part in two.parts]
        if one.parts:
            assert sum(part.loss_nats for part in one.parts[-3:]) == one.loss_nats
            assert sum(part.loss_nats for part in one.parts[:-3]) == one.loss_nats
    assert sum(bool(result.parts) for result in behind) == len(NOTES) - 1  # one note is empty
