"""Losses of earlier runs: taken where computing again would give the same bits, left where anything is in doubt."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.access import Access
from schemas.errors import TemporaryError, UsageError
from schemas.folders import Build, open_build
from schemas.partials import list_partials
from schemas.tables import STATUS_NON_FINITE, STATUS_SCORED
from scoring.cache import ScoreCache, require_cache_folder
from scoring.sequences import DIGEST_BYTES, SequenceKey, SequenceScore
from scoring.status import read_statuses
from tests.launches import notes, partial_names, score_here
from tests.made_runs import MadeBuild, make_build
from tests.secured import Secured, make_secured

SETTINGS = {"max_length": 64, "tile_tokens": 256}
METHOD = "m-" + "0" * 16
SCORES = st.builds(SequenceScore, st.just(STATUS_SCORED), st.floats(0, 1e9), st.integers(1, 9), st.integers(1, 3))


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> MadeBuild:
    """A build of 27 short notes in two departments; read only."""
    return make_build(tmp_path_factory.mktemp("corpus"), notes(27, 3))


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory, scheduler: str) -> Secured:
    """An encrypted build; read only."""
    return make_secured(tmp_path_factory.mktemp("secured"), scheduler, num_rows=18)


def cache_of(folder: Path, build: Build, access: Access | None = None) -> ScoreCache:
    """A cache of one method."""
    return ScoreCache(folder, build, METHOD, access)


def keys_of(build: Build, num_keys: int) -> list[SequenceKey]:
    """Keys of sequences of all departments."""
    codes = build.codes
    return [SequenceKey(codes[at % len(codes)], at.to_bytes(DIGEST_BYTES)) for at in range(num_keys)]


@settings(max_examples=10)
@given(scores=st.lists(SCORES, min_size=1, max_size=12))
def test_what_is_kept_is_found_by_the_next_run(
    scores: list[SequenceScore], build: MadeBuild, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Every score comes back bit for bit, to its department alone."""
    folder, opened = tmp_path_factory.mktemp("cache"), open_build(build.corpus)
    keys, cache = keys_of(opened, len(scores)), cache_of(folder, opened)
    for key, score in zip(keys, scores, strict=True):
        cache.keep(key, score)

    cache.flush()

    again = cache_of(folder, opened)
    assert [again.find(key) for key in keys] == scores
    others = [SequenceKey(next(code for code in opened.codes if code != key.department), key.digest) for key in keys]
    assert not any(map(again.find, others))


def test_what_is_not_finite_is_not_kept(build: MadeBuild, tmp_path: Path) -> None:
    """A NaN may be a fault of the device: it is computed again every time."""
    opened = open_build(build.corpus)
    [key], cache = keys_of(opened, 1), cache_of(tmp_path, opened)

    cache.keep(key, SequenceScore(STATUS_NON_FINITE, None, 0, 1))
    cache.flush()

    assert not list(tmp_path.rglob("*.json"))


def test_a_second_run_takes_all_from_the_cache(build: MadeBuild, tiny_llama: Path, tmp_path: Path) -> None:
    """Its partials are those of a run without, byte for byte; nothing is computed, and the hits are counted."""
    cache = tmp_path / "cache"
    for name, more in (("plain", {"dedup": False}), ("first", {"cache": cache}), ("second", {"cache": cache})):
        score_here(build.corpus, tmp_path / name, tiny_llama, **SETTINGS, **more)

    names = [[path.path.name for path in list_partials(tmp_path / run)] for run in ("plain", "first", "second")]
    [first], [second] = read_statuses(tmp_path / "first"), read_statuses(tmp_path / "second")

    assert names[0] == names[1] == names[2]
    assert (first.num_cached, second.num_tokens) == (0, 0)
    assert second.num_cached + second.num_repeated == 26  # one note is empty


def test_another_method_takes_nothing(build: MadeBuild, tiny_llama: Path, tmp_path: Path) -> None:
    """Longer windows are other losses: the cache of one is none of the other's."""
    cache = tmp_path / "cache"
    score_here(build.corpus, tmp_path / "first", tiny_llama, cache=cache, **SETTINGS)

    score_here(build.corpus, tmp_path / "second", tiny_llama, cache=cache, max_length=32, tile_tokens=256)

    [status] = read_statuses(tmp_path / "second")
    assert (status.num_cached, len(list(cache.iterdir()))) == (0, 2)


def test_damaged_segments_cost_time_and_no_number(
    build: MadeBuild, tiny_llama: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A flipped byte, a shortened file and a stranger are left out, and the run is as without."""
    cache = tmp_path / "cache"
    score_here(build.corpus, tmp_path / "first", tiny_llama, cache=cache, **SETTINGS)
    one, other = sorted(cache.rglob("*.json"))
    content = bytearray(one.read_bytes())
    content[len(content) // 2] ^= 1
    one.write_bytes(content)
    shutil.copy2(other, other.with_name("0" * 32 + ".json"))
    other.write_bytes(other.read_bytes()[:-20])

    score_here(build.corpus, tmp_path / "second", tiny_llama, cache=cache, **SETTINGS)

    [status] = read_statuses(tmp_path / "second")
    assert partial_names(tmp_path / "second") == partial_names(tmp_path / "first")
    assert status.num_cached == 0
    assert sum("left out" in record.message for record in caplog.records) == 3


def test_a_cache_of_an_encrypted_build_is_encrypted_and_signed(secured: Secured, tmp_path: Path) -> None:
    """No digest or loss shows; another who may score the department takes them, one who may not cannot open them."""
    owner, build = secured.access(), secured.opened()
    key = SequenceKey(secured.code_of["canary ward 0"], b"canary digest 01")
    cache, score = cache_of(tmp_path, build, owner), SequenceScore(STATUS_SCORED, 1234.5, 7, 1)
    cache.keep(key, score)
    cache.flush()

    found = {
        name: cache_of(tmp_path, secured.opened(name), secured.access(name)).find(key)
        for name in ("owner", "north", "south", "auditor")
    }

    [segment] = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert segment.name.endswith(".json.dsse")
    assert b"PAR1" not in segment.read_bytes()
    assert found == {"owner": score, "north": score, "south": None, "auditor": None}


def test_a_segment_that_nobody_has_signed_is_left_out(secured: Secured, build: MadeBuild, tmp_path: Path) -> None:
    """In an encrypted build a segment in the clear, and one of a foreign signer, give nothing."""
    opened, code = secured.opened(), secured.code_of["canary ward 0"]
    key = SequenceKey(code, bytes(DIGEST_BYTES))
    cache = cache_of(tmp_path, opened, secured.access())
    cache.keep(key, SequenceScore(STATUS_SCORED, 1.0, 1, 1))
    cache.flush()
    [segment] = tmp_path.rglob("*.dsse")
    forged = bytearray(segment.read_bytes())
    at = forged.index(b'"sig"') + 10
    forged[at] = ord("A") if forged[at] != ord("A") else ord("B")
    segment.write_bytes(forged)
    shutil.copy2(segment, segment.with_suffix(""))

    assert cache_of(tmp_path, opened, secured.access()).find(key) is None


def test_a_cache_is_no_part_of_a_build(build: MadeBuild, tmp_path: Path) -> None:
    """A folder inside the build, or a file, is refused in one line."""
    opened = open_build(build.corpus)
    (tmp_path / "file").write_text("")

    run = tmp_path / "run"
    places = [
        (opened.folder / "cache", "inside a build"),
        (tmp_path / "file", "cannot be made"),
        (run / "c", "the run"),
    ]
    for path, reason in places:
        with pytest.raises(UsageError, match=reason):
            require_cache_folder(path, opened, run)


def test_a_cache_that_cannot_be_written_to_costs_no_run(
    build: MadeBuild, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One warning says that nothing more is kept, and what ended the run meanwhile stays what is told."""

    def full(*_: object) -> None:
        raise TemporaryError("disk: full; make room")

    monkeypatch.setattr("scoring.cache.write_document", full)
    opened = open_build(build.corpus)
    cache = cache_of(tmp_path, opened)

    for _ in range(2):
        for key in keys_of(opened, 4):
            cache.keep(key, SequenceScore(STATUS_SCORED, 1.0, 1, 1))
        cache.flush()

    assert caplog.text.count("the cache is written to no more: disk: full") == 1
