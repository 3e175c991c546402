"""Manifests name files inside their own folder only, and their ledgers balance or say so."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from schemas.documents import document_bytes, parse_document
from schemas.ledgers import BuildLedger
from schemas.manifests import PartialEntry, RankStatus, RunManifest, ShardEntry
from schemas.seals import seal_bytes
from schemas.totals import RunTotals

SHARD_ID = "d-0123456789ab-00003"
NO_DIGESTS = {"content_digest": "0" * 64, "carried_digest": "0" * 64}
PART = st.from_regex(r"[A-Za-z0-9]{1,4}([._-][A-Za-z0-9]{1,4}){0,2}", fullmatch=True)
WRONG_PATHS = (
    "../partials/x.parquet",
    "partials/../../x.parquet",
    "partials/..",
    "..",
    ".",
    "/etc/passwd",
    "//server/x",
    "C:/x",
    "C:\\x",
    "partials\\x",
    "./x",
    "partials/./x",
    "partials//x",
    "partials/",
    ".hidden",
    "partials/.writing-1",
    "a..b",
    "x.",
    "x\n",
    "\nx",
    "x\x00",
    "a b",
    "科室/x",
    "~/x",
    "-rf",
    "",
)


def entry(path: str) -> PartialEntry:
    """A partial entry with a given path."""
    return PartialEntry(shard_id=SHARD_ID, block=0, path=path, seal=seal_bytes(b""), content_digest="0" * 64)


@given(parts=st.lists(PART, min_size=1, max_size=4))
def test_a_path_stays_inside_its_folder(parts: list[str]) -> None:
    """Every accepted path is relative and climbs nowhere."""
    path = "/".join(parts)

    accepted = entry(path).path

    assert accepted == path
    assert not PurePosixPath(accepted).is_absolute()
    assert ".." not in PurePosixPath(accepted).parts


@given(path=st.text(st.sampled_from("a./\\:~\n \x00-"), max_size=12))
def test_no_accepted_path_escapes(path: str) -> None:
    """Whatever is accepted resolves to a place below the folder."""
    folder = Path("/corpus/run")

    try:
        accepted = entry(path).path
    except ValidationError:
        return

    resolved = (folder / accepted).resolve()
    assert folder in resolved.parents
    assert str(resolved) == f"{folder}/{accepted}"


@pytest.mark.parametrize("path", WRONG_PATHS)
def test_a_path_that_could_escape_is_refused(path: str) -> None:
    """Absolute paths, parent folders, hidden files and odd characters are no manifest paths."""
    with pytest.raises(ValidationError):
        entry(path)


@pytest.mark.parametrize("path", WRONG_PATHS)
def test_a_shard_cannot_name_a_path_outside(path: str) -> None:
    """Shards and partials obey the same rule, also when read from a validly sealed file."""
    shard: dict[str, Any] = {
        "shard_id": SHARD_ID,
        "path": path,
        "department": "d-0123456789ab",
        "num_records": 1,
        "estimated_tokens": 1,
        "seal": seal_bytes(b""),
        "content_digest": "0" * 64,
        "blocks": [{**dict.fromkeys(("num_records", "num_text_bytes", "estimated_tokens"), 1), **NO_DIGESTS}],
    }

    with pytest.raises(ValidationError) as caught:
        ShardEntry.model_validate(shard)

    assert [item["loc"] for item in caught.value.errors()] == [("path",)]


@pytest.mark.parametrize("name", ["shard_id", "department"])
@pytest.mark.parametrize("value", ["Cardiology", "d-0123456789AB", "d-0123456789ab\n", "d-0123456789ab-3", "", "d-科"])
def test_codes_are_opaque(name: str, value: str) -> None:
    """A department's own name is never accepted where its code belongs."""
    with pytest.raises(ValidationError) as caught:
        ShardEntry.model_validate({name: value})

    assert (name,) in [item["loc"] for item in caught.value.errors() if item["type"] == "string_pattern_mismatch"]


@given(
    num_kept=st.integers(0, 1000),
    duplicates=st.dictionaries(st.sampled_from(["same_text", "same_id"]), st.integers(0, 100)),
    rejected=st.dictionaries(st.sampled_from(["bad_utf8", "no_text"]), st.integers(0, 100)),
    lost=st.integers(-5, 5),
)
def test_a_ledger_balances_exactly_when_nothing_is_lost(
    num_kept: int, duplicates: dict[str, int], rejected: dict[str, int], lost: int
) -> None:
    """Read = kept + duplicates + rejected, to the record."""
    accounted = num_kept + sum(duplicates.values()) + sum(rejected.values())
    num_read = max(accounted + lost, 0)

    ledger = BuildLedger(num_read=num_read, num_kept=num_kept, duplicates=duplicates, rejected=rejected)

    assert ledger.balances == (num_read == accounted)


def test_a_run_manifest_survives_its_round_trip() -> None:
    """Writing and reading a run's last file gives the same value."""
    loss = {"mantissa": "3", "exponent": -1}
    totals = RunTotals(loss_nats=loss, num_tokens=3, num_words=2, num_bytes=9, num_records=1, skipped={"no_tokens": 1})
    manifest = RunManifest(
        run_id="r-0123456789abcdef",
        header=seal_bytes(b"header"),
        totals=totals,
        partials=[entry("partials/rank-00000/x.parquet")],
        num_ranks=1,
    )

    again = parse_document(document_bytes(manifest), RunManifest, "COMPLETE")

    assert again == manifest


def test_unknown_fields_are_refused() -> None:
    """A field that this release does not know is an error, not silence."""
    with pytest.raises(ValidationError, match="extra_forbidden"):
        BuildLedger.model_validate({"num_read": 0, "num_kept": 0, "duplicates": {}, "rejected": {}, "num_lost": 0})


@pytest.mark.parametrize("clock", [float("nan"), float("inf"), float("-inf")])
def test_a_clock_is_a_finite_number(clock: float) -> None:
    """Side files hold times, and even these are finite."""
    status: dict[str, Any] = {
        "run_id": None,
        "rank": 0,
        "num_ranks": 1,
        "state": "starting",
        "exit_code": None,
        "message": "",
        "num_blocks_done": 0,
        "num_blocks_planned": 0,
        "num_tokens": 0,
        "started_at": 0.5,
        "updated_at": 1.5,
    }

    assert RankStatus.model_validate(status).updated_at == 1.5
    with pytest.raises(ValidationError, match="finite_number"):
        RankStatus.model_validate(status | {"updated_at": clock})
