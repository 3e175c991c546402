"""Runs that split losses: the same bits as runs that do not, however the parts were computed."""

from __future__ import annotations

import shutil
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aggregate.outputs import report_files
from aggregate.terminal import report_lines
from schemas.documents import read_document, write_document
from schemas.errors import IntegrityError, UsageError
from schemas.folders import open_build
from schemas.manifests import RunHeader, RunManifest
from schemas.partials import list_partials, read_partial
from schemas.parts import kind_of
from schemas.precision import policy_of
from schemas.report import PartFigures, Suppressed
from scoring.engine import RecordResult, score_blocks
from scoring.recall import Recall
from scoring.resume import take_over
from scoring.session import Session
from scoring.split import Split
from scoring.status import read_statuses
from scoring.token_classes import TokenClasses
from scoring.tokens import Encoded
from scoring.units import read_units
from tests.launches import assert_same, launch, notes, partial_names, score_here
from tests.made_runs import MadeBuild, MadeRecord, make_build, report_of
from tests.sessions import key_of, score, scoring

SETTINGS: dict[str, Any] = {"max_length": 64, "tile_tokens": 256}
TEXTS = ["Plan: 5 mg daily\nVITALS\nBP 120/80 mmHg", "no numbers here", "", "zebrafever 7", "Plan: 5 mg daily\n" * 30]


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> MadeBuild:
    """A build of notes with all classes, some of them twice; read only."""
    records = [MadeRecord(f"c{at}", text=text, department="ab"[at % 2]) for at, text in enumerate(TEXTS * 2)]
    return make_build(tmp_path_factory.mktemp("corpus"), [*notes(9, 2), *records])


@pytest.fixture(scope="module")
def lexicon(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lexicon of one made-up disease."""
    file = tmp_path_factory.mktemp("terms") / "terms.txt"
    file.write_text("zebrafever\n")
    return file


@pytest.fixture(scope="module")
def split_run(build: MadeBuild, lexicon: Path, tiny_llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that splits losses; read only."""
    run = tmp_path_factory.mktemp("run") / "split"
    score_here(build.corpus, run, tiny_llama, token_classes=True, lexicon=(str(lexicon),), **SETTINGS)
    return run


@pytest.fixture(scope="module")
def session(tiny_llama: Path) -> Any:
    """A session that splits losses into four bands."""
    with scoring(tiny_llama, token_classes=True, position_bands=(2, 8, 32), **SETTINGS) as opened:
        yield opened


def table_of(run: Path) -> pa.Table:
    """All rows of a run."""
    header = read_document(run / "run.json", RunHeader)
    tables = [
        read_partial(partial, run_id=header.run_id, features=[], parts=header.parts)[0]
        for partial in list_partials(run)
    ]
    return pa.concat_tables(tables)


def exact(loss: dict[str, Any]) -> Fraction:
    """An exact loss of a document as a number."""
    return int(loss["mantissa"]) * Fraction(2) ** loss["exponent"]


def test_losses_are_those_of_a_run_that_splits_none(
    build: MadeBuild, split_run: Path, tiny_llama: Path, tmp_path: Path
) -> None:
    """Every column of a plain run has the same bits; nothing else is there but the columns of the parts."""
    score_here(build.corpus, tmp_path / "plain", tiny_llama, **SETTINGS)

    plain, found = table_of(tmp_path / "plain"), table_of(split_run)

    assert found.select(plain.column_names).equals(plain)
    added = [name for name in found.column_names if name not in plain.column_names]
    assert {kind_of(name) for name in added} == {"class", "position"}
    assert read_document(tmp_path / "plain" / "run.json", RunHeader).fingerprint.keys() == (
        read_document(split_run / "run.json", RunHeader).fingerprint.keys() - {"split"}
    )


def test_records_whose_precision_is_checked_are_split_once(build: MadeBuild, tiny_llama: Path, tmp_path: Path) -> None:
    """In a reduced precision with a check the parts are of the record's own loss, and all columns are as without."""
    more = {"precision": "mixed", "precision_check": "100%", "on_drift": "fp32", **SETTINGS}
    score_here(build.corpus, tmp_path / "plain", tiny_llama, **more)

    score_here(build.corpus, tmp_path / "split", tiny_llama, token_classes=True, **more)

    plain, found = table_of(tmp_path / "plain"), table_of(tmp_path / "split")
    assert plain.column("check_loss_nats").null_count < len(plain)
    assert found.select(plain.column_names).equals(plain)


def test_totals_of_parts_add_up_to_the_runs(split_run: Path) -> None:
    """Over all ranks and blocks each kind of parts is the whole, exactly; each class of the notes is there."""
    totals = read_document(split_run / "COMPLETE", RunManifest).totals

    for kind in ("class", "position"):
        parts = {name: part for name, part in totals.parts.items() if kind_of(name) == kind}
        assert sum(part.num_tokens for part in parts.values()) == totals.num_tokens
        assert sum(exact(part.loss_nats) for part in parts.values()) == exact(totals.loss_nats)
    assert all(part.num_tokens for name, part in totals.parts.items() if kind_of(name) == "class")


@pytest.mark.parametrize("more", [{"dedup": False}, {"tile_rows": "1"}])
def test_parts_are_the_same_without_dedup(
    build: MadeBuild, split_run: Path, lexicon: Path, tiny_llama: Path, tmp_path: Path, more: dict[str, Any]
) -> None:
    """Computed once or each, the partials are the same files; in tiles of one row all is split as well."""
    score_here(
        build.corpus, tmp_path / "run", tiny_llama, token_classes=True, lexicon=(str(lexicon),), **SETTINGS, **more
    )

    if "dedup" in more:
        assert partial_names(tmp_path / "run") == partial_names(split_run)
    counts = [name for name in table_of(split_run).column_names if name.endswith("num_tokens")]
    assert table_of(tmp_path / "run").select(counts).equals(table_of(split_run).select(counts))


def test_the_cache_gives_parts_back_and_knows_runs_without_apart(
    build: MadeBuild, split_run: Path, lexicon: Path, tiny_llama: Path, tmp_path: Path
) -> None:
    """A second run computes nothing and has the same files; a run that splits none takes nothing from it."""
    given = {"token_classes": True, "lexicon": (str(lexicon),), "cache": tmp_path / "cache", **SETTINGS}
    score_here(build.corpus, tmp_path / "first", tiny_llama, **given)

    score_here(build.corpus, tmp_path / "second", tiny_llama, **given)
    score_here(build.corpus, tmp_path / "plain", tiny_llama, cache=tmp_path / "cache", **SETTINGS)

    assert partial_names(tmp_path / "second") == partial_names(tmp_path / "first") == partial_names(split_run)
    assert [status.num_tokens for status in read_statuses(tmp_path / "second")] == [0]
    assert [status.num_cached for status in read_statuses(tmp_path / "plain")] == [0]


def test_other_terms_make_another_run(
    build: MadeBuild, split_run: Path, lexicon: Path, tiny_llama: Path, tmp_path: Path
) -> None:
    """A finished run is this one only with the same lexicon; with another, or none, it is refused without the model."""
    other = tmp_path / "terms.txt"
    other.write_text("zebrafever\nunicorn\n")
    before = partial_names(split_run)

    again = score_here(build.corpus, split_run, tiny_llama, token_classes=True, lexicon=(str(lexicon),), **SETTINGS)

    assert again == read_document(split_run / "COMPLETE", RunManifest)
    for more in ({"token_classes": True, "lexicon": (str(other),)}, {}):
        with pytest.raises(UsageError, match="differs in token_classes"):
            score_here(build.corpus, split_run, tiny_llama, **SETTINGS, **more)
    assert partial_names(split_run) == before


def test_terms_and_paths_are_in_no_file(split_run: Path, lexicon: Path) -> None:
    """Only the digest of the lexicon stands in the run."""
    contents = [path.read_bytes() for path in split_run.rglob("*") if path.is_file()]

    assert not any(b"zebrafever" in content or str(lexicon).encode() in content for content in contents)


def test_reports_show_the_parts(build: MadeBuild, split_run: Path) -> None:
    """JSON, page and Markdown have each class and band with its exact loss; no term is in any of them."""
    totals = read_document(split_run / "COMPLETE", RunManifest).totals

    report = report_of(build, split_run)

    found = {f"{split.by}.{part.name}": part.figures for split in report.splits for part in split.parts}
    assert found.keys() == totals.parts.keys()
    for name, part in totals.parts.items():
        figures = found[name]
        assert isinstance(figures, PartFigures)
        assert (figures.num_tokens, figures.loss_nats_exact.model_dump()) == (part.num_tokens, part.loss_nats)
    files = report_files(report)
    for file, line in (
        ("report.md", b"| section\\_header | "),
        ("report.html", b'<th scope="row">section_header</th>'),
    ):
        assert line in files[file]
        assert b"share of loss" in files[file]
    assert "section_header" in "\n".join(report_lines(report, "page"))
    assert not any(b"zebrafever" in content for content in files.values())
    hidden = report_of(build, split_run, min_cell=11)
    assert any(isinstance(part.figures, Suppressed) for split in hidden.splits for part in split.parts)


def test_totals_of_parts_that_differ_from_the_rows_are_noticed(
    build: MadeBuild, split_run: Path, tmp_path: Path
) -> None:
    """A run whose sealed totals have another number of records of a class have no report."""
    run = tmp_path / "run"
    shutil.copytree(split_run, run)
    sealed = read_document(run / "COMPLETE", RunManifest)
    part = sealed.totals.parts["class.other"]
    parts = sealed.totals.parts | {"class.other": part.model_copy(update={"num_records": part.num_records + 1})}
    totals = sealed.totals.model_copy(update={"parts": parts})
    write_document(run / "COMPLETE", sealed.model_copy(update={"totals": totals}), replace=True)

    with pytest.raises(IntegrityError, match="parts of the losses differ"):
        report_of(build, run)


def test_a_resume_takes_the_parts_over(build: MadeBuild, split_run: Path) -> None:
    """Partials of an earlier launch are counted with their parts, as the sealed run has them."""
    header = read_document(split_run / "run.json", RunHeader)
    opened, found = open_build(build.corpus), list_partials(split_run)

    ledger, sound = take_over(
        split_run, found, run_id=header.run_id, build=opened, policy=policy_of(header.fingerprint), parts=header.parts
    )

    totals = read_document(split_run / "COMPLETE", RunManifest).totals
    assert len(sound) == len(found)
    assert {name: part.num_tokens for name, part in ledger.parts.items()} == {
        name: part.num_tokens for name, part in totals.parts.items()
    }


@settings(max_examples=15)
@given(
    order=st.permutations(range(4)),
    texts=st.lists(st.lists(st.sampled_from(TEXTS), max_size=4), min_size=4, max_size=4),
)
def test_parts_do_not_depend_on_neighbours_or_order(session: Session, order: list[int], texts: list[list[str]]) -> None:
    """Blocks in any order, with and without a memory, have the parts that each record has alone."""
    found: list[list[RecordResult]] = score(session, texts, order)

    assert score(session, texts, memory=Recall()) == found
    alone = {text: score(session, [[text]])[0][0] for text in {text for block in texts for text in block}}
    assert found == [[alone[text] for text in block] for block in texts]


def test_equal_ids_of_other_classes_are_two_sequences(session: Session) -> None:
    """Two texts that a tokenizer cannot tell apart keep the classes of their own characters, in one batch."""
    positions = np.array([1, 9, 9, 9], dtype=np.int64)
    records = [Encoded(positions, 3, 1, 3, labels=np.array(labels, np.uint8)) for labels in ([0, 3, 3], [3, 3, 0])]

    [(_, [one, other])] = score_blocks([(key_of(0), records)], session.method, memory=Recall())

    alone = [next(score_blocks([(key_of(0), [record])], session.method))[1] for record in records]
    assert [[one], [other]] == alone
    assert one.loss_nats == other.loss_nats
    assert one.parts != other.parts


def test_split_of_a_session_is_that_of_its_settings(session: Session) -> None:
    """Its parts are those of the split that its encoder makes classes for."""
    split = Split(TokenClasses(read_units(None)), (2, 8, 32))

    assert session.parts == list(split.parts)
    assert session.encoder.classes == split.classes


@pytest.mark.slow
@pytest.mark.parametrize("num_ranks", [2, 3])
def test_ranks_do_not_change_a_part(
    build: MadeBuild, split_run: Path, lexicon: Path, tiny_llama: Path, tmp_path: Path, num_ranks: int
) -> None:
    """Under torchrun the command line gives the same partials, header and totals."""
    given = {"device": "cpu", "threads-per-rank": 1, "lexicon": lexicon, "max-length": 64, "tile-tokens": 256}
    flags = [str(part) for name, value in given.items() for part in (f"--{name}", value)]
    arguments = [
        "run",
        str(build.corpus),
        "--out",
        str(tmp_path / "run"),
        "--model",
        str(tiny_llama),
        "--token-classes",
    ]

    done = launch([*arguments, *flags], num_ranks=num_ranks)

    assert done.code == 0, done.err
    assert_same(tmp_path / "run", split_run)
