"""Faults of similar systems, each carried through a whole build, run and report."""

from __future__ import annotations

import json
import math
import random
import shutil
from pathlib import Path

import pytest

from schemas.documents import document_bytes, read_document, write_document
from schemas.errors import IntegrityError
from schemas.manifests import RunManifest
from schemas.partials import BlockKey
from schemas.report import Metric, NoNumber, Number, Report
from schemas.tables import STATUS_NO_SCORED_TOKENS, STATUS_NO_TOKENS
from tests.made_runs import MadeRecord, add_partial, blocks_of, make_build, make_run, report_of, scored_table, totals_of

A_AND_B = [
    MadeRecord("A", department="x", loss=10.0, num_tokens=1),
    MadeRecord("B", department="y", loss=9.0, num_tokens=9),
]


def value(metric: Metric) -> float:
    """The number of a figure that has one."""
    assert isinstance(metric, Number)
    return metric.value


def report_for(folder: Path, records: list[MadeRecord], *, num_ranks: int = 2) -> Report:
    """Build, run and report in a folder."""
    build = make_build(folder / "corpus", records)
    return report_of(build, make_run(folder / f"run-{num_ranks}", build, num_ranks=num_ranks))


@pytest.mark.parametrize("num_ranks", [1, 2, 3])
def test_mean_of_batch_means(tmp_path: Path, num_ranks: int) -> None:
    """One token of NLL 10 and nine of NLL 1 have perplexity exp(19/10), whatever is scored together."""
    report = report_for(tmp_path, A_AND_B, num_ranks=num_ranks)

    assert value(report.whole.token_perplexity) == math.exp(1.9)
    assert value(report.whole.token_perplexity) == pytest.approx(6.6859, abs=1e-4)


def test_mean_of_ppls(tmp_path: Path) -> None:
    """The mean of two perplexities stands only where it is named macro, beside the number of strata."""
    report = report_for(tmp_path, A_AND_B)

    by_department = report.crossings[0]
    assert value(by_department.macro.token_perplexity) == pytest.approx((math.exp(10) + math.exp(1)) / 2, rel=1e-15)
    assert by_department.macro.num_strata == 2
    assert value(report.whole.token_perplexity) == math.exp(1.9)


def test_group_average_of_ppls(tmp_path: Path) -> None:
    """Strata (10, 1) and (9, 9) have the micro average of their sums."""
    report = report_for(tmp_path, A_AND_B)

    strata = report.crossings[0].strata
    assert sorted(value(stratum.figures.nll_per_token) for stratum in strata) == [1.0, 10.0]
    assert value(report.crossings[0].micro.nll_per_token) == 1.9


def test_bits_per_byte(tmp_path: Path) -> None:
    """8·ln 2 nats over 4 bytes are 2 bits a byte and a byte perplexity of 4."""
    report = report_for(tmp_path, [MadeRecord("A", loss=8 * math.log(2), num_tokens=3, num_bytes=4)])

    assert value(report.whole.bits_per_byte) == 2.0
    assert value(report.whole.byte_perplexity) == pytest.approx(4.0, rel=1e-15)


@pytest.mark.parametrize("num_first", [4, 5])
def test_reduced_per_rank_before_the_gather(tmp_path: Path, num_first: int) -> None:
    """Losses 0…8 on two ranks of uneven size have mean 4, not the mean of two rank means."""
    records = [MadeRecord(f"n{index}", loss=float(index)) for index in range(9)]
    build = make_build(tmp_path / "corpus", records)
    run = make_run(tmp_path / "run", build, rank_of=lambda index: int(index >= num_first))

    report = report_of(build, run)

    assert value(report.whole.nll_per_token) == 4.0


@pytest.mark.parametrize(("mean", "expected"), [(25.0, 7.200489933738588e10), (709.0, 8.218407461554972e307)])
def test_overflow_is_not_clamped(tmp_path: Path, mean: float, expected: float) -> None:
    """A large perplexity is reported as it is."""
    report = report_for(tmp_path, [MadeRecord("A", loss=mean)])

    assert value(report.whole.token_perplexity) == pytest.approx(expected, rel=1e-14)


def test_overflow_is_infinite_by_status(tmp_path: Path) -> None:
    """A mean NLL of 710 gives perplexity "infinite" with a reason, keeps the NLL, and the JSON holds no infinity."""
    report = report_for(tmp_path, [MadeRecord("A", loss=7100.0, num_tokens=10)])

    assert isinstance(report.whole.token_perplexity, NoNumber)
    assert report.whole.token_perplexity.status == "infinite"
    assert value(report.whole.nll_per_token) == 710.0
    json.loads(document_bytes(report), parse_constant=lambda name: pytest.fail(name))


def test_fp32_counter(tmp_path: Path) -> None:
    """2**24 tokens and three records of one more are 16,777,219 tokens."""
    records = [MadeRecord("A", num_tokens=2**24), *(MadeRecord(f"n{index}") for index in range(3))]

    report = report_for(tmp_path, records)

    assert report.whole.num_tokens == 16_777_219


def test_results_depend_on_order(tmp_path: Path) -> None:
    """Losses that FP64 addition would round differently by order give equal reports for two record orders."""
    records = [MadeRecord(f"n{index}", loss=loss) for index, loss in enumerate([1e16, 1.0, 1.0, 0.1, 0.2, 3e-9] * 3)]
    shuffled = random.Random(3).sample(records, len(records))

    first = report_for(tmp_path / "a", records)
    second = report_for(tmp_path / "b", shuffled)

    assert document_bytes(first) == document_bytes(second)


def test_no_token(tmp_path: Path) -> None:
    """Records without a token are counted by their reason and leave the figures alone."""
    records = [
        MadeRecord("A", loss=2.0),
        MadeRecord("B", loss=None, reason=STATUS_NO_TOKENS),
        MadeRecord("C", loss=None, reason=STATUS_NO_SCORED_TOKENS),
    ]

    report = report_for(tmp_path, records)

    assert (report.ledger.run.skipped[STATUS_NO_TOKENS], report.ledger.run.skipped[STATUS_NO_SCORED_TOKENS]) == (1, 1)
    assert (report.whole.num_records, report.whole.num_skipped) == (1, 2)
    assert value(report.whole.nll_per_token) == 2.0


def test_no_token_anywhere(tmp_path: Path) -> None:
    """A run of skipped records only has a report whose figures are undefined with a reason."""
    report = report_for(tmp_path, [MadeRecord("A", loss=None)])

    assert report.whole.token_perplexity == NoNumber(status="undefined", reason="no scored tokens")
    assert report.crossings[0].macro.num_strata_without_tokens == 1


def test_fewer_records_than_ranks(tmp_path: Path) -> None:
    """Three records on four ranks are reported; a rank without work is fine."""
    report = report_for(tmp_path, [MadeRecord(f"n{index}", loss=float(index)) for index in range(3)], num_ranks=4)

    assert report.whole.num_records == 3
    assert value(report.whole.nll_per_token) == 1.0


def test_sampler_pads_with_duplicates(tmp_path: Path) -> None:
    """NLL i of ten documents on three ranks has mean 4.5, and a block scored twice to even out ranks is refused."""
    build = make_build(tmp_path / "corpus", [MadeRecord(f"n{index}", loss=float(index)) for index in range(10)])
    run = make_run(tmp_path / "run", build, num_ranks=3)
    assert value(report_of(build, run).whole.nll_per_token) == 4.5

    shard, block = blocks_of(build)[0]
    manifest = read_document(run / "COMPLETE", RunManifest)
    key = BlockKey(shard.shard_id, block)
    twice = add_partial(run, scored_table(build, shard, block), run_id=manifest.run_id, key=key, rank=2)
    tables = [scored_table(build, *item) for item in [*blocks_of(build), (shard, block)]]
    padded = manifest.model_copy(update={"partials": [*manifest.partials, twice], "totals": totals_of(tables)})
    write_document(run / "COMPLETE", padded, replace=True)

    with pytest.raises(IntegrityError, match="0 missing, 0 unknown, 1 repeated"):
        report_of(build, run)


def test_model_as_cache_for_model_b(tmp_path: Path) -> None:
    """A partial of model A, put where model B's belongs and sealed there, is refused by its run id."""
    build = make_build(tmp_path / "corpus", [MadeRecord("A")])
    run_a = make_run(tmp_path / "a", build, num_ranks=1, model="A")
    run_b = make_run(tmp_path / "b", build, num_ranks=1, model="B")
    manifest_a, manifest_b = (read_document(run / "COMPLETE", RunManifest) for run in (run_a, run_b))
    (foreign,) = manifest_a.partials
    (own,) = manifest_b.partials
    (run_b / own.path).unlink()
    shutil.copy(run_a / foreign.path, run_b / foreign.path)
    write_document(run_b / "COMPLETE", manifest_b.model_copy(update={"partials": [foreign]}), replace=True)

    with pytest.raises(IntegrityError) as caught:
        report_of(build, run_b)

    assert foreign.path in str(caught.value)
    assert "belongs to another run" in str(caught.value)
