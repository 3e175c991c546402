"""Runs with the notes of encounters as context: builds that have them in order, and the same bits from any launch."""

from __future__ import annotations

import functools
import shutil
from collections import defaultdict
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.documents import read_document
from schemas.errors import UsageError
from schemas.folders import Build, open_build
from schemas.manifests import WITH_CONTEXT, BuildManifest, RunHeader
from schemas.partials import list_partials, read_partial
from schemas.shard_files import read_shard
from scoring.assignment import RankIdentity, blocks_of
from scoring.blocks import read_blocks
from scoring.cli import cli
from scoring.context import require_encounters
from scoring.run import run_rank
from scoring.status import read_statuses
from tests.builds import COLUMNS, build, write_rows
from tests.commands import run_command
from tests.launches import arguments_of, assert_same, complete, partial_names, score_here, settings_of
from tests.made_runs import MadeBuild, MadeRecord, make_build, report_of
from tests.models import SENTENCES
from tests.ranks import run_ranks
from tests.reference import encounter_losses

SETTINGS: dict[str, Any] = {"max_length": 64, "tile_tokens": 256}
WITH: dict[str, Any] = {**SETTINGS, "context": "encounter"}
# Shards of made builds have four records in blocks of two, so the first encounter is too large for a block.
ENCOUNTERS = {"a": "1111 2333 .44. 5566", "b": "1122 7777"}


def records(ward: str, encounters: str) -> list[MadeRecord]:
    """Synthetic notes of a department with their encounters, in the order of time."""
    names = encounters.replace(" ", "")
    return [
        MadeRecord(
            f"{ward}{at}",
            department=ward,
            encounter=None if name == "." else name,
            text=SENTENCES[(at * 5 + len(ward)) % 6][: 10 + 9 * (at % 5)],
        )
        for at, name in enumerate(names)
    ]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> MadeBuild:
    """A build of 24 notes of two departments, which have one encounter in common; read only."""
    notes = [record for ward, names in ENCOUNTERS.items() for record in records(ward, names)]
    return make_build(tmp_path_factory.mktemp("corpus"), notes, group="encounter")


@pytest.fixture(scope="module")
def alone(made: MadeBuild, tiny_llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of one process; read only."""
    run = tmp_path_factory.mktemp("alone") / "run"
    score_here(made.corpus, run, tiny_llama, **WITH)
    return run


def rows_of(run: Path, features: list[str]) -> dict[bytes, dict[str, Any]]:
    """Every row of a run in the clear by its record."""
    found = {}
    for partial in list_partials(run):
        table, _ = read_partial(partial, run_id=complete(run).run_id, features=features)
        found |= {row["record_id"]: row for row in table.to_pylist()}
    return found


def told_of(opened: Build) -> dict[bytes, list[str]]:
    """Of each record of a build the notes of its encounter in its department up to it, in the order of its shard."""
    found: dict[bytes, list[str]] = {}
    for shard in opened.manifest.shards:
        written: dict[bytes, list[str]] = defaultdict(list)
        for row in read_shard(opened, shard).to_pylist():
            notes = written[row["encounter_id"] or row["record_id"]]
            notes.append(row["text"])
            found[row["record_id"]] = list(notes)
    return found


def assert_reference(run: Path, opened: Build, model: Path, **windowing: int) -> None:
    """Each record has the loss of a plain loop over what the build holds before it, and the reference's tokens."""
    told, rows = told_of(opened), rows_of(run, opened.manifest.features)
    assert rows.keys() == told.keys()
    for record_id, row in rows.items():
        losses = encounter_losses(model, told[record_id], **windowing)
        assert (row["status"], row["num_tokens"]) == ("scored", len(losses))
        assert row["loss_nats"] == pytest.approx(sum(losses), rel=1e-6)


def test_a_run_has_the_losses_of_the_reference(made: MadeBuild, alone: Path, tiny_llama: Path) -> None:
    """Over blocks and shards of two departments, each record is scored behind the earlier notes of its encounter."""
    told = told_of(open_build(made.corpus))

    assert max(map(len, told.values())) == 4
    assert_reference(alone, open_build(made.corpus), tiny_llama, max_length=64, stride=64)


def test_counts_are_those_without_context(made: MadeBuild, alone: Path, tiny_llama: Path, tmp_path: Path) -> None:
    """Records, tokens, words and bytes are equal, the loss is not, and the two runs have two ids."""
    score_here(made.corpus, tmp_path / "run", tiny_llama, **SETTINGS)

    behind, without = complete(alone), complete(tmp_path / "run")

    assert but_for_loss(behind) == but_for_loss(without)
    assert behind.totals.loss_nats != without.totals.loss_nats
    assert behind.run_id != without.run_id


def but_for_loss(run: Any) -> Any:
    """The totals of a run but for its loss."""
    return run.totals.model_copy(update={"loss_nats": {}})


def score_as_rank(identity: RankIdentity, *, corpus: Path, run: Path, model: Path) -> int:
    """One rank of a run with context; gives the number of records that the whole run scored."""
    return run_rank(corpus, run, settings_of(model, **WITH), identity=identity).totals.num_records


@pytest.mark.slow
def test_any_number_of_ranks_gives_the_same_run(made: MadeBuild, alone: Path, tiny_llama: Path, tmp_path: Path) -> None:
    """Three ranks, which have blocks of one encounter between them, leave the partials of one."""
    body = functools.partial(score_as_rank, corpus=made.corpus, run=tmp_path / "run", model=tiny_llama)

    outcomes = run_ranks(body, 3)

    assert [(outcome.value, outcome.message) for outcome in outcomes.values()] == [(24, "")] * 3
    assert_same(tmp_path / "run", alone)


def test_dedup_cache_and_resume_change_nothing(made: MadeBuild, alone: Path, tiny_llama: Path, tmp_path: Path) -> None:
    """Without dedup, from a cache, and for one block that is missing: the same partials, byte for byte."""
    cache, torn = tmp_path / "cache", shutil.copytree(alone, tmp_path / "torn")
    (torn / "COMPLETE").unlink()
    list_partials(torn)[1].path.unlink()

    score_here(made.corpus, torn, tiny_llama, **WITH)
    for name, more in (("plain", {"dedup": False}), ("first", {"cache": cache}), ("second", {"cache": cache})):
        score_here(made.corpus, tmp_path / name, tiny_llama, **WITH, **more)

    [second] = read_statuses(tmp_path / "second")
    for name in ("torn", "plain", "first", "second"):
        assert sorted(partial_names(tmp_path / name)) == sorted(partial_names(alone))
    assert second.num_cached + second.num_repeated == 24
    assert second.num_tokens == 0


def test_bands_and_their_check_go_by_the_record_alone(made: MadeBuild, tiny_llama: Path, tmp_path: Path) -> None:
    """Records have the precisions that they have without context, which is what each partial is verified by."""
    bands = {"precision": "fp32:16,bf16", "precision_check": 1.0, "max_drift": 1.0}
    for name, base in (("behind", WITH), ("without", SETTINGS)):
        score_here(made.corpus, tmp_path / name, tiny_llama, **base, **bands)

    behind, without = (rows_of(tmp_path / name, []) for name in ("behind", "without"))

    assert {row["precision"] for row in behind.values()} == {"fp32", "bf16"}
    for record_id, row in behind.items():
        assert row["precision"] == without[record_id]["precision"]
        assert (row["check_loss_nats"] is None) == (row["precision"] == "fp32")


@settings(max_examples=12)
@given(
    names=st.text("12", min_size=1, max_size=12).map(sorted),
    blanks=st.sets(st.integers(0, 11)),
    num_enough=st.integers(0, 9),
)
def test_a_block_comes_with_what_earlier_blocks_hold_of_its_encounter(
    names: list[str], blanks: set[int], num_enough: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The nearest notes before it that are of its first record's encounter: all, or as many as are enough."""
    notes = records("a", "".join("." if at in blanks else name for at, name in enumerate(names)))
    made = make_build(tmp_path_factory.mktemp("corpus"), notes, group="encounter", shard_blocks=6)
    opened, broken = open_build(made.corpus), dict[str, str]()

    keys = sorted(blocks_of(opened.manifest))
    blocks = list(read_blocks(opened, keys, broken=broken, is_enough=lambda texts: len(texts) >= num_enough))

    assert not broken
    for number, block in enumerate(blocks):
        first, before = notes[number * 2], reversed(notes[: number * 2])
        same = takewhile(lambda note, first=first: note.encounter == first.encounter, before)
        whole = [note.note for note in same][::-1] if first.encounter else []
        num_told = len(block.earlier)
        assert list(block.earlier) == whole[len(whole) - num_told :]
        assert min(len(whole), num_enough) <= num_told <= max(0, num_enough + 1)  # blocks of two are read whole
        assert num_enough or not num_told


@pytest.mark.parametrize("is_finished", [True, False])
def test_a_run_keeps_its_context(
    is_finished: bool,
    alone: Path,
    made: MadeBuild,
    tiny_llama: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A folder of a run with context takes none without: exit 2, and the setting is named."""
    run = shutil.copytree(alone, tmp_path / "run")
    if not is_finished:
        (run / "COMPLETE").unlink()

    outcome = run_command(cli, arguments_of(made.corpus, run, tiny_llama, **SETTINGS), capsys)

    assert outcome.code == 2
    assert "context" in outcome.err
    assert "use another --out" in outcome.err


def test_context_is_told_wherever_figures_are(
    alone: Path, made: MadeBuild, tiny_llama: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Summary and report are marked, and the fingerprint holds the setting and the ids between notes."""
    outcome = run_command(cli, arguments_of(made.corpus, alone, tiny_llama, **WITH), capsys)

    report = report_of(made, alone)
    fingerprint = read_document(alone / "run.json", RunHeader).fingerprint
    assert f"! {WITH_CONTEXT}" in outcome.out
    assert WITH_CONTEXT in report.marks
    assert report.fingerprint["compute"]["context"] == fingerprint["compute"]["context"] == "encounter"
    assert len(fingerprint["tokenizer"]["note_separator_ids"]) == 1


@pytest.mark.parametrize(
    ("config", "found"),
    [
        ({}, "was made with --group none"),
        ({"group": "none", "source": "mimic4", "columns": {}}, "was made with --group none"),
        ({"group": "patient", "columns": {"time": "t"}}, "was made with --group patient"),
        ({"group": "encounter", "source": "table", "columns": {"time": None}}, "was made without --time"),
    ],
)
def test_builds_without_encounters_in_order_are_refused(config: dict[str, Any], found: str, made: MadeBuild) -> None:
    """A build whose notes of an encounter are elsewhere, or in no order, is refused with the cure."""
    manifest: BuildManifest = made.manifest.model_copy(update={"config": config})

    with pytest.raises(UsageError, match=rf"{found}.*build it again with --group encounter and --time, or leave out"):
        require_encounters(manifest)


def test_families_of_files_have_times_of_their_own(made: MadeBuild) -> None:
    """An export needs no column of time, since its adapter knows which one it is."""
    require_encounters(made.manifest.model_copy(update={"config": {"group": "encounter", "source": "fhir"}}))


def test_a_refused_build_leaves_no_run(tmp_path: Path, tiny_llama: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Before the model is loaded, with exit 2 and one line."""
    plain = make_build(tmp_path / "corpus", [MadeRecord("a"), MadeRecord("b")])

    outcome = run_command(cli, arguments_of(plain.corpus, tmp_path / "run", tiny_llama, **WITH), capsys)

    assert outcome.code == 2
    assert "was made with --group none" in outcome.err
    assert not (tmp_path / "run").exists()


def test_a_build_by_encounters_is_scored_in_the_order_of_time(scheduler: str, tiny_llama: Path, tmp_path: Path) -> None:
    """From rows in no order: each note has the loss of the reference behind the notes of its encounter before it."""
    header = ("note_id", "note", "dept", "mrn", "stay", "written")
    rows = [
        (
            f"n{at}",
            f"{SENTENCES[at % 6][: 20 + 3 * at]} {at}",
            "Cardiology" if at % 7 else "Oncology",
            f"p{at % 2}",
            None if at in (3, 8) else f"e{at % 4 // 2}",
            f"2020-01-{(at * 11) % 28 + 1:02d}T08:00:00",
        )
        for at in range(18)
    ]
    source = write_rows(tmp_path / "notes.csv", rows, header)
    columns = {**COLUMNS, "encounter": "stay", "time": "written"}
    opened = build(
        [source],
        tmp_path / "corpus",
        scheduler,
        columns=columns,
        group="encounter",
        block_tokens=40,
        target_tokens=4000,
    )
    earlier = {
        text: [other[1] for other in sorted(rows, key=lambda row: row[5] or "") if other[2:5:2] == (dept, stay)]
        for _, text, dept, _, stay, _ in rows
        if stay
    }

    score_here(tmp_path / "corpus", tmp_path / "run", tiny_llama, **WITH)

    told = told_of(opened)
    assert max(len(shard.blocks) for shard in opened.manifest.shards) > 3
    for notes in told.values():
        whole = earlier.get(notes[-1], [notes[-1]])
        assert notes == whole[: whole.index(notes[-1]) + 1]
    assert_reference(tmp_path / "run", opened, tiny_llama, max_length=64, stride=64)
